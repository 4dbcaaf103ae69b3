"""Maps of drop heights in torch: any device, traceable, no host read."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.layout import (
    extents,
    gather_surfaces,
    in_rows,
    lattice_shape,
    phases_of,
    rows_at_once,
    window_cell,
    window_cells,
)


def drop_height(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"] | Float[Tensor, "K U V"],
    stride: int,
    which: Int[Tensor, "B R"] | None = None,
    size: Int[Tensor, "K 2"] | None = None,
) -> Float[Tensor, "B R Xs Ys"]:
    """Carry out `packing_env.kernels.drop_height`."""
    if which is not None:
        bottom = gather_surfaces(bottom, which)
    return _drop_height(heightmap, bottom, stride)


@in_rows(2, lambda *arguments: rows_at_once(lattice_shape(*arguments)[1:]))
def _drop_height(
    heightmap: Float[Tensor, "B X Y"], bottom: Float[Tensor, "B R U V"], stride: int
) -> Float[Tensor, "B R Xs Ys"]:
    """Return :func:`drop_height` of gathered surfaces.

    Loops run over the cells of the window, whose size is static, never over data. Padding
    orientations take as long as real ones.
    """
    # 1. Split the ground by phase, so that each window cell is one shift of it.
    shape = lattice_shape(heightmap, bottom, stride)
    phases = phases_of(heightmap, bottom, stride)
    window_x, window_y = window_cells(heightmap, bottom)
    # 2. The largest gap over the cells of the window.
    z = torch.full(shape, -torch.inf, dtype=heightmap.dtype, device=heightmap.device)
    for u in range(window_x):
        for v in range(window_y):
            gap = window_cell(phases, u, v, *shape[2:]) - bottom[:, :, u, v, None, None]
            z = torch.maximum(z, gap)
    # 3. Keep the placements at which the item is inside.
    return torch.where(_inside(heightmap, bottom, stride), z, torch.inf)


def _inside(heightmap: Tensor, bottom: Tensor, stride: int) -> Bool[Tensor, "B R Xs Ys"]:
    """Return which placements have finite cells and keep all of them in the container."""
    _, length, width = heightmap.shape
    device = bottom.device
    # Test the last finite cell along x and y, and whether there is any.
    extent_x, extent_y = extents(bottom).unbind(-1)
    x = torch.arange(0, length, stride, device=device)
    y = torch.arange(0, width, stride, device=device)
    fits_x = (x + extent_x.unsqueeze(-1) <= length) & (extent_x > 0).unsqueeze(-1)
    fits_y = y + extent_y.unsqueeze(-1) <= width
    return fits_x.unsqueeze(-1) & fits_y.unsqueeze(-2)
