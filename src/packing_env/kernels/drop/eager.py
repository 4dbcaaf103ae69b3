"""Drop-height maps without a compiled kernel: by NumPy or by torch, whichever is faster.

NumPy works through one orientation after the other, in the rectangle that its finite cells take;
torch through one cell of the window after the other, over all orientations at once.
"""

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
from packing_env.kernels.operators import declare

_CELL = 30_000
"""Overhead of torch per window cell, in placements that it handles in that time."""

_PLANE = 30_000
"""Overhead of NumPy per orientation, in placements times cells of torch."""

_PHASE = 15_000
"""Overhead of NumPy per phase of an orientation, in the same unit."""

_GAIN = 3
"""How much faster NumPy's arithmetic is."""


_drop_height_by_numpy = declare(
    "numpy_drop_height(Tensor heightmap, Tensor bottom, int stride) -> Tensor",
    cpu="packing_env.kernels.drop.numpy:drop_height",
    fake=lambda heights, *others: heights.new_empty(lattice_shape(heights, *others)),
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
    if _numpy_may(heightmap, bottom) and numpy_pays(heightmap, bottom, stride):
        found: Tensor = _drop_height_by_numpy(heightmap, bottom, stride)
        return found
    return drop_height_by_torch(heightmap, bottom, stride)


@in_rows(2, lambda *arguments: rows_at_once(lattice_shape(*arguments)[1:]))
def drop_height_by_torch(
    heightmap: Float[Tensor, "B X Y"], bottom: Float[Tensor, "B R U V"], stride: int
) -> Float[Tensor, "B R Xs Ys"]:
    """Carry out `packing_env.kernels.drop_height` in torch: any device, traceable, no host read.

    Loops run over the cells of the window, whose size is static, never over data; padding
    orientations cost as much as real ones.
    """
    shape = lattice_shape(heightmap, bottom, stride)
    phases = phases_of(heightmap, bottom, stride)
    window_x, window_y = window_cells(heightmap, bottom)
    z = torch.full(shape, -torch.inf, dtype=heightmap.dtype, device=heightmap.device)
    for u in range(window_x):
        for v in range(window_y):
            gap = window_cell(phases, u, v, *shape[2:]) - bottom[:, :, u, v, None, None]
            z = torch.maximum(z, gap)
    return torch.where(_inside(heightmap, bottom, stride), z, torch.inf)


def _inside(heightmap: Tensor, bottom: Tensor, stride: int) -> Bool[Tensor, "B R Xs Ys"]:
    """Return which placements keep every finite cell, of which there is any, in the container."""
    _, length, width = heightmap.shape
    device = bottom.device
    extent_x, extent_y = extents(bottom).unbind(-1)
    x = torch.arange(0, length, stride, device=device)
    y = torch.arange(0, width, stride, device=device)
    fits_x = (x + extent_x.unsqueeze(-1) <= length) & (extent_x > 0).unsqueeze(-1)
    fits_y = y + extent_y.unsqueeze(-1) <= width
    return fits_x.unsqueeze(-1) & fits_y.unsqueeze(-2)


def numpy_pays(
    heightmap: Float[Tensor, "B X Y"], bottom: Float[Tensor, "B R U V"], stride: int
) -> bool:
    """Return True if NumPy is faster on one thread, from the shapes alone."""
    batch, orientations, xs, ys = lattice_shape(heightmap, bottom, stride)
    window_x, window_y = bottom.shape[2:]
    planes, cells = batch * orientations, window_x * window_y
    placements = planes * xs * ys
    phases = min(stride, window_x) * min(stride, window_y)
    by_numpy = planes * (_PLANE + _PHASE * phases) + cells * placements // _GAIN
    return by_numpy < cells * (_CELL + placements)


def _numpy_may(heightmap: Tensor, bottom: Tensor) -> bool:
    """Return False on other devices and where torch traces its operations or follows gradients."""
    if torch.compiler.is_compiling() or heightmap.device.type != "cpu":
        return False
    return not (torch.is_grad_enabled() and (heightmap.requires_grad or bottom.requires_grad))
