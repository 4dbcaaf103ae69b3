"""Foundations of the Triton kernels: the placements of a program, and the launch of programs.

A program holds `GROUP` orientations of one row and `POINTS` placements. It walks over the window
that its orientations need, and reads the ground under a placement once for all of them. How far
they reach is found on the device: nothing is read back, and nothing is allocated by the data, so
that a call can be captured in a CUDA graph (after a first one, which compiles).

Heightmap and orientations are split by phase: cell (stride * i + p, stride * j + q) is element
[p, q, i, j] of the one and [stride * i + p, q, j] of the other. Neighbouring placements then read
neighbouring words, and so do steps along a window row.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional

from packing_env.kernels.layout import lattice_shape

SIZES = ["orientations", "length", "width", "window_x", "steps", "pitch_x", "pitch_y"]
"""Arguments of every kernel that are not compiled in: one compilation serves all containers."""

UNROLLED: tl.constexpr = tl.constexpr(2)
"""Window cells per pass of the innermost loop; windows are padded to whole passes."""

_WARPS = 2
_MIN_POINTS, _MAX_POINTS = 64, 256
"""One and four placements per thread.

With four, two in three instructions of the innermost loop compiled for sm_90 are subtractions and
maxima. That is counted, not timed: no device has run it yet.
"""

_CELLS: tl.constexpr = tl.constexpr(256)
"""Window cells that are looked at together for the extent of the orientations."""


@triton.jit
def plane_of(
    orientations, length, width, STRIDE: tl.constexpr, GROUP: tl.constexpr, POINTS: tl.constexpr
):
    """Return (row, group, first orientation, tile) of this program, counted over the batch.

    All but the tile are int64, because batches of maps exceed int32 offsets.
    """
    tiles = tl.cdiv(tl.cdiv(length, STRIDE) * tl.cdiv(width, STRIDE), POINTS)
    groups = tl.cdiv(orientations, GROUP)
    group = (tl.program_id(0) // tiles).to(tl.int64)
    row = group // groups
    first = row * orientations + group % groups * GROUP
    return row, group, first, tl.program_id(0) % tiles


@triton.jit
def extents(levels, window_x, steps, STRIDE: tl.constexpr, GROUP: tl.constexpr):
    """Return (w, h) of each orientation, which its finite cells lie in; (0, 0) without any."""
    w = tl.zeros([GROUP, _CELLS], tl.int32)
    h = tl.zeros([GROUP, _CELLS], tl.int32)
    cells = window_x * STRIDE * steps
    for first in range(0, cells, _CELLS):
        cell = first + tl.arange(0, _CELLS)[None, :]
        place = cell * GROUP + tl.arange(0, GROUP)[:, None]
        level = tl.load(levels + place, mask=cell < cells, other=float("inf"))
        is_finite = tl.abs(level) < float("inf")
        line = cell // steps
        w = tl.maximum(w, tl.where(is_finite, line // STRIDE + 1, 0))
        h = tl.maximum(h, tl.where(is_finite, cell % steps * STRIDE + line % STRIDE + 1, 0))
    return tl.max(w, axis=1), tl.max(h, axis=1)


@triton.jit
def placements(
    levels,
    tile,
    length,
    width,
    window_x,
    steps,
    pitch_y,
    STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    POINTS: tl.constexpr,
):
    """Find the placements of a tile, among those that keep an orientation in the container.

    Returns (w, h, ground, inside, index): the window to walk, (0, 0) where no placement is left;
    where the ground under each placement begins in a phase ``[1, POINTS]``; whether an orientation
    fits there, and its index in the maps of the group ``[GROUP, POINTS]``.
    """
    w, h = extents(levels, window_x, steps, STRIDE, GROUP)
    fits = (w > 0) & (w <= length) & (h <= width)
    nx = tl.where(fits, (length - w) // STRIDE + 1, 0)
    ny = tl.where(fits, (width - h) // STRIDE + 1, 0)
    rows, columns = tl.max(nx, axis=0), tl.maximum(tl.max(ny, axis=0), 1)
    point = tile * POINTS + tl.arange(0, POINTS)[None, :]
    x, y = point // columns, point % columns
    ground = tl.where(x < rows, x * pitch_y + y, 0)
    inside = (x < nx[:, None]) & (y < ny[:, None])
    xs, ys = tl.cdiv(length, STRIDE), tl.cdiv(width, STRIDE)
    index = (tl.arange(0, GROUP)[:, None] * xs + x) * ys + y
    walked = fits & (tile * POINTS < rows * columns)
    window_w = tl.max(tl.where(walked, w, 0), axis=0)
    window_h = tl.max(tl.where(walked, h, 0), axis=0)
    return window_w, window_h, ground, inside, index


def launch(
    kernel: Any,
    heightmap: Tensor,
    bottom: Tensor,
    stride: int,
    group: int,
    *others: Any,
    **constants: Any,
) -> None:
    """Start a kernel with (phases, grouped bottoms, others, sizes) for all placements.

    Args:
        kernel: of the arguments above, `SIZES`, STRIDE, GROUP and POINTS.
        heightmap: float32 [B, X, Y].
        bottom: float32 [B, R, U, V].
        stride: lattice step in cells.
        group: orientations per program, a power of two.
        others: further arguments, contiguous if they are tensors.
        constants: further arguments that are compiled in.
    """
    batch, orientations, xs, ys = lattice_shape(heightmap, bottom, stride)
    points = min(_MAX_POINTS, max(_MIN_POINTS, triton.next_power_of_2(xs * ys)))
    programs = batch * triton.cdiv(orientations, group) * triton.cdiv(xs * ys, points)
    phases, grouped = _phases(heightmap, bottom, stride), _grouped(bottom, stride, group)
    window = (grouped.shape[2], grouped.shape[4])
    sizes = (orientations, *heightmap.shape[1:], *window, *phases.shape[3:])
    constants |= {"STRIDE": stride, "GROUP": group, "POINTS": points}
    with torch.cuda.device_of(heightmap):
        kernel[(programs,)](phases, grouped, *others, *sizes, **constants, num_warps=_WARPS)


def _phases(heightmap: Tensor, bottom: Tensor, stride: int) -> Tensor:
    """Return [B, stride, stride, Xq, Yq]; zeros where padded windows can leave the container."""
    batch, _, xs, ys = lattice_shape(heightmap, bottom, stride)
    _, length, width = heightmap.shape
    xq = xs + triton.cdiv(min(bottom.shape[2], length), stride)
    yq = ys + triton.cdiv(min(bottom.shape[3], width), stride) + UNROLLED.value
    padded = functional.pad(heightmap, (0, yq * stride - width, 0, xq * stride - length))
    return padded.view(batch, xq, stride, yq, stride).permute(0, 2, 4, 1, 3).contiguous()


def _grouped(bottom: Tensor, stride: int, group: int) -> Tensor:
    """Return [B, groups, U, stride, steps, group], +inf where padded: a group is contiguous."""
    missing = -bottom.shape[1] % group
    rest = -bottom.shape[3] % (stride * UNROLLED.value)
    padded = functional.pad(bottom, (0, rest, 0, 0, 0, missing), value=torch.inf)
    split = padded.unflatten(3, (-1, stride)).unflatten(1, (-1, group))
    return split.permute(0, 1, 3, 5, 4, 2).contiguous()
