"""Drop-height maps after a placement: only what it changed is computed anew."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from packing_env.kernels import backends as dispatch

torch.library.define(
    "packing_env::numba_update_drop_height",
    "(Tensor[] before, Tensor heightmap, Tensor item_id, Tensor bottom, int stride,"
    " Tensor? size=None) -> Tensor",
)


class DropHeights(NamedTuple):
    """Maps of the visible items, and what they were computed from.

    Attributes:
        heightmap: ``[B, X, Y]`` metres.
        item_id: ``[B, L]`` catalogue rows; negative where there is no item.
        z: ``[B, L, R, Xs, Ys]`` as from `drop_height`.
    """

    heightmap: Float[Tensor, "B X Y"]
    item_id: Int[Tensor, "B L"]
    z: Float[Tensor, "B L R Xs Ys"]


@torch.library.impl("packing_env::numba_update_drop_height", "cpu")
def _numba_update_drop_height(
    before: list[Tensor],
    heightmap: Tensor,
    item_id: Tensor,
    bottom: Tensor,
    stride: int,
    size: Tensor | None = None,
) -> Tensor:
    from packing_env.kernels.drop import incremental_numba

    known = (before[0], before[1], before[2])
    return incremental_numba.update_drop_height(known, heightmap, item_id, bottom, stride, size)


@torch.library.register_fake("packing_env::numba_update_drop_height")
def _fake_update_drop_height(
    before: list[Tensor],
    heightmap: Tensor,
    item_id: Tensor,
    bottom: Tensor,
    stride: int,
    size: Tensor | None = None,
) -> Tensor:
    return heightmap.new_empty((*item_id.shape, bottom.shape[-3], *before[2].shape[3:]))


def updates_drop_height(device_type: str) -> bool:
    """Whether the device's backend updates maps; the others compute them anew."""
    return dispatch.backend_for(device_type) == "numba"


def update_drop_height(
    before: DropHeights | None,
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    bottom: Float[Tensor, "B L R U V"] | Float[Tensor, "M R U V"],
    stride: int = 1,
    size: Int[Tensor, "M R 2"] | None = None,
) -> DropHeights:
    """`drop_height` of the visible items, made from their maps over earlier heights.

    An item that was visible before keeps its map, but for placements whose window meets the cells
    that rose since. Rows in which a cell is lower than before, such as those that began another
    episode, and items that are new are computed in full.

    Args:
        before: What this function returned last, of any earlier state; ``None``: nothing yet.
        heightmap: finite heights of the container; kept, so not to be changed in place.
        item_id: Which item is which; equal numbers must mean equal lower surfaces. Negative: none.
        bottom: lower surface of each orientation, +inf outside its footprint; of every catalogue
            row, or of each visible item.
        stride: lattice step in cells.
        size: with lower surfaces by catalogue row, as for `drop_height`.
    """
    known = before is not None and before.heightmap.shape == heightmap.shape
    if before is None or not known or not updates_drop_height(heightmap.device.type):
        turns = bottom.shape[-3]
        if bottom.dim() == 5:
            z = dispatch.drop_height(heightmap, bottom.flatten(1, 2), stride)
        else:
            which = item_id[..., None] * turns + torch.arange(turns, device=item_id.device)
            which = torch.where(item_id[..., None] < 0, -1, which).flatten(1)
            sizes = None if size is None else size.flatten(0, 1)
            z = dispatch.drop_height(
                heightmap, bottom.flatten(0, 1), stride, which=which, size=sizes
            )
        return DropHeights(heightmap, item_id, z.view(*item_id.shape, turns, *z.shape[2:]))
    if bottom.dim() == 5:
        dispatch.check_maps(heightmap, bottom.flatten(1, 2), stride)
    else:
        dispatch.check_maps(heightmap, bottom[0].expand(len(heightmap), *bottom.shape[1:]), stride)
    shape = (len(heightmap), item_id.shape[-1])
    dispatch.check_tensor("item_id", item_id, torch.int64, shape)
    if size is not None:
        dispatch.check_tensor("size", size, torch.int64, (*bottom.shape[:-2], 2))
    z = torch.ops.packing_env.numba_update_drop_height(
        list(before), heightmap, item_id, bottom, stride, size
    )
    return DropHeights(heightmap, item_id, z)
