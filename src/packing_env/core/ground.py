"""The ground of a geometry: how packed items are stored, and which placements are legal.

This is the interface; `core.feasibility` implements it for heightmaps, `core.voxels` and
`core.cuboids.ground` for the other geometries. A geometry either computes maps of all placements
(``"maps"``, ``"voxels"``), or it judges the placements that a generator lists (``"boxes"``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core.orientation import Placement
from packing_env.types import Catalogue, PackingParams, State


@dataclass(frozen=True)
class Maps:
    """All placements of the visible items.

    In geometry ``"voxels"`` the axes ``Xs Ys`` are followed by ``Z``, the layers.

    Attributes:
        z: ``[B, L, R, Xs, Ys]`` rest height, metres; +inf if the footprint leaves the container, or
            if the orientation or the item does not exist.
        legal: ``[B, L, R, Xs, Ys]`` True if inside, under the lid and stable. Some functions also
            apply the task's other rules; their docstrings say so.
        contact: ``[B, L, R, Xs, Ys, Z]`` faces that touch something, in geometry ``"voxels"``.
    """

    z: Float[Tensor, "B L R Xs Ys *Z"]
    legal: Bool[Tensor, "B L R Xs Ys *Z"]
    contact: Int[Tensor, "B L R Xs Ys *Z"] | None = None


@dataclass(frozen=True)
class Resting:
    """One placement per row, at rest. The values are undefined if the placement is not legal.

    Attributes:
        z: ``[B]`` rest height, metres.
        stable: ``[B]`` by the task's ``stability_metric``.
        support_ratio: ``[B]`` float64, the share of the footprint that is supported.
    """

    z: Float[Tensor, " B"]
    stable: Bool[Tensor, " B"]
    support_ratio: Float[Tensor, " B"]


@dataclass(frozen=True)
class Landing:
    """One item per row that comes to rest.

    Attributes:
        item_id: ``[B]`` catalogue rows.
        placement: ``[B]`` their placements.
        z: ``[B]`` rest heights, metres.
        carried: ``[B]`` True where the placement is carried out; the other rows stay unchanged.
    """

    item_id: Int[Tensor, " B"]
    placement: Placement
    z: Float[Tensor, " B"]
    carried: Bool[Tensor, " B"]


class Ground(ABC):
    """Base of the geometries' rules; its methods are pure functions.

    Args:
        catalogue: The items; the methods are faster with a catalogue from :meth:`prepare`.
        params: The task.

    Attributes:
        description: Representation from which placements are computed, for the log.
    """

    description: str

    def __init__(self, catalogue: Catalogue, params: PackingParams) -> None:
        self.catalogue, self.params = catalogue, params

    @staticmethod
    def begin(batch: int, params: PackingParams, device: torch.device) -> State:
        """Return the entries of the state that only this geometry has, in an empty container."""
        return {}

    @staticmethod
    def prepare(catalogue: Catalogue, params: PackingParams) -> Catalogue:
        """Return the catalogue with tables that the other methods then need not compute."""
        return catalogue

    @abstractmethod
    def legal_on_floor(self) -> Bool[Tensor, "M R"]:
        """Return which orientations are legal in a corner of the empty container."""

    def empty_maps(
        self, item_id: Int[Tensor, "B L"], there: Bool[Tensor, "B L"], on_floor: Bool[Tensor, "M R"]
    ) -> Maps | None:
        """Return :meth:`maps` of an empty container, without running a kernel."""
        return None

    def maps(
        self, state: State, item_id: Int[Tensor, "B L"], there: Bool[Tensor, "B L"]
    ) -> Maps | None:
        """Return all placements of the items by all rules; None if the geometry has no maps."""
        return None

    def judge(
        self,
        state: State,
        item_id: Int[Tensor, "B K"],
        place: Placement,
        there: Bool[Tensor, "B K"],
    ) -> tuple[Float[Tensor, "B K"], Bool[Tensor, "B K"]]:
        """Return rest height (metres) and legality of listed placements.

        Only geometries without maps need it; in the others, placements are looked up in the maps.
        """
        raise NotImplementedError(f"{type(self).__name__} has maps; look placements up in them")

    @abstractmethod
    def at_rest(self, state: State, item_id: Int[Tensor, " B"], placement: Placement) -> Resting:
        """Return rest height and support of one legal placement per row."""

    @abstractmethod
    def commit(self, state: State, item: Landing) -> State:
        """Return the heightmap, and this geometry's entries, with the items of ``carried`` rows."""


def unrotated_fits(x: Tensor | int, y: Tensor | int, size: Tensor, params: PackingParams) -> Tensor:
    """Return whether the window of orientation 0, ``size [..., 2]``, is inside at ``(x, y)``."""
    # Compare in pitches, the unit of x and y: in geometry "boxes" a cell has several pitches.
    across, along, _ = params.pitches
    return (x + size[..., 0] <= across) & (y + size[..., 1] <= along)
