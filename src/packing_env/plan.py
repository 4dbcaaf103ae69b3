"""What was packed and where: read from a state, written as a plan to execute or to check.

A plan is JSON. Per item it holds the rigid motion ``p_world = R @ (scale * unit * p_file) + t`` in
metres, with the origin at the container's lower corner and z up, in the order of packing.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor

from packing_env.items.mesh import UNITS
from packing_env.types import PackingParams

if TYPE_CHECKING:
    from packing_env.envs import PackingEnv
    from packing_env.items import Catalogue

FORMAT = "packing-plan"
VERSION = 1


class PlanError(ValueError):
    """A plan cannot be made or read; the message names the cause."""


@dataclass(frozen=True, eq=False)
class PlacedItem:
    """One item in the container.

    Attributes:
        order: 0 for the first that was packed.
        name: of the item.
        source: Where its solid comes from: a file, ``shapes:NAME``, ``mesh:NAME`` or ``cuboid``.
        unit: Unit of the source.
        scale: Factor on the source.
        extent: Sides of a cuboid in ``unit``, else ``None``.
        rotation: ``[3, 3]``, R above.
        translation: ``[3]`` metres, t above.
        cell: Lower corner ``(x, y)`` of its window, cells.
        z: Metres at which its lowest point rests.
        orientation: Index in the catalogue.
        item_id: Row of the catalogue.
        support_ratio: Share of its footprint that is supported.
        volume: m^3.
        top: ``[w, h]`` upper surface above z, -inf outside, or ``None`` where it is not known.
        bottom: ``[w, h]`` lower surface, +inf outside.
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

    def to_world(self, points: np.ndarray) -> np.ndarray:
        """Points ``[..., 3]`` of the source, in its unit, where they stand, metres."""
        moved = points * (self.scale * UNITS[self.unit]) @ self.rotation.T + self.translation
        return np.asarray(moved, np.float64)


@dataclass(frozen=True, eq=False)
class Packing:
    """A container and what is in it, on the host.

    Attributes:
        container: ``(X, Y, H)`` metres.
        cell: Side of a heightmap cell, metres.
        stability: The rule that legal placements satisfied.
        contact_tol: Its tolerance, metres.
        items: In the order of packing.
        num_items: Items of the instance, those not packed included.
        instance: ``seed``, ``row`` and ``episode`` it was drawn with.
        heightmap: ``[X, Y]`` metres, or ``None`` where it is not known.
    """

    container: tuple[float, float, float]
    cell: float
    stability: str
    contact_tol: float
    items: tuple[PlacedItem, ...]
    num_items: int
    instance: Mapping[str, int] = field(default_factory=dict)
    heightmap: np.ndarray | None = field(default=None, repr=False)

    @property
    def utilization(self) -> float:
        """Packed volume over the container's."""
        return sum(item.volume for item in self.items) / float(np.prod(self.container))

    def first(self, count: int) -> Packing:
        """As it was after ``count`` items."""
        items = self.items[:count]
        return replace(self, items=items, heightmap=self._heights(items))

    def _heights(self, items: tuple[PlacedItem, ...]) -> np.ndarray | None:
        if self.heightmap is None or any(item.top is None for item in items):
            return None
        heights = np.zeros_like(self.heightmap)
        for item in items:
            assert item.top is not None
            (x, y), (w, h) = item.cell, item.top.shape
            window = heights[x : x + w, y : y + h]
            np.maximum(window, np.float32(item.z) + item.top, out=window)
        return heights


def packing_of(env: PackingEnv, row: int = 0, state: Mapping[str, Tensor] | None = None) -> Packing:
    """What is in one container of an environment.

    Args:
        env: The environment; it must have been reset.
        row: Which container, counted over all batch axes.
        state: A state to read instead of ``env.state``, as ``env.get_state()`` returns it.

    Raises:
        PlanError: There is no state, or no such row.
    """
    if state is None:
        if env.state is None:
            raise PlanError("there is nothing to show before the first reset(); call env.reset()")
        rows = dict(env.state.items())
    else:
        axes = len(env.batch_size)
        rows = {k: v.flatten(0, axes - 1) for k, v in state.items()}
    count = len(rows["step"])
    if not -count <= row < count:
        raise PlanError(f"row={row} does not exist; the environment has {count} rows")
    return read_state({k: v[row] for k, v in rows.items()}, env.catalogue, env.params)


def read_state(state: Mapping[str, Tensor], catalogue: Catalogue, params: PackingParams) -> Packing:
    """What is in the container of a state without a batch axis (one row)."""
    row = {key: value.detach().cpu() for key, value in state.items()}
    count = int(row["items_packed"])
    items = tuple(_placed(order, row, catalogue, params) for order in range(count))
    return Packing(
        container=params.container,
        cell=params.cell,
        stability=params.stability,
        contact_tol=params.tolerance,
        items=items,
        num_items=int(row["num_items"]),
        instance={key: int(row[key]) for key in ("seed", "row", "episode")},
        heightmap=row["heightmap"].numpy().copy(),
    )


def _placed(
    order: int, row: Mapping[str, Tensor], catalogue: Catalogue, params: PackingParams
) -> PlacedItem:
    """The ``order``-th packed item."""
    position, r, x, y = row["placement"][order].tolist()
    m = int(row["item_id"][position])
    source, z = catalogue.sources[m], float(row["placement_z"][order])
    corner = torch.tensor([x * params.cell, y * params.cell, z], dtype=torch.float64)
    w, h = catalogue.size[m, r].tolist()
    extent = source.get("extent")
    return PlacedItem(
        order=order,
        name=catalogue.names[m],
        source=str(source["source"]),
        unit=str(source["unit"]),
        scale=float(source["scale"]),
        extent=None if extent is None else tuple(float(side) for side in extent),
        rotation=catalogue.rotation[m, r].cpu().numpy(),
        translation=(corner + catalogue.offset[m, r].cpu()).numpy(),
        cell=(x, y),
        z=z,
        orientation=r,
        item_id=m,
        support_ratio=float(row["placement_support"][order]),
        volume=float(catalogue.volume[m]),
        top=catalogue.top[m, r, :w, :h].cpu().numpy(),
        bottom=catalogue.bottom[m, r, :w, :h].cpu().numpy(),
    )


