"""Packed containers on the host: items with their poses and solids, read from a state."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from packing_env.items.handling import POSES
from packing_env.items.meshes.mesh import UNITS
from packing_env.names import plain_name
from packing_env.types import PackingParams

if TYPE_CHECKING:
    from packing_env.envs import PackingEnv
    from packing_env.items import Catalogue, Mesh


DIRECTIONS = ("+x", "-x", "+y", "-y", "+z", "-z")
"""Directions in which items of a nest leave."""


class PlanError(ValueError):
    """An error in making or reading a plan; the message names the cause."""


@dataclass(frozen=True, eq=False)
class PlacedItem:
    """One item in the container.

    Attributes:
        order: Index in the order of packing, from 0.
        name: Name of the item.
        source: Origin of its solid: a file, ``shapes:NAME``, ``mesh:NAME`` or ``cuboid``.
        unit: Unit of the source.
        scale: Factor on the source.
        extent: Sides of a cuboid in ``unit``; ``None`` for other solids.
        rotation: ``[3, 3]``, R in ``p_world = R @ (scale * unit * p_file) + t``.
        translation: ``[3]`` metres, t.
        cell: Lower corner ``(x, y)`` of its window, in cells (in units for geometry ``"boxes"``);
            rounded in geometry ``"solids"``.
        z: Height of its lowest point, metres: on the heightmap or, if settled, after
            :mod:`.settle`.
        orientation: Index in the catalogue.
        item_id: Row of the catalogue.
        support_ratio: Share of its footprint that is supported; 0 in geometry ``"solids"``.
        volume: m^3.
        top: ``[w, h]`` upper surface above z, -inf outside the footprint; ``None`` if unknown.
        bottom: ``[w, h]`` lower surface above z, +inf outside the footprint; ``None`` if unknown.
        quaternion: ``[4]`` the rotation, which the plan states a second time, or ``None``.
        handling: Attributes that constraints read, such as weight (kg) and fragility; ``faces``,
            which may be up; and ``turn``, False if the item may not be turned about z. In geometry
            ``"boxes"`` also ``layers`` and ``on_like``
            (:class:`packing_env.items.handling.Stacking`).
        z_grid: Height of its lowest point on the heightmap, metres, if the item is settled;
            otherwise ``None``.
        gap: Distance to the solids below, metres, if the item is settled; negative if the item is
            inside one of them.
        contacts: ``[C, 3]`` metres, if the item is settled: points of its underside within 0.1 mm
            of a solid below, reduced to the corners of their hull seen from above.
        balanced: True if the item is settled and its centre of mass is above that hull.
        leaves: Geometry ``"solids"``: the direction, one of :data:`DIRECTIONS`, in which the item
            moves straight out once all later items are out; ``None`` if it has no such way.
        mesh: Its solid in metres if the planner read or was given a mesh. JSON does not hold it;
            :func:`packing_env.planner.save` writes it to a file if none holds it.
    """

    order: int
    name: str
    source: str
    unit: str
    scale: float
    extent: tuple[float, float, float] | None
    rotation: np.ndarray
    translation: np.ndarray
    cell: tuple[int, int]
    z: float
    orientation: int
    item_id: int
    support_ratio: float
    volume: float
    top: np.ndarray | None = field(default=None, repr=False)
    bottom: np.ndarray | None = field(default=None, repr=False)
    quaternion: np.ndarray | None = field(default=None, repr=False)
    handling: Mapping[str, Any] = field(default_factory=dict)
    z_grid: float | None = None
    gap: float | None = None
    contacts: np.ndarray | None = field(default=None, repr=False)
    balanced: bool | None = None
    leaves: str | None = None
    mesh: Mesh | None = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", plain_name(self.name))  # e.g. in a plan of another program

    def to_world(self, points: np.ndarray) -> np.ndarray:
        """Map points ``[..., 3]`` from the source, in its unit, to the container, in metres."""
        moved = points * (self.scale * UNITS[self.unit]) @ self.rotation.T + self.translation
        return np.asarray(moved, np.float64)


@dataclass(frozen=True, eq=False)
class Packing:
    """A container with its packed items, on the host.

    Attributes:
        container: ``(X, Y, H)`` metres.
        cell: Side of a heightmap cell (in geometry ``"solids"``: of a voxel), metres.
        stability: The stability rule that every placement satisfied.
        contact_tol: Largest distance at which a cell supports, metres.
        items: Packed items in the order of packing.
        num_items: Number of items in the instance, packed or not.
        instance: ``seed``, ``row`` and ``episode`` from which the instance was drawn.
        claimed: The utilization that a plan file states, or ``None``.
        geometry: ``"maps"`` or ``"boxes"`` (``PackingParams.geometry``), or ``"solids"``: a nest of
            parts in free poses, which do not stand on each other.
        unit: Metres per integer step, in geometry ``"boxes"``.
        constraints: The constraints of the task (``Constraints.to_json``).
        name: Name of the container, as the order gives it; "" if it has none.
        container_unit: Unit in which the container was given; "" if it is not known.
    """

    container: tuple[float, float, float]
    cell: float
    stability: str
    contact_tol: float = field(default=0.0, kw_only=True)
    items: tuple[PlacedItem, ...]
    num_items: int
    instance: Mapping[str, int] = field(default_factory=dict)
    claimed: float | None = None
    geometry: str = "maps"
    unit: float | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    container_unit: str = ""

    @property
    def pitch(self) -> float:
        """Metres per step of :attr:`PlacedItem.cell`."""
        return self.cell if self.unit is None else self.unit

    @property
    def shown_unit(self) -> str:
        """Unit for display: the container's, else that of all items, else mm; "" if unitless."""
        units = {self.container_unit} if self.container_unit else {i.unit for i in self.items}
        return "" if self.cell >= 1.0 else units.pop() if len(units) == 1 else "mm"

    @property
    def utilization(self) -> float:
        """Packed volume divided by the container's volume."""
        return sum(item.volume for item in self.items) / self.capacity

    @property
    def capacity(self) -> float:
        """Volume of the container without the edges that are cut off, m^3."""
        left = 1.0
        for edge, *lengths in self.constraints.get("cut", ()):
            sides = [self.container["xyz".index(axis)] for axis in edge[1::2]]
            left -= math.prod(lengths) / math.prod(sides) / 2
        return left * math.prod(self.container)

    def first(self, count: int) -> Packing:
        """Return the packing after the first ``count`` items."""
        return replace(self, items=self.items[:count])


