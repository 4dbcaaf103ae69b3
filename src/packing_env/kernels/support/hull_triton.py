"""The rule of the centre of mass over the hull of the supporting cells, on CUDA, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels import layout
from packing_env.kernels.compiled.triton import SIZES, UNROLLED, launch, placements

_SUBCELL = tl.constexpr(layout.SUBCELL)
_HALF_CELL = tl.constexpr(layout.HALF_CELL)
_VERTICAL = tl.constexpr(layout.VERTICAL)

_BEYOND = tl.constexpr(2**30)
"""Beyond every window: the first of no supporting cells, and, negated, the end of the last."""


@triton.jit
def row_support(heights, edges, threshold, h, phase, steps, STRIDE: tl.constexpr):
    """Return the lower edge of the first and the upper edge of the last supporting cell of a row.

    float64, in cells; (+inf, -inf) where none supports.
    """
    low = tl.full(threshold.shape, _BEYOND, tl.int32)
    high = tl.full(threshold.shape, -_BEYOND, tl.int32)
    for p in range(0, tl.minimum(h, STRIDE)):
        line, edge = heights + p * phase, edges + p * steps
        for q in range(0, tl.cdiv(h, STRIDE), UNROLLED):
            for k in tl.static_range(UNROLLED):
                v = (q + k) * STRIDE + p
                supports = tl.load(line + (q + k)) - tl.load(edge + (q + k)) >= threshold
                low = tl.where(supports, tl.minimum(low, v), low)
                high = tl.where(supports, tl.maximum(high, v + 1), high)
    first = tl.where(low < _BEYOND, low.to(tl.float64), float("inf"))
    last = tl.where(high > -_BEYOND, high.to(tl.float64), -float("inf"))
    return first, last


@triton.jit(do_not_specialize=SIZES)
def com_hull_kernel(
    phases,
    bottom,
    z,
    com,
    stable,
    contact_tol,
    orientations,
    length,
    width,
    window_x,
    steps,
    pitch_x,
    pitch_y,
    CENTRES: tl.constexpr,
    STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    POINTS: tl.constexpr,
):
    """Write 1 for stable placements of one orientation, 0 for others that stay in the container.

    The walk over the lines of corners, and every operation in float64, are those of the eager
    kernel. The one product is by a power of two, so that fusing it with a sum rounds nothing else.
    """
    row, first, levels, w, h, ground, maps, inside, index = placements(
        bottom, orientations, length, width, window_x, steps, pitch_y, STRIDE, GROUP, POINTS
    )
    threshold = tl.load(z + maps + index, mask=inside, other=float("inf")) - contact_tol
    centre_x = tl.load(com + first * 2).to(tl.float64)
    centre_y = tl.load(com + first * 2 + 1).to(tl.float64)
    phase = pitch_x * pitch_y
    inset = _HALF_CELL if CENTRES else 0
    below = tl.full([GROUP, POINTS], float("inf"), tl.float64)
    above = tl.full([GROUP, POINTS], -float("inf"), tl.float64)
    max_left, max_right, neg_min_left, neg_min_right = above, above, above, above
    for u in range(0, w if CENTRES else w + 1):
        heights = phases + ((row * STRIDE + u % STRIDE) * STRIDE * phase + u // STRIDE * pitch_y)
        edges = levels + u * STRIDE * steps
        cells = tl.where(u < w, h, 0)
        low, high = row_support(heights + ground, edges, threshold, cells, phase, steps, STRIDE)
        lowest = low if CENTRES else tl.minimum(low, below)
        highest = high if CENTRES else tl.maximum(high, above)
        below, above = low, high
        dx = u * _SUBCELL + inset - centre_x
        distance = tl.where(dx == 0, _VERTICAL, tl.abs(dx))
        steepest = (highest * _SUBCELL - inset - centre_y) / distance
        shallowest = (centre_y - lowest * _SUBCELL - inset) / distance
        not_left = tl.where(dx <= 0, 0.0, -float("inf"))
        not_right = tl.where(dx >= 0, 0.0, -float("inf"))
        max_left = tl.maximum(max_left, steepest + not_left)
        max_right = tl.maximum(max_right, steepest + not_right)
        neg_min_left = tl.maximum(neg_min_left, shallowest + not_left)
        neg_min_right = tl.maximum(neg_min_right, shallowest + not_right)
    # the formula of `kernels.stability_rules.chords_hold`
    held = (max_left + max_right >= 0) & (neg_min_left + neg_min_right >= 0)
    tl.store(stable + maps + index, held.to(tl.uint8), mask=inside)


def com_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    contact_tol: float,
    stride: int,
    centres: bool,
) -> Tensor:
    """Carry out `packing_env.kernels.com_hull`."""
    stable = z.new_zeros(z.shape, dtype=torch.uint8)
    others = (z.contiguous(), com.contiguous(), stable, contact_tol)
    launch(com_hull_kernel, heightmap, bottom, stride, 1, *others, CENTRES=centres)
    return stable.view(torch.bool)
