"""Placements: visible items, orientations, and the meaning of a placement index."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.types import Catalogue, PackingParams, State


@dataclass(frozen=True)
class Placement:
    """Placements in cells: one per row (``[B]``), or a list per row (``[B, K]``).

    Attributes:
        slot: Index into the visible items.
        orientation: Index into the item's orientations.
        x: Lower corner of the item's window along X, cells.
        y: Lower corner along Y, cells.
        valid: False if the action was out of range.
        projected: True if this placement replaced an illegal action; None if actions are never
            replaced.
        layer: Lower corner along Z, cells, in geometry ``"voxels"``; None if the item falls.
    """

    slot: Int[Tensor, "*rows"]
    orientation: Int[Tensor, "*rows"]
    x: Int[Tensor, "*rows"]
    y: Int[Tensor, "*rows"]
    valid: Bool[Tensor, "*rows"]
    projected: Bool[Tensor, "*rows"] | None = None
    layer: Int[Tensor, "*rows"] | None = None

    def listed(self) -> Placement:
        """Return placements ``[B]`` as lists of one, ``[B, 1]``."""
        return Placement(**{name: value[:, None] for name, value in self._columns().items()})

    def _columns(self) -> dict[str, Tensor]:
        """Return the attributes that are not None, except ``projected``."""
        columns = {"slot": self.slot, "orientation": self.orientation, "x": self.x, "y": self.y}
        columns["valid"] = self.valid
        return columns if self.layer is None else columns | {"layer": self.layer}

    def where(self, rows: Bool[Tensor, " B"], other: Placement) -> Placement:
        """Return these placements in the given rows, and ``other`` in all other rows."""
        others = other._columns()
        chosen = self._columns().items()
        return Placement(**{k: torch.where(rows, value, others[k]) for k, value in chosen})


def visible_items(state: State, num_slots: int) -> tuple[Int[Tensor, "B S"], Bool[Tensor, "B S"]]:
    """Return the catalogue rows of the first ``num_slots`` slots of the queue, and a mask.

    An empty slot holds catalogue row 0 and is False in the mask.
    """
    queue = state["queue"][:, :num_slots]
    remaining = state["num_items"] - state["items_packed"]
    there = torch.arange(num_slots, device=queue.device) < remaining[:, None]
    item_id = state["item_id"].gather(1, queue)
    return torch.where(there, item_id, 0), there


def take_from_queue(
    queue: Int[Tensor, "B S"],
    slot: Int[Tensor, " B"],
    following: Int[Tensor, " B"],
    taken: Bool[Tensor, " B"],
) -> Int[Tensor, "B S"]:
    """Remove slot ``slot`` from each row's queue where ``taken``; later slots move up.

    ``following`` enters the last slot. The queue does not hold items that are not visible yet;
    these follow in the order of the instance.
    """
    # The removed slot and the slots after it get the content of their successors.
    places = torch.arange(queue.shape[1], device=queue.device)
    behind = (places >= slot[:, None]) & taken[:, None]
    return torch.cat((queue, following[:, None]), 1).gather(1, places + behind)


def encode_placement(
    place: Placement, num_orientations: int, params: PackingParams
) -> Int[Tensor, "*rows"]:
    """Return ``((slot * R + orientation) * Xs + x / step) * Ys + y / step``; x and y in cells.

    In geometry ``"voxels"`` the result is this index times the number of layers, plus ``layer``.
    """
    xs, ys = params.lattice
    x, y = place.x // params.grid_step, place.y // params.grid_step
    index = ((place.slot * num_orientations + place.orientation) * xs + x) * ys + y
    return index if place.layer is None else index * params.layers + place.layer


def decode_placement(
    action: Int[Tensor, "*rows"], num_orientations: int, params: PackingParams
) -> Placement:
    """Return the placement of an index of the ``placement`` mode."""
    # An index that is out of range becomes 0 and is marked.
    xs, ys = params.lattice
    count = params.num_visible * num_orientations * xs * ys * params.layers
    valid = (action >= 0) & (action < count)
    index = torch.where(valid, action, 0)
    layer = None
    if params.geometry == "voxels":
        layer = index % params.layers
        index = torch.div(index, params.layers, rounding_mode="floor")
    y = index % ys
    x = torch.div(index, ys, rounding_mode="floor") % xs
    plane = torch.div(index, xs * ys, rounding_mode="floor")
    return Placement(
        slot=torch.div(plane, num_orientations, rounding_mode="floor"),
        orientation=plane % num_orientations,
        x=x * params.grid_step,
        y=y * params.grid_step,
        valid=valid,
        layer=layer,
    )


def num_orientations(catalogue: Catalogue) -> int:
    """Return ``R``, the catalogue's maximum number of orientations."""
    return int(catalogue["peak"].shape[1])