def _handling(m: int, catalogue: Catalogue) -> dict[str, Any]:
    handling = {} if catalogue.handling is None else catalogue.handling.of_row(m)
    source = catalogue.sources[m]
    return handling | {key: source[key] for key in POSES if key in source}


def packing_of(env: PackingEnv, row: int = 0, state: Mapping[str, Tensor] | None = None) -> Packing:
    """Read one container of an environment.

    Args:
        env: The environment; it must have been reset.
        row: Index of the container, counted over all batch axes.
        state: A state to read instead of ``env.state``, as ``env.get_state()`` returns it.

    Raises:
        PlanError: There is no state, or no such row.
    """
    if state is None:
        if env.state is None:
            raise PlanError("there is no state before the first reset(); call env.reset()")
        rows = dict(env.state.items())
    else:
        axes = len(env.batch_size)
        rows = {k: v.flatten(0, axes - 1) for k, v in state.items()}
    count = len(rows["step"])
    if not -count <= row < count:
        raise PlanError(f"row={row} does not exist; the environment has {count} rows")
    return read_state({k: v[row] for k, v in rows.items()}, env.catalogue, env.params)


def read_state(state: Mapping[str, Tensor], catalogue: Catalogue, params: PackingParams) -> Packing:
    """Read the container of a state without a batch axis (one row)."""
    row = {key: value.detach().cpu() for key, value in state.items()}
    count = int(row["items_packed"])
    items = tuple(_placed(order, row, catalogue, params) for order in range(count))
    return Packing(
        container=params.container,
        cell=params.cell,
        stability=params.stability,
        contact_tol=0.0 if params.geometry == "boxes" else params.tolerance,
        items=items,
        num_items=int(row["num_items"]),
        instance={key: int(row[key]) for key in ("seed", "row", "episode")},
        geometry=params.geometry,
        unit=params.pitch if params.geometry == "boxes" else None,
        constraints=params.constraints.to_json(),
    )


def _placed(
    order: int, row: Mapping[str, Tensor], catalogue: Catalogue, params: PackingParams
) -> PlacedItem:
    position, r, x, y = row["placement"][order].tolist()
    m = int(row["item_id"][position])
    source, z = catalogue.sources[m], float(row["placement_z"][order])
    w, h = catalogue.size[m, r].tolist()
    top, bottom, extent = None, None, None
    if params.geometry == "boxes":
        z = int(row["boxes"][order, 2]) * params.pitch  # without the rounding to float32
    else:
        top, bottom = (a[m, r, :w, :h].cpu().numpy() for a in (catalogue.top, catalogue.bottom))
    corner = torch.tensor([x * params.pitch, y * params.pitch, z], dtype=torch.float64)
    if source.get("extent") is not None:
        dx, dy, dz = (float(side) for side in source["extent"])
        extent = (dx, dy, dz)
    return PlacedItem(
        order=order,
        name=catalogue.names[m],
        source=str(source["source"]),
        unit=str(source["unit"]),
        scale=float(source["scale"]),
        extent=extent,
        rotation=catalogue.rotation[m, r].cpu().numpy(),
        translation=(corner + catalogue.offset[m, r].cpu()).numpy(),
        cell=(x, y),
        z=z,
        orientation=r,
        item_id=m,
        support_ratio=float(row["placement_support"][order]),
        volume=float(catalogue.volume[m]),
        top=top,
        bottom=bottom,
        handling=_handling(m, catalogue),
    )
