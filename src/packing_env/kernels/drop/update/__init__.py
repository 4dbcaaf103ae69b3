"""The operation `update_drop_height`: maps of rest heights after a placement."""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from packing_env.kernels.backends import implement, resolve
from packing_env.kernels.checks import check_maps, check_tensor
from packing_env.kernels.drop import drop_height


class DropHeights(NamedTuple):
    """Maps of the visible items, and the heights and items from which they were computed.

    Attributes:
        heightmap: ``[B, X, Y]`` metres.
        item_id: ``[B, L]`` catalogue rows; negative where there is no item.
        z: ``[B, L, R, Xs, Ys]`` as from `drop_height`.
    """

    heightmap: Float[Tensor, "B X Y"]
    item_id: Int[Tensor, "B L"]
    z: Float[Tensor, "B L R Xs Ys"]


def _empty(
    before: list[Tensor], heightmap: Tensor, item_id: Tensor, bottom: Tensor, *others: object
) -> Tensor:
    return heightmap.new_empty((*item_id.shape, bottom.shape[1], *before[2].shape[3:]))


_UPDATE = implement(
    "update_drop_height(Tensor[] before, Tensor heightmap, Tensor item_id, Tensor bottom,"
    " int stride, Tensor size) -> Tensor",
    __name__,
    fake=_empty,
)


def updates_drop_height(device_type: str) -> bool:
    """Return True if the device's backend updates maps; other backends compute them again."""
    return resolve(None, device_type) in _UPDATE


def update_drop_height(
    before: DropHeights | None,
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    bottom: Float[Tensor, "M R U V"],
    stride: int,
    size: Int[Tensor, "M R 2"],
    out: Float[Tensor, "B L R Xs Ys"] | None = None,
) -> DropHeights:
    """Return `drop_height` of the visible items, updated from their maps for earlier heights.

    An item that was visible before keeps its map, except for placements whose window contains a
    cell that has risen. New items are computed in full. So are rows in which a cell is lower than
    before, as after the start of another episode.

    Args:
        before: the last return value of this function, for any earlier state; None at first.
        heightmap: finite heights of the container; the result keeps this tensor, so do not change
            it in place.
        item_id: catalogue rows; negative means no item.
        bottom: lower surface of each orientation of every catalogue row, +inf outside its
            footprint.
        stride: lattice step in cells.
        size: as for `drop_height`.
        out: contiguous memory for the maps, other than that of ``before``. It is used if maps are
            updated and nothing is traced.
    """
    # 1. Compute in full if nothing is known, or if the backend cannot update.
    known = before is not None and before.heightmap.shape == heightmap.shape
    if before is None or not known or not updates_drop_height(heightmap.device.type):
        return DropHeights(heightmap, item_id, _in_full(heightmap, item_id, bottom, stride, size))
    # 2. Check the arguments, which an operator does not.
    check_maps(heightmap, bottom[0].expand(len(heightmap), *bottom.shape[1:]), stride)
    check_tensor("item_id", item_id, torch.int64, (len(heightmap), item_id.shape[-1]))
    check_tensor("size", size, torch.int64, (*bottom.shape[:-2], 2))
    # 3. Update. An operator must not return its argument, so with `out` the function is called
    #    directly.
    backend = resolve(None, heightmap.device.type)
    given = (list(before), heightmap, item_id, bottom, stride, size)
    if out is None:
        z = _UPDATE[backend](*given)
    else:
        z = import_module(f"{__name__}.{backend}").update_drop_height(*given, out=out)
    return DropHeights(heightmap, item_id, z)


def _in_full(
    heightmap: Tensor, item_id: Tensor, bottom: Tensor, stride: int, size: Tensor
) -> Float[Tensor, "B L R Xs Ys"]:
    """Return the maps of the visible items, computed without earlier maps."""
    orientations = bottom.shape[1]
    which = item_id[..., None] * orientations + torch.arange(orientations, device=item_id.device)
    which = torch.where(item_id[..., None] < 0, -1, which).flatten(1)
    surfaces, sizes = bottom.flatten(0, 1), size.flatten(0, 1)
    z = drop_height(heightmap, surfaces, stride, which=which, size=sizes)
    return z.view(*item_id.shape, orientations, *z.shape[2:])