def nearest_legal(
    placement: Placement, legal: Bool[Tensor, "B L R Xs Ys"], params: PackingParams
) -> Int[Tensor, " B"]:
    """Return the index of the legal placement that is nearest to a given one.

    Another item costs more than another orientation, and another orientation costs more than any
    squared distance on the lattice. Ties go to the lower index.
    """
    # 1. Squared lattice distances; another orientation, or another item, costs more than any
    #    distance.
    _, items, orientations, xs, ys = legal.shape
    step = params.grid_step

    def axis(size: int, at: Tensor) -> Tensor:
        return torch.arange(size, device=legal.device) - at[:, None]

    across = axis(xs, placement.x // step)[:, :, None] ** 2
    along = axis(ys, placement.y // step)[:, None, :] ** 2
    far = xs * xs + ys * ys
    rotated = (axis(orientations, placement.orientation) != 0) * far
    swapped = (axis(items, placement.slot) != 0) * (2 * far)
    # 2. The cheapest legal placement.
    plane = (swapped[:, :, None] + rotated[:, None, :])[..., None, None]
    cost = plane + (across + along)[:, None, None]
    return torch.where(legal, cost, 4 * far).flatten(1).argmin(1)


def project(placement: Placement, nearest: Placement, *, kept: Bool[Tensor, " B"]) -> Placement:
    """Return ``placement`` where it is kept; elsewhere return ``nearest``, marked as projected."""
    return replace(placement.where(kept, nearest), projected=~kept)


class Surfaces(NamedTuple):
    """Lower surfaces of items, read from the catalogue by index without copies.

    Attributes:
        bottom: ``[K, U, V]`` all lower surfaces of the catalogue, in metres.
        which: ``[B, LR]`` index in ``bottom`` of each orientation of the items; -1 if there is no
            item.
        size: ``[K, 2]`` see :func:`packing_env.kernels.surface_sizes`; None if not known.
    """

    bottom: Float[Tensor, "K U V"]
    which: Int[Tensor, "B LR"]
    size: Int[Tensor, "K 2"] | None

    def rest_heights(
        self, heightmap: Float[Tensor, "B X Y"], stride: int
    ) -> Float[Tensor, "B LR Xs Ys"]:
        """Return the rest height of every placement on a heightmap, metres."""
        return kernels.drop_height(heightmap, self.bottom, stride, which=self.which, size=self.size)


def surfaces(
    item_id: Int[Tensor, "B L"], there: Bool[Tensor, "B L"], catalogue: Catalogue
) -> Surfaces:
    """Return the lower surfaces of the items that exist."""
    # Orientation r of catalogue row m has index m * R + r.
    orientations = num_orientations(catalogue)
    which = item_id[..., None] * orientations + torch.arange(orientations, device=item_id.device)
    which = torch.where(there[..., None], which, -1).flatten(1)
    size = catalogue["footprint_size"].flatten(0, 1) if "footprint_size" in catalogue else None
    return Surfaces(catalogue["bottom"].flatten(0, 1), which, size)
