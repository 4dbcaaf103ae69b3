"""Scenes of the Triton kernels: the ground by phase and pooled, and the blocks of lower surfaces.

They are made once a call, on the device. The heightmap is split by phase: cell (stride * i + p,
stride * j + q) is element [p, q, i, j]. Neighbouring placements then read neighbouring words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels.backends import INTERPRETING
from packing_env.kernels.layout import extents, lattice

OPTIONS = {"num_warps": 1, "enable_fp_fusion": False}
"""How every kernel is compiled: a program is one warp, and products are rounded before sums."""

GROUND_POINTS = 64
"""Lattice points of a program that splits the ground."""

_SIDE = 8
"""Cells along a block's side, about; it is a whole number of lattice steps."""


def block_side(stride: int) -> int:
    """Return the cells along a block's side."""
    return stride * max(1, _SIDE // stride)


def part(function: Callable[..., Any]) -> Any:
    """Return a part of kernels as they call it: compiled, or where they are interpreted plain.

    The interpreter takes a millisecond for each call of a compiled function.
    """
    return function if INTERPRETING else triton.jit(function)


@part
def cells_across(ACROSS: tl.constexpr):
    """Return the numbers of a block's cells along y, ``[ACROSS, 1]``, out of their order.

    Were neighbours in memory neighbours here, the compiler would spread them over threads; so each
    thread holds all of them for its own placements, and maxima over them stay within it.
    """
    v = tl.arange(0, ACROSS)[:, None]
    return v % 2 * (ACROSS // 2) + v // 2


@triton.jit(do_not_specialize=["length", "width", "xs", "ys", "pitch_x", "pitch_y"])
def ground_kernel(
    heightmap,
    phases,
    highest,
    lowest,
    length,
    width,
    xs,
    ys,
    pitch_x,
    pitch_y,
    STRIDE: tl.constexpr,
    SIDE: tl.constexpr,
    ACROSS: tl.constexpr,
    POINTS: tl.constexpr,
):
    """Split the ground by phase, zeros beyond its edges, and pool it under a block at each point.

    A program writes a few lattice points of one row.
    """
    phase = pitch_x * pitch_y
    tiles = tl.cdiv(phase, POINTS)
    row = (tl.program_id(0) // tiles).to(tl.int64)
    point = tl.program_id(0) % tiles * POINTS + tl.arange(0, POINTS)[None, :]
    i, j = point // pitch_y, point % pitch_y
    heights = heightmap + row * length * width
    for p in range(0, STRIDE):
        for q in range(0, STRIDE):
            x, y = i * STRIDE + p, j * STRIDE + q
            there = (x < length) & (y < width)
            height = tl.load(heights + x * width + y, mask=there, other=0.0)
            split = phases + ((row * STRIDE + p) * STRIDE + q) * phase
            tl.store(split + point, height, mask=point < phase)
    v = cells_across(ACROSS)
    top = tl.full([1, POINTS], -float("inf"), tl.float32)
    least = tl.full([1, POINTS], float("inf"), tl.float32)
    for u in range(0, SIDE):
        x, y = i * STRIDE + u, j * STRIDE + v
        there = (v < SIDE) & (x < length) & (y < width)
        height = tl.load(heights + x * width + y, mask=there, other=-float("inf"))
        top = tl.maximum(top, tl.max(height, axis=0, keep_dims=True))
        height = tl.where(there, height, float("inf"))
        least = tl.minimum(least, tl.min(height, axis=0, keep_dims=True))
    place = row * xs * ys + i * ys + j
    tl.store(highest + place, top, mask=(i < xs) & (j < ys))
    tl.store(lowest + place, least, mask=(i < xs) & (j < ys))


@triton.jit(do_not_specialize=["window_x", "window_y"])
def blocks_kernel(
    bottom,
    which,
    bound,
    size,
    lows,
    window_x,
    window_y,
    STRIDE: tl.constexpr,
    SIDE: tl.constexpr,
    ACROSS: tl.constexpr,
):
    """Write the lowest cell of each block, and the size that the finite cells take; one surface.

    No finite cell lies beyond the bound; a negative index has size 0.
    """
    plane = tl.program_id(0).to(tl.int64)
    surface = tl.load(which + plane)
    chosen = tl.maximum(surface, 0)
    w = tl.where(surface >= 0, tl.load(bound + chosen * 2), 0).to(tl.int32)
    h = tl.where(surface >= 0, tl.load(bound + chosen * 2 + 1), 0).to(tl.int32)
    level = bottom + chosen * window_x * window_y
    low = lows + plane * tl.cdiv(window_x, SIDE) * tl.cdiv(window_y, SIDE)
    u, v = tl.arange(0, ACROSS)[:, None], tl.arange(0, ACROSS)[None, :]
    across = tl.zeros([ACROSS, ACROSS], tl.int32)
    along = tl.zeros([ACROSS, ACROSS], tl.int32)
    for a in range(0, tl.cdiv(w, SIDE)):
        for c in range(0, tl.cdiv(h, SIDE)):
            x, y = a * SIDE + u, c * SIDE + v
            there = (u < SIDE) & (v < SIDE) & (x < w) & (y < h)
            cells = tl.load(level + x * window_y + y, mask=there, other=float("inf"))
            is_finite = tl.abs(cells) < float("inf")
            across = tl.maximum(across, tl.where(is_finite, x + 1, 0))
            along = tl.maximum(along, tl.where(is_finite, y + 1, 0))
            tl.store(low + a * tl.cdiv(window_y, SIDE) + c, tl.min(tl.min(cells, axis=1), axis=0))
    tl.store(size + plane * 2, tl.max(tl.max(across, axis=1), axis=0))
    tl.store(size + plane * 2 + 1, tl.max(tl.max(along, axis=1), axis=0))


class Scene(NamedTuple):
    """Lower surfaces over grounds, as the kernels read them.

    Attributes:
        phases: ``[B, stride, stride, Xq, Yq]`` heights by phase, 0 beyond the edges.
        highest: ``[B, Xs, Ys]`` ground under a block at each lattice point, highest cell.
        lowest: ``[B, Xs, Ys]`` the same, lowest cell.
        bottom: ``[K, U, V]`` lower surfaces.
        which: ``[B, R]`` int64, index of each orientation's surface; negative for none.
        size: ``[B, R, 2]`` int32, cells (w, h) up to the last finite ones.
        lows: ``[B, R, blocks, blocks]`` lowest cell of each block.
    """

    phases: Tensor
    highest: Tensor
    lowest: Tensor
    bottom: Tensor
    which: Tensor
    size: Tensor
    lows: Tensor


def shape_of(
    heightmap: Tensor, bottom: Tensor, stride: int, which: Tensor | None
) -> tuple[int, int, int, int]:
    """Return the shape of a map over placements."""
    orientations = (which if which is not None else bottom).shape[1]
    return (heightmap.shape[0], orientations, *lattice(heightmap, stride))


def scene_of(
    heightmap: Tensor, bottom: Tensor, stride: int, which: Tensor | None, bound: Tensor | None
) -> Scene:
    """Prepare a call; arguments as those of `packing_env.kernels.drop_height`."""
    batch, orientations, _, _ = shape_of(heightmap, bottom, stride, which)
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
    batch, orientations, xs, ys = shape_of(heightmap, bottom, stride, which)
    side, across = block_side(stride), triton.next_power_of_2(block_side(stride))
    blocks = (-(-window // side) for window in bottom.shape[1:])
    pitches = (xs + across // stride, ys + across // stride + 1)
    return Scene(
        heightmap.new_empty(batch, stride, stride, *pitches),
        heightmap.new_empty(batch, xs, ys),
        heightmap.new_empty(batch, xs, ys),
        bottom,
        which,
        which.new_empty((batch, orientations, 2), dtype=torch.int32),
        heightmap.new_empty(batch, orientations, *blocks),
    )


def fill_scene(scene: Scene, heightmap: Tensor, stride: int, bound: Tensor) -> None:
    """Split and pool the ground and the lower surfaces, in two launches.

    ``bound [K, 2]`` int64: no finite cell of a surface lies beyond it.
    """
    side, across = block_side(stride), triton.next_power_of_2(block_side(stride))
    batch, orientations = scene.which.shape
    (xs, ys), pitches = scene.highest.shape[1:], scene.phases.shape[3:]
    constants = {"STRIDE": stride, "SIDE": side, "ACROSS": across}
    with torch.cuda.device_of(heightmap):
        programs = batch * triton.cdiv(pitches[0] * pitches[1], GROUND_POINTS)
        sizes = (*heightmap.shape[1:], xs, ys, *pitches)
        start(
            ground_kernel, programs, (heightmap, *scene[:3], *sizes),
            {**constants, "POINTS": GROUND_POINTS},
        )  # fmt: skip
        window = scene.bottom.shape[1:]
        surfaces = (scene.bottom, scene.which, bound, scene.size, scene.lows, *window)
        start(blocks_kernel, batch * orientations, surfaces, constants)


def start(kernel: Any, programs: int, arguments: Sequence[Any], constants: dict[str, Any]) -> None:
    """Start programs of a kernel, if there are any."""
    if programs:
        kernel[(programs,)](*arguments, **{**OPTIONS, **constants})
