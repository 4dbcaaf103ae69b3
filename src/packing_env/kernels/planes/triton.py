"""Images of placements on CUDA devices, in Triton: one warp for a few placements of one item."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels.compiled.scene_triton import part, start

POINTS = 128
"""Placements of a program."""

_ROUNDING = tl.constexpr(1.5 * 2**23)
"""Adding it to a float32 below 2**22 and subtracting it again rounds to the nearest integer, ties
to even.
"""


@part
def cells_of(share, cells):
    """Return a side in cells, at least 1, from the side divided by the container's."""
    side = share * cells.to(tl.float32)
    return tl.maximum(((side + _ROUNDING) - _ROUNDING).to(tl.int32), 1)


@triton.jit(do_not_specialize=["side_pitch", "peak_pitch", "planes", "xs", "ys", "across", "along"])
def planes_kernel(
    rest, sums, sides, peak, images, side_pitch, peak_pitch, planes, xs, ys, across, along,
    STRIDE: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Write the three images of a few placements; ``planes`` is the number of planes per row."""
    # 1. The placements of this program, and the sides of the window in cells.
    places = xs * ys
    tiles = tl.cdiv(places, POINTS)
    plane, tile = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles
    point = tile * POINTS + tl.arange(0, POINTS)
    on = point < places
    w, h = (
        cells_of(tl.load(sides + plane * side_pitch), across),
        cells_of(tl.load(sides + plane * side_pitch + 1), along),
    )
    # 2. The sum of the heights under each window, from four entries of the table.
    x, y = point // ys * STRIDE, point % ys * STRIDE
    x_end, y_end = tl.minimum(x + w, across), tl.minimum(y + h, along)
    table, pitch = sums + plane // planes * ((across + 1) * (along + 1)), along + 1
    total = tl.load(table + x_end * pitch + y_end, mask=on, other=0.0)
    total = total - tl.load(table + x * pitch + y_end, mask=on, other=0.0)
    total = total - tl.load(table + x_end * pitch + y, mask=on, other=0.0)
    total = total + tl.load(table + x * pitch + y, mask=on, other=0.0)
    # 3. Rest height, height after the placement, and mean gap; all are 1 if illegal (z = 1).
    z = tl.load(rest + plane * places + point, mask=on, other=1.0)
    gap = tl.where(z < 1.0, z - tl.div_rn(total, (w * h).to(tl.float32)), 1.0)
    target = images + plane * 3 * places + point
    tl.store(target, z, mask=on)
    tl.store(target + places, tl.minimum(z + tl.load(peak + plane * peak_pitch), 1.0), mask=on)
    tl.store(target + 2 * places, gap, mask=on)


def placement_planes(rest: Tensor, sums: Tensor, size: Tensor, peak: Tensor, stride: int) -> Tensor:
    """Carry out `packing_env.kernels.placement_planes`."""
    rows, planes, xs, ys = rest.shape
    images = rest.new_empty(rows, planes, 3, xs, ys)
    size, peak = _evenly(size), _evenly(peak[..., None])
    arguments = (rest.contiguous(), sums.contiguous(), size, peak, images)
    pitches = (size.stride(1), peak.stride(1))
    sizes = (*pitches, planes, xs, ys, *(side - 1 for side in sums.shape[1:]))
    programs = rows * planes * triton.cdiv(xs * ys, POINTS)
    with torch.cuda.device_of(rest):
        start(planes_kernel, programs, (*arguments, *sizes), {"STRIDE": stride, "POINTS": POINTS})
    return images


def _evenly(values: Tensor) -> Tensor:
    """Return ``[B, P, N]`` with a row stride of P planes; a slice of features is not copied."""
    rows, planes, each = values.stride()
    even = rows == values.shape[1] * planes and (each == 1 or values.shape[2] == 1)
    return values if even else values.contiguous()
