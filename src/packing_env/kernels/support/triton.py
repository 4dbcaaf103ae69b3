"""The count of supporting cells on CUDA devices, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels.compiled.triton import SIZES, UNROLLED, launch, placements, plane_of
from packing_env.kernels.support.hull_triton import com_hull

__all__ = ["com_hull", "support_count"]

_GROUP = 4
"""Orientations per program, as for the rest heights."""


@triton.jit(do_not_specialize=SIZES)
def support_count_kernel(
    phases,
    bottom,
    z,
    count,
    contact_tol,
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
    """Write the count where an orientation stays in the container; elsewhere it is left."""
    row, group, first, tile = plane_of(orientations, length, width, STRIDE, GROUP, POINTS)
    levels = bottom + group * window_x * STRIDE * steps * GROUP
    w, h, ground, inside, index = placements(
        levels, tile, length, width, window_x, steps, pitch_y, STRIDE, GROUP, POINTS
    )
    maps = first * tl.cdiv(length, STRIDE) * tl.cdiv(width, STRIDE)
    threshold = tl.load(z + maps + index, mask=inside, other=float("inf")) - contact_tol
    phase = pitch_x * pitch_y
    member = tl.arange(0, GROUP)[:, None]
    found = tl.zeros([GROUP, POINTS], tl.int32)
    for u in range(0, w):
        heights = phases + ((row * STRIDE + u % STRIDE) * STRIDE * phase + u // STRIDE * pitch_y)
        for p in range(0, tl.minimum(h, STRIDE)):
            line = heights + p * phase + ground
            edge = levels + (u * STRIDE + p) * steps * GROUP + member
            for q in range(0, tl.cdiv(h, STRIDE), UNROLLED):
                for k in tl.static_range(UNROLLED):
                    gap = tl.load(line + (q + k)) - tl.load(edge + (q + k) * GROUP)
                    found += tl.where(gap >= threshold, 1, 0)
    tl.store(count + maps + index, found, mask=inside)


def support_count(
    heightmap: Tensor, bottom: Tensor, z: Tensor, contact_tol: float, stride: int
) -> Tensor:
    """Carry out `packing_env.kernels.support_count`."""
    count = z.new_zeros(z.shape, dtype=torch.int32)
    group = min(_GROUP, triton.next_power_of_2(bottom.shape[1]))
    others = (z.contiguous(), count, contact_tol)
    launch(support_count_kernel, heightmap, bottom, stride, group, *others)
    return count
