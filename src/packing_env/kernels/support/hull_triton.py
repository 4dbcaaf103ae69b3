"""The rule of the centre of mass over the hull of the supporting cells, on CUDA, in Triton.

Slopes are compared as fractions of integers, which gives the same results as float64. Unequal
quotients of integers below 2^17 differ by more than the rounding error of float64, and equal
quotients are rounded alike. A corner straight above or below the centre would have the slope 2^20
dy; only the sign of dy counts.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels import layout
from packing_env.kernels.compiled.scene_triton import apart, part, scene_of
from packing_env.kernels.compiled.triton import SIZES, grounds_of, launch, tile_of
from packing_env.kernels.support.corners import holds_all

_SUBCELL = tl.constexpr(layout.SUBCELL)
_HALF_CELL = tl.constexpr(layout.HALF_CELL)

_NONE = tl.constexpr(2**24)
"""Number greater than any cell index of a window.

Without supporting cells it stands for the first cell; negated, for the end of the last.
"""

_BLOCKS = tl.constexpr(63)
"""Number of blocks of a window row that have their own bit; the last bit is shared by all further
blocks.
"""

POINTS = 64
"""Number of placements of a program: two for each thread."""

MAX_SIDE = 300
"""Largest window, in cells, whose fractions are compared in int32."""


@part
def steeper(rise, run, best_rise, best_run, there):
    """Return the larger of two slopes rise / run; (-1, 0) means no slope."""
    larger = there & (rise * best_run > best_rise * run)
    return tl.where(larger, rise, best_rise), tl.where(larger, run, best_run)


@part
def spans(left_rise, left_run, right_rise, right_run):
    """Return True where both sides have slopes and the slopes sum to at least 0."""
    both = (left_run > 0) & (right_run > 0)
    return both & (left_rise * right_run + right_rise * left_run >= 0)


@part
def gaps_of(ground, level, u, first_v, window_y, v: tl.constexpr, LATTICE: tl.constexpr):
    """Return the gaps to the cells of a vector: (u, first_v + v) and its neighbours along y.

    ``ground`` points to each placement in the first phase, ``[1, POINTS]``; ``level`` points to the
    lower surface; first_v is the start of a block. Gaps beyond the window are -inf.
    """
    # The address of the ground: phase, lattice point, cell of the vector.
    stride, threads, vector = LATTICE.stride, LATTICE.threads, LATTICE.vector
    cell = tl.broadcast_to(tl.arange(0, LATTICE.vector)[:, None], [LATTICE.vector, ground.shape[1]])
    phase = u % stride // threads * (stride // vector) + v % stride // vector
    place = u // stride * LATTICE.pitch_y + first_v // stride + v // stride
    place += phase * (LATTICE.pitch_x * LATTICE.pitch_y)
    heights = tl.load(ground + (place * threads + u % threads) * vector + cell)
    # Cells beyond the window are set to +inf below, so that no gap reaches a bar.
    there = first_v + v + cell < window_y
    edge = tl.load(level + (u * window_y + first_v + v) + cell, mask=there, other=float("inf"))
    return heights - edge


@part
def row_support(
    ground,
    level,
    bar,
    needed,
    u,
    h,
    window_y,
    LATTICE: tl.constexpr,
):
    """Return the lower edge of the first and the upper edge of the last supporting cell of row u.

    Only blocks whose bit is set in ``needed`` are read; the result is (_NONE, -_NONE) where no cell
    supports.
    """
    # First and last supporting cell, over the blocks that can support.
    low = tl.full(bar.shape, _NONE, tl.int32)
    high = tl.full(bar.shape, -_NONE, tl.int32)
    side: tl.constexpr = LATTICE.side
    vector: tl.constexpr = LATTICE.vector
    for c in range(0, tl.cdiv(h, LATTICE.side)):
        if ((needed >> tl.minimum(c, _BLOCKS - 1)) & 1) == 1:
            for v in tl.static_range(0, side, vector):
                gaps = gaps_of(ground, level, u, c * LATTICE.side, window_y, v, LATTICE)
                supports = gaps >= bar
                at = c * LATTICE.side + v + tl.arange(0, LATTICE.vector)[:, None]
                first = tl.where(supports, at, _NONE)
                last = tl.where(supports, at + 1, -_NONE)
                low = tl.minimum(low, tl.min(first, axis=0, keep_dims=True))
                high = tl.maximum(high, tl.max(last, axis=0, keep_dims=True))
    return low, high


@part
def blocks_needed(tops, lows, bar, h, LATTICE: tl.constexpr):
    """Return a bit for each block of a window row that can support a placement of the tile."""
    # The highest ground minus the lowest cell bounds every gap of a block.
    needed = tl.full([], 0, tl.int64)
    for c in range(0, tl.cdiv(h, LATTICE.side)):
        reach = tl.load(tops + c * (LATTICE.side // LATTICE.stride)) - tl.load(lows + c)
        bit = tl.max(tl.max((reach >= bar).to(tl.int32), axis=1), axis=0).to(tl.int64)
        needed = needed | (bit << tl.minimum(c, _BLOCKS - 1))
    return needed


@triton.jit(do_not_specialize=SIZES)
def com_hull_kernel(
    scene, z, com, stable, tolerance, orientations, window_x, window_y,
    CENTRES: tl.constexpr, WIDE: tl.constexpr, POINTS: tl.constexpr, TILE_Y: tl.constexpr,
    LATTICE: tl.constexpr,
):  # fmt: skip
    """Write 1 for stable placements, else 0, as the eager kernel; z = +inf need not be checked."""
    # 1. The placements of the program, and where their ground and surface are.
    row, plane, surface, first_x, first_y, nx, ny = tile_of(
        scene, orientations, POINTS, TILE_Y, LATTICE
    )
    point = apart(tl.arange(0, POINTS), POINTS)[None, :]
    x, y = first_x + point // TILE_Y, first_y + point % TILE_Y
    inside = (x < nx) & (y < ny)
    h = tl.load(scene.size + surface * 3 + 1)
    blocks_y = tl.cdiv(window_y, LATTICE.side)
    level = scene.bottom + surface * window_x * window_y
    low_cells = scene.lows + surface * tl.cdiv(window_x, LATTICE.side) * blocks_y
    below = tl.where(inside, x * LATTICE.pitch_y + y, 0)
    ground, tops, _ = grounds_of(scene, row, below, LATTICE)
    place = plane * (LATTICE.xs * LATTICE.ys) + x * LATTICE.ys + y
    # 2. Bars; a program in which no placement needs a check processes no line.
    bar = tl.load(z + place, mask=inside, other=float("inf")) - tolerance
    counts = tl.max(tl.max((bar < float("inf")).to(tl.int32), axis=1), axis=0) > 0
    w = tl.where(counts, tl.load(scene.size + surface * 3), 0)
    # 3. The steepest slopes so far, as fractions; a rise of -1 over a run of 0 means none.
    exact = tl.int64 if WIDE else tl.int32
    centre_x = tl.load(com + plane * 2).to(exact)
    centre_y = tl.load(com + plane * 2 + 1).to(exact)
    inset = _HALF_CELL if CENTRES else 0
    no_run = tl.zeros(bar.shape, exact)
    no_rise = no_run - 1
    left_up, left_up_run, right_up, right_up_run = no_rise, no_run, no_rise, no_run
    left_down, left_down_run, right_down, right_down_run = no_rise, no_run, no_rise, no_run
    over, under = bar < -float("inf"), bar < -float("inf")
    before_low = tl.full(bar.shape, _NONE, tl.int32)
    before_high = tl.full(bar.shape, -_NONE, tl.int32)
    needed = tl.full([], 0, tl.int64)
    # 4. Line by line of corners.
    for u in range(0, w if CENTRES else tl.where(w > 0, w + 1, 0)):
        if (u % LATTICE.side == 0) & (u < w):
            line, cells = u // LATTICE.stride * LATTICE.pitch_y, u // LATTICE.side * blocks_y
            needed = blocks_needed(tops + line, low_cells + cells, bar, h, LATTICE)
        across = tl.where(u < w, h, 0)
        low, high = row_support(ground, level, bar, needed, u, across, window_y, LATTICE)
        # A line between two rows has the corners of both.
        first = low if CENTRES else tl.minimum(low, before_low)
        last = high if CENTRES else tl.maximum(high, before_high)
        before_low, before_high = low, high
        up = last.to(exact) * _SUBCELL - inset - centre_y
        down = centre_y - first.to(exact) * _SUBCELL - inset
        dx = u * _SUBCELL + inset - centre_x
        run = tl.abs(dx)
        left = last > tl.where(dx < 0, 0, _NONE)
        right = last > tl.where(dx > 0, 0, _NONE)
        here = last > tl.where(dx == 0, 0, _NONE)
        left_up, left_up_run = steeper(up, run, left_up, left_up_run, left)
        right_up, right_up_run = steeper(up, run, right_up, right_up_run, right)
        left_down, left_down_run = steeper(down, run, left_down, left_down_run, left)
        right_down, right_down_run = steeper(down, run, right_down, right_down_run, right)
        # For a corner straight above or below the point, only the sign of dy counts.
        over = over | (here & (up >= 0))
        under = under | (here & (down >= 0))
    # 5. Chords above and below the centre.
    over = over | spans(left_up, left_up_run, right_up, right_up_run)
    under = under | spans(left_down, left_down_run, right_down, right_down_run)
    there = (x < LATTICE.xs) & (y < LATTICE.ys)
    tl.store(stable + place, (inside & over & under).to(tl.uint8), mask=there)


def com_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    tolerance: float,
    stride: int,
    centres: bool,
    which: Tensor | None = None,
    size: Tensor | None = None,
    margin: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.com_hull`."""
    scene = scene_of(heightmap, bottom, stride, which, size)
    wide = max(scene.bottom.shape[1:]) > MAX_SIDE
    constants = {"CENTRES": centres, "WIDE": wide, "POINTS": POINTS}

    def holds(point: Tensor, judged: Tensor) -> Tensor:
        stable = z.new_empty(z.shape, dtype=torch.uint8)
        placed = (judged.contiguous(), point.contiguous(), stable, tolerance)
        launch(com_hull_kernel, scene, heightmap, stride, *placed, **constants)
        return stable.view(torch.bool)

    return holds_all(holds, z, com, margin)
