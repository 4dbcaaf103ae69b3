"""Foundations of the Triton kernels: tiles of placements, gaps to the ground under them, launches.

A program holds one orientation of one row and a tile of placements, one warp of threads. It reads
the item's lower surface in the catalogue, by index, and no further than its last finite cells. The
window is cut into blocks. Under a placement, no gap in a block exceeds fl(highest ground - lowest
cell of the block), and one reaches fl(lowest ground - lowest cell): float32 subtraction is
monotone. Blocks that can bind or support at no placement of the tile are left out, which changes no
bit.

Nothing is read back and nothing is allocated by the data, so that a call can be captured in a CUDA
graph (after a first one, which compiles).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels.compiled.scene_triton import (
    Scene,
    block_side,
    cells_across,
    part,
    start,
)

SIZES = ["orientations", "length", "width", "window_x", "window_y"]
"""Arguments of every kernel that are not compiled in; pitches of the ground are, so that offsets
are constants of the innermost loop: a size of container compiles once, in a third of a second.
"""

POINTS = 64
"""Placements of a program: two for each thread."""

_TILE_Y = 16
"""Placements of a program along y, at most."""


@part
def tile_of(
    size,
    orientations,
    length,
    width,
    STRIDE: tl.constexpr,
    TILE_X: tl.constexpr,
    TILE_Y: tl.constexpr,
):
    """Return the placements of this program: (row, plane, w, h, x, y, inside, there).

    The window (w, h) is (0, 0) where no placement of the tile keeps the item in the container;
    ``inside`` marks those that do, ``there`` those on the lattice, ``[1, POINTS]``. What counts
    over the batch is int64: batches of maps exceed int32 offsets.
    """
    xs, ys = tl.cdiv(length, STRIDE), tl.cdiv(width, STRIDE)
    along = tl.cdiv(ys, TILE_Y)
    tiles = tl.cdiv(xs, TILE_X) * along
    plane, tile = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles
    w, h = tl.load(size + plane * 2), tl.load(size + plane * 2 + 1)
    fits = (w > 0) & (w <= length) & (h <= width)
    nx = tl.where(fits, (length - w) // STRIDE + 1, 0)
    ny = tl.where(fits, (width - h) // STRIDE + 1, 0)
    first_x, first_y = tile // along * TILE_X, tile % along * TILE_Y
    point = tl.arange(0, TILE_X * TILE_Y)[None, :]
    x, y = first_x + point // TILE_Y, first_y + point % TILE_Y
    walked = (first_x < nx) & (first_y < ny)
    w, h = tl.where(walked, w, 0), tl.where(walked, h, 0)
    return plane // orientations, plane, w, h, x, y, (x < nx) & (y < ny), (x < xs) & (y < ys)


@part
def gaps_of_line(
    ground,
    level,
    u,
    first_v,
    window_y,
    STRIDE: tl.constexpr,
    SIDE: tl.constexpr,
    ACROSS: tl.constexpr,
    PITCH_X: tl.constexpr,
    PITCH_Y: tl.constexpr,
    RAGGED: tl.constexpr,
):
    """Return the gaps to the cells (u, first_v ...) of a block, ``[ACROSS, POINTS]``; -inf beyond.

    ``ground`` points to each placement in the first phase, ``level`` to the lower surface. RAGGED
    if a window is not of whole blocks; what a surface holds beyond its finite cells is +inf.
    """
    phase: tl.constexpr = PITCH_X * PITCH_Y
    v = cells_across(ACROSS)
    line = u % STRIDE * (STRIDE * phase) + u // STRIDE * PITCH_Y + first_v // STRIDE
    heights = tl.load(ground + line + (v % STRIDE * phase + v // STRIDE))
    edge = level + (u * window_y + first_v)
    if RAGGED:
        there = (v < SIDE) & (first_v + v < window_y)
        cells = tl.load(edge + v, mask=there, other=float("inf"))
    else:
        cells = tl.load(edge + v)
    return heights - cells


@part
def _closed(rest, inside, peak, plane, lid):
    """Return rest heights, +inf where not inside, or with ``peak`` above the lid."""
    if peak is not None:
        rest = tl.where(inside, rest, 0.0)
        inside = inside & (rest + tl.load(peak + plane) <= lid)
    return tl.where(inside, rest, float("inf"))


@triton.jit(do_not_specialize=SIZES)
def gaps_kernel(
    phases, highest, lowest, bottom, which, size, lows, z, count, peak, contact_tol, lid,
    orientations, length, width, window_x, window_y,
    COUNT: tl.constexpr, STRIDE: tl.constexpr, SIDE: tl.constexpr, ACROSS: tl.constexpr,
    PITCH_X: tl.constexpr, PITCH_Y: tl.constexpr, RAGGED: tl.constexpr,
    TILE_X: tl.constexpr, TILE_Y: tl.constexpr,
):  # fmt: skip
    """Write the highest gap into z, or with COUNT the number of those that support into the count.

    A gap is that between the ground and a cell of the item; it supports from z - contact_tol on.
    Where the item does not stay in the container, z is +inf and the count 0; where ``peak`` are the
    items' highest points, z is +inf above the lid, too.
    """
    row, plane, w, h, x, y, inside, there = tile_of(
        size, orientations, length, width, STRIDE, TILE_X, TILE_Y
    )
    xs, ys = tl.cdiv(length, STRIDE), tl.cdiv(width, STRIDE)
    blocks_y = tl.cdiv(window_y, SIDE)
    level = bottom + tl.maximum(tl.load(which + plane), 0) * window_x * window_y
    low = lows + plane * tl.cdiv(window_x, SIDE) * blocks_y
    first = phases + row * (STRIDE * STRIDE * PITCH_X * PITCH_Y)
    ground = first + tl.where(inside, x * PITCH_Y + y, 0)
    below = tl.where(inside, x * ys + y, 0)
    tops, floors = highest + row * xs * ys + below, lowest + row * xs * ys + below
    place = plane * xs * ys + x * ys + y
    points: tl.constexpr = TILE_X * TILE_Y
    if COUNT:
        bar = tl.load(z + place, mask=inside, other=float("inf")) - contact_tol
        found = tl.zeros([1, points], tl.int32)
    else:
        bar = tl.full([1, points], -float("inf"), tl.float32)
        for a in range(0, tl.cdiv(w, SIDE)):
            for c in range(0, tl.cdiv(h, SIDE)):
                least = tl.load(floors + (a * ys + c) * (SIDE // STRIDE))
                bar = tl.maximum(bar, least - tl.load(low + a * blocks_y + c))
        found = bar
    for a in range(0, tl.cdiv(w, SIDE)):
        for c in range(0, tl.cdiv(h, SIDE)):
            top = tl.load(tops + (a * ys + c) * (SIDE // STRIDE))
            reach = top - tl.load(low + a * blocks_y + c)
            binds = inside & (reach >= bar) if COUNT else inside & (reach > found)
            if tl.max(tl.max(binds.to(tl.int32), axis=1), axis=0) > 0:
                for u in range(a * SIDE, tl.minimum(a * SIDE + SIDE, w)):
                    gaps = gaps_of_line(
                        ground, level, u, c * SIDE, window_y,
                        STRIDE, SIDE, ACROSS, PITCH_X, PITCH_Y, RAGGED,
                    )  # fmt: skip
                    if COUNT:
                        held = (gaps >= bar).to(tl.int32)
                        found += tl.sum(held, axis=0, keep_dims=True)
                    else:
                        found = tl.maximum(found, tl.max(gaps, axis=0, keep_dims=True))
    if COUNT:
        tl.store(count + place, tl.where(inside, found, 0), mask=there)
    else:
        tl.store(z + place, _closed(found, inside, peak, plane, lid), mask=there)


def constants_of(
    stride: int, ys: int, pitches: Sequence[int], window: Sequence[int]
) -> dict[str, int]:
    """Return what is compiled in for a lattice, the pitches of its ground and a window."""
    side = block_side(stride)
    across = triton.next_power_of_2(side)
    tile_y = min(_TILE_Y, triton.next_power_of_2(ys))
    return {
        "STRIDE": stride,
        "SIDE": side,
        "ACROSS": across,
        "PITCH_X": pitches[0],
        "PITCH_Y": pitches[1],
        "RAGGED": side < across or window[1] % side > 0,
        "TILE_X": POINTS // tile_y,
        "TILE_Y": tile_y,
    }


def launch(
    kernel: Any, scene: Scene, heightmap: Tensor, stride: int, *others: Any, **constants: Any
) -> None:
    """Start a kernel of (scene, others, sizes) for all placements.

    Args:
        kernel: of the arguments above, `SIZES`, and the constants of :func:`constants_of`.
        scene: from :func:`scene_of`.
        heightmap: float32 [B, X, Y].
        stride: lattice step in cells.
        others: further arguments, contiguous if they are tensors.
        constants: further arguments that are compiled in.
    """
    batch, orientations = scene.which.shape
    xs, ys = scene.highest.shape[1:]
    constants |= constants_of(stride, ys, scene.phases.shape[3:], scene.bottom.shape[1:])
    tiles = triton.cdiv(xs, constants["TILE_X"]) * triton.cdiv(ys, constants["TILE_Y"])
    programs = batch * orientations * tiles
    sizes = (orientations, *heightmap.shape[1:], *scene.bottom.shape[1:])
    with torch.cuda.device_of(heightmap):
        start(kernel, programs, (*scene, *others, *sizes), constants)