# ------------------------------------------------------------------ JSON


def make_plan(
    env: PackingEnv | Packing, row: int = 0, state: Mapping[str, Tensor] | None = None
) -> dict[str, Any]:
    """The plan of one container, as JSON knows it; arguments as for :func:`packing_of`."""
    packing = env if isinstance(env, Packing) else packing_of(env, row, state)
    return {
        "format": FORMAT,
        "version": VERSION,
        "motion": "p_world = rotation @ (scale * unit * p_file) + translation, metres",
        "container": list(packing.container),
        "cell": packing.cell,
        "stability": packing.stability,
        "contact_tol": packing.contact_tol,
        "num_items": packing.num_items,
        "utilization": packing.utilization,
        "instance": dict(packing.instance),
        "items": [_item_to_json(item) for item in packing.items],
    }


def _item_to_json(item: PlacedItem) -> dict[str, Any]:
    out: dict[str, Any] = {
        "order": item.order,
        "name": item.name,
        "source": item.source,
        "unit": item.unit,
        "scale": item.scale,
        "rotation": (item.rotation + 0.0).tolist(),
        "quaternion": quaternion(item.rotation).tolist(),
        "translation": item.translation.tolist(),
        "x": item.cell[0],
        "y": item.cell[1],
        "z": item.z,
        "orientation": item.orientation,
        "item_id": item.item_id,
        "support_ratio": item.support_ratio,
        "volume": item.volume,
    }
    return out if item.extent is None else {**out, "extent": list(item.extent)}


def save_plan(
    path: str | Path,
    env: PackingEnv | Packing,
    row: int = 0,
    state: Mapping[str, Tensor] | None = None,
) -> dict[str, Any]:
    """Write :func:`make_plan` to a file, all or nothing, and return it."""
    plan = make_plan(env, row, state)
    with whole_file(path) as draft:
        draft.write_text(json.dumps(plan, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return plan


@contextlib.contextmanager
def whole_file(path: str | Path) -> Iterator[Path]:
    """A draft to write, which takes its name when it is whole; if writing fails nothing is left."""
    target = Path(path)
    draft = target.with_name(f".{target.name}.{uuid4().hex}")
    try:
        yield draft
        draft.replace(target)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


def load_plan(path: str | Path) -> Packing:
    """Read a plan back.

    Raises:
        PlanError: Not a plan, of another version, or incomplete; names the file and the key.
    """
    try:
        plan = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise PlanError(f"{path}: not a readable plan ({error})") from error
    if not isinstance(plan, dict) or plan.get("format") != FORMAT:
        raise PlanError(f"{path}: not a packing plan (its 'format' is not {FORMAT!r})")
    if plan.get("version") != VERSION:
        raise PlanError(
            f"{path}: a plan of version {plan.get('version')}; this program reads {VERSION}"
        )
    try:
        return _from_json(plan)
    except KeyError as error:
        raise PlanError(f"{path}: the plan lacks {error.args[0]!r}") from error
    except (TypeError, ValueError) as error:
        raise PlanError(f"{path}: the plan has a value of the wrong kind ({error})") from error


def _from_json(plan: Mapping[str, Any]) -> Packing:
    x, y, height = (float(length) for length in plan["container"])
    return Packing(
        container=(x, y, height),
        cell=float(plan["cell"]),
        stability=str(plan["stability"]),
        contact_tol=float(plan["contact_tol"]),
        items=tuple(_item_from_json(item) for item in plan["items"]),
        num_items=int(plan["num_items"]),
        instance={key: int(value) for key, value in plan["instance"].items()},
    )


def _item_from_json(item: Mapping[str, Any]) -> PlacedItem:
    if item["unit"] not in UNITS:
        raise ValueError(f"unit {item['unit']!r}, known are {', '.join(UNITS)}")
    extent = item.get("extent")
    return PlacedItem(
        order=int(item["order"]),
        name=str(item["name"]),
        source=str(item["source"]),
        unit=str(item["unit"]),
        scale=float(item["scale"]),
        extent=None if extent is None else tuple(float(side) for side in extent),
        rotation=np.asarray(item["rotation"], np.float64).reshape(3, 3),
        translation=np.asarray(item["translation"], np.float64).reshape(3),
        cell=(int(item["x"]), int(item["y"])),
        z=float(item["z"]),
        orientation=int(item["orientation"]),
        item_id=int(item["item_id"]),
        support_ratio=float(item["support_ratio"]),
        volume=float(item["volume"]),
    )


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """Unit quaternion ``(w, x, y, z)`` of a rotation ``[3, 3]``, w >= 0.

    The four products 4 q q^T are sums of the matrix's entries; the largest gives the best
    conditioned square root (Shepperd, J. Guidance and Control 1978).
    """
    (a, b, c), (d, e, f), (g, h, i) = rotation
    products = np.array(
        [
            [1 + a + e + i, h - f, c - g, d - b],
            [h - f, 1 + a - e - i, b + d, c + g],
            [c - g, b + d, 1 - a + e - i, f + h],
            [d - b, c + g, f + h, 1 - a - e + i],
        ]
    )
    best = products[np.argmax(np.diag(products))]
    unit = best / np.linalg.norm(best)
    return unit if unit[0] >= 0 else -unit
