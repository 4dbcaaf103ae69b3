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

_GROUP = 4
"""Orientations per program: what is loaded of the ground serves all of them."""

_CELLS: tl.constexpr = tl.constexpr(256)
"""Window cells that are looked at together for the extent of the orientations."""


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
    bottom,
    orientations,
    length,
    width,
    window_x,
    steps,
    pitch_y,
    STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    POINTS: tl.constexpr,
):
    """Find the placements of this program, among those that keep an orientation in the container.

    Returns (row, first orientation, levels, w, h, ground, maps, inside, index): row and orientation
    counted over the batch; where the cells of the group begin; the window to walk, (0, 0) where no
    placement is left; where the ground under each placement begins in a phase ``[1, POINTS]``;
    where the maps of the group begin; whether an orientation fits at a placement, and its index in
    those maps, ``[GROUP, POINTS]``. What counts over the batch is int64: batches of maps exceed
    int32 offsets.
    """
    xs, ys = tl.cdiv(length, STRIDE), tl.cdiv(width, STRIDE)
    tiles, groups = tl.cdiv(xs * ys, POINTS), tl.cdiv(orientations, GROUP)
    tile, group = tl.program_id(0) % tiles, (tl.program_id(0) // tiles).to(tl.int64)
    row = group // groups
    first = row * orientations + group % groups * GROUP
    levels = bottom + group * window_x * STRIDE * steps * GROUP
    w, h = extents(levels, window_x, steps, STRIDE, GROUP)
    fits = (w > 0) & (w <= length) & (h <= width)
    nx = tl.where(fits, (length - w) // STRIDE + 1, 0)
    ny = tl.where(fits, (width - h) // STRIDE + 1, 0)
    rows, columns = tl.max(nx, axis=0), tl.maximum(tl.max(ny, axis=0), 1)
    point = tile * POINTS + tl.arange(0, POINTS)[None, :]
    x, y = point // columns, point % columns
    ground = tl.where(x < rows, x * pitch_y + y, 0)
    inside = (x < nx[:, None]) & (y < ny[:, None])
    index = (tl.arange(0, GROUP)[:, None] * xs + x) * ys + y
    walked = fits & (tile * POINTS < rows * columns)
    window_w = tl.max(tl.where(walked, w, 0), axis=0)
    window_h = tl.max(tl.where(walked, h, 0), axis=0)
    return row, first, levels, window_w, window_h, ground, first * xs * ys, inside, index


@triton.jit(do_not_specialize=SIZES)
def gaps_kernel(
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
    COUNT: tl.constexpr,
    STRIDE: tl.constexpr,
    GROUP: tl.constexpr,
    POINTS: tl.constexpr,
):
    """Write the highest gap into z, or with COUNT the number of those that support into the count.

    A gap is that between the ground and a cell of the item; it supports from z - contact_tol on.
    Where an orientation does not stay in the container, nothing is written.
    """
    row, _, levels, w, h, ground, maps, inside, index = placements(
        bottom, orientations, length, width, window_x, steps, pitch_y, STRIDE, GROUP, POINTS
    )
    phase = pitch_x * pitch_y
    member = tl.arange(0, GROUP)[:, None]
    if COUNT:
        threshold = tl.load(z + maps + index, mask=inside, other=float("inf")) - contact_tol
        found = tl.zeros([GROUP, POINTS], tl.int32)
    else:
        found = tl.full([GROUP, POINTS], -float("inf"), tl.float32)
    for u in range(0, w):
        heights = phases + ((row * STRIDE + u % STRIDE) * STRIDE * phase + u // STRIDE * pitch_y)
        for p in range(0, tl.minimum(h, STRIDE)):
            line = heights + p * phase + ground
            edge = levels + (u * STRIDE + p) * steps * GROUP + member
            for q in range(0, tl.cdiv(h, STRIDE), UNROLLED):
                for k in tl.static_range(UNROLLED):
                    gap = tl.load(line + (q + k)) - tl.load(edge + (q + k) * GROUP)
                    if COUNT:
                        found += tl.where(gap >= threshold, 1, 0)
                    else:
                        found = tl.maximum(found, gap)
    tl.store((count if COUNT else z) + maps + index, found, mask=inside)


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


def launch_gaps(
    heightmap: Tensor, bottom: Tensor, stride: int, z: Tensor, count: Tensor | None, tol: float
) -> None:
    """Fill z, or the count where it is given, by :func:`gaps_kernel`."""
    group = min(_GROUP, triton.next_power_of_2(bottom.shape[1]))
    others = (z, z if count is None else count, tol)
    launch(gaps_kernel, heightmap, bottom, stride, group, *others, COUNT=count is not None)


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
