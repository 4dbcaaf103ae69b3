"""Scenes of the Triton kernels: the ground by phase and pooled, and the blocks of lower surfaces.

A scene is made once per call, on the device. The heightmap is split by phase: cell (stride * i + p,
stride * j + q) is element (i, j) of phase (p, q). Phases that neighbouring threads read, and phases
that one thread reads at once, are adjacent in memory, so that a warp loads contiguous memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from packing_env.kernels.backends import INTERPRETING, KernelError
from packing_env.kernels.layout import extents, lattice

OPTIONS = {"num_warps": 1, "enable_fp_fusion": False}
"""Compile options of all kernels: one warp per program; products are rounded before sums."""

GROUND_POINTS = 64
"""Lattice points of a program that splits the ground."""

ROWS = tl.constexpr(4)
"""Placements per thread along x; they share the ground that the thread loads."""

_SIDE = 8
"""Approximate cells along a block's side, which is a whole number of lattice steps."""


class Lattice(NamedTuple):
    """Lattice of a container and its memory layout in the kernels, as compiled-in constants.

    Attributes:
        stride: the lattice step in cells.
        length: cells of the container along x.
        width: cells along y.
        xs: lattice points along x.
        ys: lattice points along y.
        pitch_x: lattice points along x in memory, padded because threads read whole blocks.
        pitch_y: the same along y.
        side: cells along a block's side.
        threads: threads that share a placement; each reads every ``threads``-th line of a block.
        vector: cells along y that a thread loads at once. It and ``threads`` divide the stride.
    """

    stride: int
    length: int
    width: int
    xs: int
    ys: int
    pitch_x: int
    pitch_y: int
    side: int
    threads: int
    vector: int


