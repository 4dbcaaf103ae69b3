"""Drop-height maps without a compiled kernel: by NumPy or by torch, whichever is faster.

NumPy works through one orientation after the other, in the rectangle that its finite cells take;
torch through one cell of the window after the other, over all orientations at once.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from packing_env.kernels.support import eager

torch.library.define(
    "packing_env::numpy_drop_height", "(Tensor heightmap, Tensor bottom, int stride) -> Tensor"
)

_CELL = 30_000
"""What one window cell takes torch besides its arithmetic, in placements that it handles."""

_PLANE = 30_000
"""Likewise one orientation NumPy, in placements times cells of torch."""

_PHASE = 15_000
"""Likewise each phase of an orientation."""

_GAIN = 3
"""How much faster NumPy's arithmetic is."""


def drop_height(
    heightmap: Float[Tensor, "B X Y"], bottom: Float[Tensor, "B R U V"], stride: int
) -> Float[Tensor, "B R Xs Ys"]:
    """See `packing_env.kernels.drop_height`."""
    if _numpy_may(heightmap, bottom) and numpy_pays(heightmap, bottom, stride):
        return torch.ops.packing_env.numpy_drop_height(heightmap, bottom, stride)
    return eager.drop_height(heightmap, bottom, stride)


def numpy_pays(
    heightmap: Float[Tensor, "B X Y"], bottom: Float[Tensor, "B R U V"], stride: int
) -> bool:
    """Whether NumPy is faster on one thread, by the shapes alone."""
    batch, orientations, xs, ys = eager.lattice_shape(heightmap, bottom, stride)
    window_x, window_y = bottom.shape[2:]
    planes, cells = batch * orientations, window_x * window_y
    placements = planes * xs * ys
    phases = min(stride, window_x) * min(stride, window_y)
    by_numpy = planes * (_PLANE + _PHASE * phases) + cells * placements // _GAIN
    return by_numpy < cells * (_CELL + placements)


def _numpy_may(heightmap: Tensor, bottom: Tensor) -> bool:
    """Not on other devices, nor where torch traces its operations or follows gradients."""
    if torch.compiler.is_compiling() or heightmap.device.type != "cpu":
        return False
    return not (torch.is_grad_enabled() and (heightmap.requires_grad or bottom.requires_grad))


@torch.library.impl("packing_env::numpy_drop_height", "cpu")
def _numpy_drop_height(heightmap: Tensor, bottom: Tensor, stride: int) -> Tensor:
    from packing_env.kernels.drop import numpy as drop_numpy

    return drop_numpy.drop_height(heightmap, bottom, stride)


@torch.library.register_fake("packing_env::numpy_drop_height")
def _fake_drop_height(heightmap: Tensor, bottom: Tensor, stride: int) -> Tensor:
    return heightmap.new_empty(eager.lattice_shape(heightmap, bottom, stride))
