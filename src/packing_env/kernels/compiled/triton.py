"""Foundations of the Triton kernels: tiles of placements, their gaps to the ground, launches.

A program is one warp of threads; it handles a tile of placements of one orientation in one row. The
window is cut into blocks. For a placement, no gap in a block exceeds fl(highest ground - lowest
cell of the block), and at least one gap reaches fl(lowest ground - lowest cell). Both hold because
float32 subtraction is monotone. Blocks that can neither bind nor support at any placement of the
tile are skipped, which changes no bit.

A thread has a few neighbouring placements along x, and loads the ground under a block once for all
of them. Up to four threads share their placements; their number divides the lattice step. Each of
these threads reads its own lines of a block; when blocks are tested, each tests its own block.

Nothing is read back to the host, and no memory size depends on the data. So a call can be captured
in a CUDA graph, after a first call that compiles.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels.compiled.scene_triton import (
    ROWS,
    Lattice,
    Scene,
    lattice_of,
    listed_blocks,
    part,
    start,
)

SIZES = ["orientations", "window_x", "window_y"]
"""Arguments of every kernel that are not compiled in. The container's sizes are compiled in, so
that offsets are constants in the innermost loop; a new size compiles once, in a second.
"""

LANES = 32
"""Threads of a program."""

_TILE_Y = 16
"""Largest number of placements along y in a program."""

_UNROLLED = tl.constexpr(8)
"""Largest number of strips that are unrolled; blocks with more strips use a loop."""


@part
def tile_of(scene, orientations, POINTS: tl.constexpr, TILE_Y: tl.constexpr, LATTICE: tl.constexpr):
    """Return the tile of this program: (row, plane, surface, first_x, first_y, nx, ny).

    The tile begins at placement (first_x, first_y). ``(nx, ny)`` placements keep the item in the
    container, (0, 0) if none does. Numbers that run over the batch are int64, because offsets into
    a batch of maps exceed int32.
    """
    # 1. Split the program's number into row, orientation and tile, in this order.
    along = (LATTICE.ys + TILE_Y - 1) // TILE_Y
    tiles = (LATTICE.xs * TILE_Y + POINTS - 1) // POINTS * along
    plane, tile = tl.program_id(0) // tiles, tl.program_id(0) % tiles
    row, plane = (plane // orientations).to(tl.int64), plane.to(tl.int64)
    # 2. Its surface, and the placements that keep the item inside the container.
    index = tl.load(scene.which + plane)
    surface = tl.maximum(index, 0)
    w, h = tl.load(scene.size + surface * 3), tl.load(scene.size + surface * 3 + 1)
    fits = (index >= 0) & (w > 0) & (w <= LATTICE.length) & (h <= LATTICE.width)
    nx = tl.where(fits, (LATTICE.length - w) // LATTICE.stride + 1, 0)
    ny = tl.where(fits, (LATTICE.width - h) // LATTICE.stride + 1, 0)
    first = (tile // along * (POINTS // TILE_Y), tile % along * TILE_Y)
    return row, plane, surface, first[0], first[1], nx, ny


@part
def grounds_of(scene, row, below, LATTICE: tl.constexpr):
    """Return pointers to the ground under placements: first phase, highest and lowest cells."""
    # A phase has one element per lattice point; threads that share a placement read adjacent
    # elements.
    phase = LATTICE.pitch_x * LATTICE.pitch_y
    ground = scene.phases + row * (LATTICE.stride * LATTICE.stride * phase)
    ground += below * (LATTICE.threads * LATTICE.vector)
    return ground, scene.highest + row * phase + below, scene.lowest + row * phase + below


@part
def changed(values, index: tl.constexpr, value):
    """Return a tuple with one value changed, or added at its end."""
    return values[:index] + (value,) + values[index + 1 :]  # noqa: RUF005 (not known to Triton)


@part
def strip_of(parts, bar, ground, cells, strip, LATTICE: tl.constexpr, COUNT: tl.constexpr):
    """Return ``parts`` (largest gaps, or counts, per placement), updated with a strip.

    A strip is every stride-th line of a block, one vector wide. The lines under a thread's
    placements overlap, and each is loaded once. ``ground`` points to the block under the first
    placement.
    """
    # 1. Pointers to the strip's cells and to the ground below them.
    lines: tl.constexpr = LATTICE.side // LATTICE.stride
    chunk: tl.constexpr = LATTICE.threads * LATTICE.vector
    vectors: tl.constexpr = LATTICE.side // LATTICE.vector
    phases: tl.constexpr = LATTICE.stride // LATTICE.vector
    p, c = strip // vectors, strip % vectors
    place = (p * phases + c % phases) * (LATTICE.pitch_x * LATTICE.pitch_y) + c // phases
    # 2. Load the strip's cells into registers, for all placements of the thread.
    surface = ()
    for line in tl.static_range(lines):
        edge = tl.load(cells + (strip * lines + line) * chunk)
        surface = changed(surface, line, edge)
    # 3. Use each line of the ground for all placements above it.
    for at in tl.static_range(ROWS + lines - 1):
        heights = tl.load(ground + (place + at * LATTICE.pitch_y) * chunk)
        for line in tl.static_range(lines):
            if at >= line and at - line < ROWS:
                gap = heights - surface[line]
                if COUNT:
                    gap = tl.where(gap >= bar[at - line], 1.0, 0.0)
                if len(parts) > at - line:
                    before = parts[at - line]
                    gap = before + gap if COUNT else tl.maximum(before, gap)
                parts = changed(parts, at - line, gap)
    return parts


@part
def block_of(bar, ground, cells, LATTICE: tl.constexpr, COUNT: tl.constexpr):
    """Return the largest gaps, or the counts, in a block for each placement of a thread."""
    # The first strip initialises the maxima or sums; the other strips update them.
    strips: tl.constexpr = LATTICE.side * LATTICE.stride // (LATTICE.threads * LATTICE.vector)
    parts = strip_of((), bar, ground, cells, 0, LATTICE, COUNT)
    if strips > _UNROLLED:
        for strip in range(1, strips):
            parts = strip_of(parts, bar, ground, cells, strip, LATTICE, COUNT)
    else:
        for strip in tl.static_range(1, strips):
            parts = strip_of(parts, bar, ground, cells, strip, LATTICE, COUNT)
    return parts


@part
def joined(bar, counts, parts, COUNT: tl.constexpr):
    """Return the rest heights or counts so far, updated with a block."""
    # Reduce the vector of each thread. Among threads that share a placement, combine rest heights
    # here; counts are combined at the end.
    for i in tl.static_range(ROWS):
        if COUNT:
            held = tl.sum(parts[i], axis=0, keep_dims=True).to(tl.int32)
            counts = changed(counts, i, counts[i] + held)
        else:
            gap = tl.max(tl.max(parts[i], axis=0, keep_dims=True), axis=2, keep_dims=True)
            bar = changed(bar, i, tl.maximum(bar[i], gap))
    return bar, counts


@part
def floors_of(bar, floors, blocks, thread, LATTICE: tl.constexpr):
    """Return, for each placement, the maximum of lowest ground - lowest cell over the blocks.

    ``blocks`` are (corners, lowest cells, number); each thread handles every ``threads``-th block.
    """
    # A block has a gap of at least lowest ground - lowest cell: a lower bound of rest heights.
    corners, depths, count = blocks
    for first in range(0, count, LATTICE.threads):
        least = floors + tl.load(corners + first + thread)
        depth = tl.load(depths + first + thread)
        for i in tl.static_range(ROWS):
            gap = tl.load(least + i * LATTICE.pitch_y) - depth
            bar = changed(bar, i, tl.maximum(bar[i], gap))
    return bar


@part
def binding(bar, tops, blocks, first, thread, LATTICE: tl.constexpr, COUNT: tl.constexpr):
    """Return 8 bits per block: how many threads found that the block can bind or support.

    The blocks are the next ones: one for each thread that shares a placement.
    """
    # 1. The largest gap that the block can have, at each placement of the thread.
    bits: tl.constexpr = 8
    corners, depths, _ = blocks
    top = tops + tl.load(corners + first + thread)
    depth = tl.load(depths + first + thread)
    binds = thread < 0
    for i in tl.static_range(ROWS):
        reach = tl.load(top + i * LATTICE.pitch_y) - depth
        binds = binds | (reach >= bar[i] if COUNT else reach > bar[i])
    # 2. Threads that share a placement have tested different blocks: each has its own 8 bits.
    marks = tl.where(binds, 1 << thread * bits, 0)
    return tl.sum(tl.reshape(marks, [marks.numel]), axis=0)


@part
def first_marked(marks, LATTICE: tl.constexpr):
    """Return the index of the first block that :func:`binding` marks, and the remaining marks."""
    # The bits below the bits of the k-th block are 0 if no earlier block is marked.
    bits: tl.constexpr = 8
    threads: tl.constexpr = LATTICE.threads
    number = 0
    for k in tl.static_range(1, threads):
        number += ((marks & ((1 << k * bits) - 1)) == 0).to(tl.int32)
    return number, marks & ~(((1 << bits) - 1) << number * bits)


@part
def _closed(rest, inside, peak, plane, lid):
    """Return rest heights; +inf if not ``inside``, or if ``peak`` would be above the lid."""
    # The item's highest point may be above the lid.
    if peak is not None:
        rest = tl.where(inside, rest, 0.0)
        inside = inside & (rest + tl.load(peak + plane) <= lid)
    return tl.where(inside, rest, float("inf"))


@triton.jit(do_not_specialize=SIZES)
def gaps_kernel(
    scene, z, count, peak, tolerance, lid, orientations, window_x, window_y,
    COUNT: tl.constexpr, POINTS: tl.constexpr, TILE_Y: tl.constexpr, LATTICE: tl.constexpr,
):  # fmt: skip
    """Write the largest gap to z; with COUNT write the number of supporting cells to the count.

    A gap is ground minus a cell of the item's lower surface. A cell supports if its gap is at least
    z - tolerance. If the item leaves the container, z is +inf and the count 0. If ``peak`` (the
    items' highest points) is given, z is also +inf above the lid.
    """
    # 1. This program's placements, the cells below them, and the blocks of its surface.
    row, plane, surface, first_x, first_y, nx, ny = tile_of(
        scene, orientations, POINTS, TILE_Y, LATTICE
    )
    columns: tl.constexpr = POINTS // ROWS
    column = tl.arange(0, columns)[None, :, None]
    thread = tl.broadcast_to(
        tl.arange(0, LATTICE.threads)[None, None, :], [1, columns, LATTICE.threads]
    )
    within = thread * LATTICE.vector + tl.arange(0, LATTICE.vector)[:, None, None]
    x, y = first_x + column // TILE_Y * ROWS, first_y + column % TILE_Y
    below = tl.minimum(x, nx - 1) * LATTICE.pitch_y + tl.minimum(y, ny - 1)
    ground, tops, floors = grounds_of(scene, row, below, LATTICE)
    ground += within
    listed = surface * listed_blocks(window_x, window_y, LATTICE)
    cells = scene.cells + listed * (LATTICE.side * LATTICE.side) + within
    walked = (first_x < nx) & (first_y < ny)
    number = tl.where(walked, tl.load(scene.size + surface * 3 + 2), 0)
    blocks = (scene.corners + listed, scene.depths + listed, number)
    place = plane * (LATTICE.xs * LATTICE.ys) + x * LATTICE.ys + y + thread * 0
    # 2. The initial value: with COUNT, the bar that supporting cells must reach; otherwise -inf.
    bar, counts = (), ()
    for i in tl.static_range(ROWS):
        if COUNT:
            inside = (x + i < nx) & (y < ny)
            rest = tl.load(z + place + i * LATTICE.ys, mask=inside, other=float("inf"))
            bar = changed(bar, i, tl.max(rest, axis=2, keep_dims=True) - tolerance)
        else:
            none = tl.full([1, columns, LATTICE.threads], -float("inf"), tl.float32)
            bar = changed(bar, i, none)
        counts = changed(counts, i, tl.full([1, columns, LATTICE.threads], 0, tl.int32))
    # 3. Start from a lower bound of each rest height: then fewer blocks can bind.
    if not COUNT:
        bar = floors_of(bar, floors, blocks, thread, LATTICE)
        for i in tl.static_range(ROWS):
            rest = tl.max(bar[i], axis=2, keep_dims=True)
            bar = changed(bar, i, tl.where((x + i < nx) & (y < ny), rest, float("inf")))
    # 4. Evaluate, cell by cell, the blocks that can bind or support at any placement.
    for first in range(0, number, LATTICE.threads):
        marks = binding(bar, tops, blocks, first, thread, LATTICE, COUNT)
        while marks != 0:
            ahead, marks = first_marked(marks, LATTICE)
            block = first + ahead
            corner = tl.load(blocks[0] + block).to(tl.int64)
            under = ground + corner * (LATTICE.threads * LATTICE.vector)
            below_it = cells + block * (LATTICE.side * LATTICE.side)
            parts = block_of(bar, under, below_it, LATTICE, COUNT)
            bar, counts = joined(bar, counts, parts, COUNT)
    # 5. Write the results of each placement.
    for i in tl.static_range(ROWS):
        inside, there = (x + i < nx) & (y < ny), (x + i < LATTICE.xs) & (y < LATTICE.ys)
        if COUNT:
            total = tl.sum(counts[i], axis=2, keep_dims=True)
            tl.store(count + place + i * LATTICE.ys, tl.where(inside, total, 0), mask=there)
        else:
            rest = _closed(bar[i], inside, peak, plane, lid)
            tl.store(z + place + i * LATTICE.ys, rest, mask=there)


def constants_of(lattice: Lattice) -> dict[str, Any]:
    """Return the constants that are compiled in for a lattice."""
    columns = LANES // lattice.threads
    return {
        "LATTICE": lattice,
        "POINTS": columns * ROWS.value,
        "TILE_Y": min(_TILE_Y, columns, triton.next_power_of_2(lattice.ys)),
    }


def launch(
    kernel: Any, scene: Scene, heightmap: Tensor, stride: int, *others: Any, **constants: Any
) -> None:
    """Launch a kernel with arguments (scene, others, sizes) for all placements.

    Args:
        kernel: takes these arguments, `SIZES`, and the constants of :func:`constants_of`.
        scene: from :func:`scene_of`.
        heightmap: float32 [B, X, Y].
        stride: lattice step in cells.
        others: further arguments, contiguous if they are tensors.
        constants: further arguments that are compiled in.
    """
    batch, orientations = scene.which.shape
    # One program for each tile of placements of each orientation.
    lattice = lattice_of(stride, *heightmap.shape[1:])
    constants = constants_of(lattice) | constants
    tile = (constants["POINTS"] // constants["TILE_Y"], constants["TILE_Y"])
    tiles = triton.cdiv(lattice.xs, tile[0]) * triton.cdiv(lattice.ys, tile[1])
    sizes = (orientations, *scene.bottom.shape[1:])
    with torch.cuda.device_of(heightmap):
        start(kernel, batch * orientations * tiles, (scene, *others, *sizes), constants)