def lattice_of(stride: int, length: int, width: int) -> Lattice:
    """Return the lattice of a container."""
    # A block is a whole number of lattice steps; up to four threads share its lines.
    lines = max(1, _SIDE // stride)
    xs, ys = -(-length // stride), -(-width // stride)
    pitches = (xs + ROWS.value + lines - 2, ys + lines - 1)
    layout = (stride * lines, math.gcd(stride, 4), math.gcd(stride, 4))
    return Lattice(stride, length, width, xs, ys, *pitches, *layout)


def part(function: Callable[..., Any]) -> Any:
    """Return a function for kernels to call: compiled, or unchanged if kernels are interpreted.

    The interpreter takes a millisecond for each call of a compiled function.
    """
    return function if INTERPRETING else triton.jit(function)


@part
def apart(index, SIZE: tl.constexpr):
    """Permute the numbers below SIZE so that no number is next to its successor.

    Without this, the compiler would give each thread the cells that are adjacent in memory. With
    it, each thread holds all cells for its own placements.
    """
    return index % 2 * (SIZE // 2) + index // 2


@triton.jit
def ground_kernel(
    heightmap, phases, highest, lowest,
    POINTS: tl.constexpr, ACROSS: tl.constexpr, LATTICE: tl.constexpr,
):  # fmt: skip
    """Split the ground by phase, padded with zeros, and pool it over a block per lattice point.

    A program writes a few lattice points of one row.
    """
    # 1. The lattice points that this program handles.
    length, width, stride = LATTICE.length, LATTICE.width, LATTICE.stride
    phase = LATTICE.pitch_x * LATTICE.pitch_y
    tiles = (phase + POINTS - 1) // POINTS
    row = (tl.program_id(0) // tiles).to(tl.int64)
    first = tl.program_id(0) % tiles * POINTS
    heights = heightmap + row * length * width
    point = first + tl.arange(0, POINTS)[None, :, None]
    thread = tl.arange(0, LATTICE.threads)[None, None, :]
    cell = tl.arange(0, LATTICE.vector)[:, None, None]
    # 2. Copy the heights below them, phase by phase.
    for p in range(0, stride, LATTICE.threads):
        for q in range(0, stride, LATTICE.vector):
            x = point // LATTICE.pitch_y * stride + p + thread
            y = point % LATTICE.pitch_y * stride + q + cell
            there = (x < length) & (y < width)
            height = tl.load(heights + x * width + y, mask=there, other=0.0)
            split = phases + (row * stride * stride + p * stride + q * LATTICE.threads) * phase
            element = (point * LATTICE.threads + thread) * LATTICE.vector + cell
            tl.store(split + element, height, mask=point < phase)
    # 3. The highest and the lowest cell of the block that begins at each point.
    point = first + tl.arange(0, POINTS)[None, :]
    v = apart(tl.arange(0, ACROSS), ACROSS)[:, None]
    top = tl.full([1, POINTS], -float("inf"), tl.float32)
    least = tl.full([1, POINTS], float("inf"), tl.float32)
    for u in range(0, LATTICE.side):
        x = point // LATTICE.pitch_y * stride + u
        y = point % LATTICE.pitch_y * stride + v
        there = (v < LATTICE.side) & (x < length) & (y < width)
        height = tl.load(heights + x * width + y, mask=there, other=-float("inf"))
        top = tl.maximum(top, tl.max(height, axis=0, keep_dims=True))
        height = tl.where(there, height, float("inf"))
        least = tl.minimum(least, tl.min(height, axis=0, keep_dims=True))
    least = tl.minimum(least, top)  # -inf where there is no cell
    tl.store(highest + row * phase + point, top, mask=point < phase)
    tl.store(lowest + row * phase + point, least, mask=point < phase)


@part
def listed_blocks(window_x, window_y, LATTICE: tl.constexpr):
    """Return the length of a surface's list: the blocks of its window plus the padding."""
    side = LATTICE.side
    return tl.cdiv(window_x, side) * tl.cdiv(window_y, side) + LATTICE.threads


@triton.jit(do_not_specialize=["window_x", "window_y"])
def blocks_kernel(
    bottom, bound, size, lows, corners, depths, cells, window_x, window_y,
    ACROSS: tl.constexpr, LATTICE: tl.constexpr,
):  # fmt: skip
    """Write the lowest cell of each block, the list of blocks, and the extent of the finite cells.

    A program has one surface. No finite cell lies beyond ``bound``. The list leaves out blocks
    without finite cells; it is padded with blocks that never bind.
    """
    # 1. The surface of this program, and the order in which threads read the cells of a block.
    side: tl.constexpr = LATTICE.side
    lines: tl.constexpr = side // LATTICE.stride
    threads, vector = LATTICE.threads, LATTICE.vector
    surface = tl.program_id(0).to(tl.int64)
    w, h = tl.load(bound + surface * 2).to(tl.int32), tl.load(bound + surface * 2 + 1).to(tl.int32)
    level = bottom + surface * window_x * window_y
    low = lows + surface * tl.cdiv(window_x, side) * tl.cdiv(window_y, side)
    listed = surface * listed_blocks(window_x, window_y, LATTICE)
    u, v = tl.arange(0, ACROSS)[:, None], tl.arange(0, ACROSS)[None, :]
    strip = u % LATTICE.stride // threads * (side // vector) + v // vector
    line = strip * lines + u // LATTICE.stride
    order = (line * threads + u % threads) * vector + v % vector
    # 2. Block by block: its cells, the lowest cell, and the extent of the finite cells.
    across = tl.zeros([ACROSS, ACROSS], tl.int32)
    along = tl.zeros([ACROSS, ACROSS], tl.int32)
    for a in range(0, tl.cdiv(w, side)):
        for c in range(0, tl.cdiv(h, side)):
            x, y = a * side + u, c * side + v
            inside = (u < side) & (v < side)
            there = inside & (x < w) & (y < h)
            height = tl.load(level + x * window_y + y, mask=there, other=float("inf"))
            is_finite = tl.abs(height) < float("inf")
            across = tl.maximum(across, tl.where(is_finite, x + 1, 0))
            along = tl.maximum(along, tl.where(is_finite, y + 1, 0))
            least = tl.min(tl.min(height, axis=1), axis=0)
            tl.store(low + a * tl.cdiv(window_y, side) + c, least)
            tl.store(cells + listed * (side * side) + order, height, mask=inside)
            # A block without finite cells is overwritten by the next one.
            tl.store(corners + listed, (a * LATTICE.pitch_y + c) * lines)
            tl.store(depths + listed, least)
            listed += (least < float("inf")).to(tl.int64)
    # 3. Pad the list with one neutral block per thread, because threads read ahead.
    ends = listed + tl.arange(0, LATTICE.threads)
    tl.store(corners + ends, tl.full([LATTICE.threads], 0, tl.int32))
    tl.store(depths + ends, tl.full([LATTICE.threads], float("inf"), tl.float32))
    tl.store(size + surface * 3, tl.max(tl.max(across, axis=1), axis=0))
    tl.store(size + surface * 3 + 1, tl.max(tl.max(along, axis=1), axis=0))
    count = listed - surface * listed_blocks(window_x, window_y, LATTICE)
    tl.store(size + surface * 3 + 2, count.to(tl.int32))


def compile_ahead(capability: int) -> None:
    """Compile :func:`blocks_kernel` for CUDA devices of a compute capability; needs no device."""
    types = dict.fromkeys(("bottom", "lows", "depths", "cells"), "*fp32")
    types |= {"bound": "*i64", **dict.fromkeys(("size", "corners"), "*i32")}
    constants = block_constants(lattice_of(4, 40, 40))
    signature = {
        name: "constexpr" if name in constants else types.get(name, "i32")
        for name in blocks_kernel.arg_names
    }
    source = ASTSource(blocks_kernel, signature, constexprs=constants)
    triton.compile(source, target=GPUTarget("cuda", capability, 32), options=OPTIONS)


class Scene(NamedTuple):
    """Lower surfaces and grounds, in the form that the kernels read.

    Attributes:
        phases: ``[B, stride / threads, stride / vector, Xq, Yq, threads, vector]`` heights by
            phase, 0 beyond the edges; phase (p, q) is at (p / threads, q / vector, ..., p %
            threads, q % vector).
        highest: ``[B, Xq, Yq]`` highest cell of the ground under a block at each lattice point.
        lowest: ``[B, Xq, Yq]`` lowest cell of this ground.
        bottom: ``[K, U, V]`` lower surfaces.
        which: ``[B, R]`` int64, index of each orientation's surface; negative for padding.
        size: ``[K, 3]`` int32, cells (w, h) up to the last finite ones, and number of blocks
            with finite cells.
        lows: ``[K, blocks, blocks]`` lowest cell of each block.
        corners: ``[K, L]`` int32, list of the blocks with finite cells: their first lattice
            points, as offsets into ``highest``.
        depths: ``[K, L]`` lowest cells of the blocks of the list.
        cells: ``[K, L, side * side]`` their cells, in the order in which threads read them.
    """

    phases: Tensor
    highest: Tensor
    lowest: Tensor
    bottom: Tensor
    which: Tensor
    size: Tensor
    lows: Tensor
    corners: Tensor
    depths: Tensor
    cells: Tensor


def shape_of(
    heightmap: Tensor, bottom: Tensor, stride: int, which: Tensor | None
) -> tuple[int, int, int, int]:
    """Return the shape of a map over placements."""
    orientations = (which if which is not None else bottom).shape[1]
    return (heightmap.shape[0], orientations, *lattice(heightmap, stride))


def scene_of(
    heightmap: Tensor, bottom: Tensor, stride: int, which: Tensor | None, bound: Tensor | None
) -> Scene:
    """Prepare a call; the arguments are as for `packing_env.kernels.drop_height`."""
    batch, orientations, _, _ = shape_of(heightmap, bottom, stride, which)
    # Surfaces given per row become one table, in which each row has its own lines.
    if which is not None:
        which = which.contiguous()
    else:
        planes = torch.arange(batch * orientations, device=heightmap.device)
        which, bottom = planes.view(batch, orientations), bottom.flatten(0, 1)
    bottom = bottom.contiguous()
    bound = bound.contiguous() if bound is not None else extents(bottom)
    scene = new_scene(heightmap, bottom, stride, which)
    fill_scene(scene, heightmap.contiguous(), stride, bound)
    return scene


def new_scene(heightmap: Tensor, bottom: Tensor, stride: int, which: Tensor) -> Scene:
    """Return a scene whose memory is not filled yet; ``bottom`` and ``which`` are contiguous."""
    batch, surfaces = len(heightmap), len(bottom)
    # Sizes depend only on shapes, so a captured graph can keep this memory.
    lattice = lattice_of(stride, *heightmap.shape[1:])
    pitches, layout = (lattice.pitch_x, lattice.pitch_y), (lattice.threads, lattice.vector)
    phases = [stride // number for number in layout]
    blocks = [-(-window // lattice.side) for window in bottom.shape[1:]]
    listed = blocks[0] * blocks[1] + lattice.threads
    return Scene(
        heightmap.new_empty(batch, *phases, *pitches, *layout),
        heightmap.new_empty(batch, *pitches),
        heightmap.new_empty(batch, *pitches),
        bottom,
        which,
        which.new_empty((surfaces, 3), dtype=torch.int32),
        heightmap.new_empty(surfaces, *blocks),
        which.new_empty((surfaces, listed), dtype=torch.int32),
        heightmap.new_empty(surfaces, listed),
        heightmap.new_empty(surfaces, listed, lattice.side**2),
    )


def fill_scene(scene: Scene, heightmap: Tensor, stride: int, bound: Tensor) -> None:
    """Split and pool the ground and the lower surfaces, in two launches.

    ``bound [K, 2]`` int64 are cells beyond which a surface has no finite cell.
    """
    # One program per group of lattice points of the ground, and one per surface.
    lattice = lattice_of(stride, *heightmap.shape[1:])
    constants = block_constants(lattice)
    with torch.cuda.device_of(heightmap):
        programs = len(heightmap) * triton.cdiv(lattice.pitch_x * lattice.pitch_y, GROUND_POINTS)
        ground = (heightmap, *scene[:3])
        start(ground_kernel, programs, ground, {**constants, "POINTS": GROUND_POINTS})
        surfaces = (scene.bottom, bound, *scene[5:], *scene.bottom.shape[1:])
        start(blocks_kernel, len(scene.bottom), surfaces, constants)


def block_constants(lattice: Lattice) -> dict[str, Any]:
    """Return the constants of the kernels that split the ground and the surfaces."""
    return {"LATTICE": lattice, "ACROSS": triton.next_power_of_2(lattice.side)}


_NOT_THE_KERNEL = ("out of memory", "illegal memory access")
"""Words in error messages that are unrelated to whether a kernel can be compiled."""


def start(kernel: Any, programs: int, arguments: Sequence[Any], constants: dict[str, Any]) -> None:
    """Launch a kernel, unless its number of programs is 0.

    Raises:
        KernelError: it cannot be compiled or started.
        RuntimeError: the device is out of memory, or failed before.
    """
    if not programs:
        return
    try:
        kernel[(programs,)](*arguments, **{**OPTIONS, **constants})
    except Exception as error:  # Triton, its compilers and its driver raise many types
        # The first cause is the most specific: Triton wraps the errors of its compilers.
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if any(words in str(cause).lower() for words in _NOT_THE_KERNEL):
            raise
        raise KernelError(
            f"Triton {triton.__version__} cannot compile or start {kernel.__name__} "
            f"({type(cause).__name__}: {' '.join(str(cause).split())})"
        ) from error
