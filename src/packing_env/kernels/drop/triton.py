"""Rest heights on CUDA devices, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels.compiled.triton import SIZES, UNROLLED, launch, placements, plane_of
from packing_env.kernels.layout import gather_surfaces, lattice_shape

_GROUP = 4
"""Orientations per program: what is loaded of the ground serves all of them."""


@triton.jit(do_not_specialize=SIZES)
def drop_height_kernel(
    phases,
    bottom,
    z,
    orientations,
    length,
    width,
    window_x,
    steps,
    pitch_x,
    pitch_y,
    STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    POINTS: tl.constexpr,
):
    """Write z where an orientation stays in the container; elsewhere it is left as it is."""
    row, group, first, tile = plane_of(orientations, length, width, STRIDE, GROUP, POINTS)
    levels = bottom + group * window_x * STRIDE * steps * GROUP
    w, h, ground, inside, index = placements(
        levels, tile, length, width, window_x, steps, pitch_y, STRIDE, GROUP, POINTS
    )
    phase = pitch_x * pitch_y
    member = tl.arange(0, GROUP)[:, None]
    highest = tl.full([GROUP, POINTS], -float("inf"), tl.float32)
    for u in range(0, w):
        heights = phases + ((row * STRIDE + u % STRIDE) * STRIDE * phase + u // STRIDE * pitch_y)
        for p in range(0, tl.minimum(h, STRIDE)):
            line = heights + p * phase + ground
            edge = levels + (u * STRIDE + p) * steps * GROUP + member
            for q in range(0, tl.cdiv(h, STRIDE), UNROLLED):
                for k in tl.static_range(UNROLLED):
                    gap = tl.load(line + (q + k)) - tl.load(edge + (q + k) * GROUP)
                    highest = tl.maximum(highest, gap)
    maps = z + first * tl.cdiv(length, STRIDE) * tl.cdiv(width, STRIDE)
    tl.store(maps + index, highest, mask=inside)


def drop_height(
    heightmap: Tensor,
    bottom: Tensor,
    stride: int,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.drop_height`; without `which`, ``size`` has no meaning."""
    if which is not None:
        bottom = gather_surfaces(bottom, which)
    z = heightmap.new_full(lattice_shape(heightmap, bottom, stride), torch.inf)
    group = min(_GROUP, triton.next_power_of_2(bottom.shape[1]))
    launch(drop_height_kernel, heightmap, bottom, stride, group, z)
    return z
