"""The hot operations in plain torch: any device, traceable, no value is read back to Python.

Every backend agrees with these functions bit for bit. Loops run over the cells of the item
window, whose size is static, never over data; padding orientations cost the same as real ones.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor
from torch.nn import functional

SUBCELL = 64
"""Centres of mass are given in 1/64 of a cell."""

HALF_CELL = SUBCELL // 2

VERTICAL = 2.0**-20
"""Stands for |dx| = 0 in a slope: exact, and steeper than any slope of another corner."""

_CHUNK_FLOATS = 160_000
"""Placements handled at once on a CPU, so that the running maxima stay in its L2 cache."""

_SIZED = 256
"""Lower surfaces measured at once, so that it takes little memory."""


def drop_height(
    heightmap: Float[Tensor, "B X Y"], bottom: Float[Tensor, "B R U V"], stride: int = 1
) -> Float[Tensor, "B R Xs Ys"]:
    """Rest height of every placement on the lattice {0, stride, 2 stride, ...}.

    The maximum over the finite cells (u, v) of heightmap[x+u, y+v] - bottom[u, v]; +inf where one
    of them leaves the container and for orientations without any. Metres.
    Huang et al., RA-L 2023, Eq. 1.
    """
    parts = [
        _drop_height_chunk(h, b, stride)
        for h, b in zip(*_chunks(stride, heightmap, bottom), strict=True)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def com_hull(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"],
    z: Float[Tensor, "B R Xs Ys"],
    com: Int[Tensor, "B R 2"],
    contact_tol: float,
    stride: int = 1,
    centres: bool = False,
) -> Bool[Tensor, "B R Xs Ys"]:
    """Whether the centre of mass lies over the convex hull of the supporting cells' squares.

    A cell supports iff heightmap - bottom >= z - contact_tol in float32. Of all corners of
    supporting squares (with `centres`, of their centres instead), slope = dy/|dx| is taken from the
    centre of mass (1/64-cell integers, float64), separately for the corners left (dx <= 0) and
    right (dx >= 0) of it. Stable iff there are corners on both sides, max_left + max_right >= 0 and
    min_left + min_right <= 0; the boundary counts as stable. False where z is +inf.
    """
    parts = [
        _com_hull_chunk(h, b, zs, c, contact_tol, stride, centres)
        for h, b, zs, c in zip(*_chunks(stride, heightmap, bottom, z, com), strict=True)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def support_count(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"],
    z: Float[Tensor, "B R Xs Ys"],
    contact_tol: float,
    stride: int = 1,
) -> Int[Tensor, "B R Xs Ys"]:
    """How many footprint cells support each placement, int32; 0 where z is +inf.

    A cell supports iff heightmap - bottom >= z - contact_tol in float32.
    """
    parts = [
        _support_count_chunk(h, b, zs, contact_tol, stride)
        for h, b, zs in zip(*_chunks(stride, heightmap, bottom, z), strict=True)
    ]
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def lattice_shape(
    heightmap: Float[Tensor, "B X Y"], bottom: Shaped[Tensor, "B R ..."], stride: int
) -> tuple[int, int, int, int]:
    """Shape [B, R, ceil(X / stride), ceil(Y / stride)] of a map over placements."""
    batch, length, width = heightmap.shape
    return batch, bottom.shape[1], -(-length // stride), -(-width // stride)


def _chunks(
    stride: int, heightmap: Tensor, bottom: Tensor, *others: Tensor
) -> list[tuple[Tensor, ...]]:
    """The tensors split along B into pieces that fit a CPU cache (one piece elsewhere)."""
    tensors = (heightmap, bottom, *others)
    batch, orientations, xs, ys = lattice_shape(heightmap, bottom, stride)
    rows = max(1, _CHUNK_FLOATS // max(1, orientations * xs * ys))
    if batch <= rows or heightmap.device.type != "cpu" or torch.compiler.is_compiling():
        return [(tensor,) for tensor in tensors]
    return [tensor.split(rows) for tensor in tensors]


def _phases(
    heightmap: Tensor, bottom: Tensor, stride: int
) -> Float[Tensor, "B stride stride Xq Yq"]:
    """The heightmap, zero beyond its edges, split so that a lattice step is one element.

    Cell (stride * i + p, stride * j + q) is element [p, q, i, j].
    """
    batch, _, xs, ys = lattice_shape(heightmap, bottom, stride)
    xq, yq = (
        steps + (window - 1) // stride
        for steps, window in zip((xs, ys), _window(heightmap, bottom), strict=True)
    )
    pad = (0, yq * stride - heightmap.shape[2], 0, xq * stride - heightmap.shape[1])
    padded = functional.pad(heightmap, pad)
    return padded.view(batch, xq, stride, yq, stride).permute(0, 2, 4, 1, 3).contiguous()


def _window(heightmap: Tensor, bottom: Tensor) -> tuple[int, int]:
    """Window cells that can lie inside the container at all."""
    return min(bottom.shape[2], heightmap.shape[1]), min(bottom.shape[3], heightmap.shape[2])


def _shifted(phases: Tensor, u: int, v: int, xs: int, ys: int) -> Float[Tensor, "B 1 Xs Ys"]:
    """heightmap[stride * x + u, stride * y + v] for every lattice point (x, y)."""
    stride = phases.shape[1]
    (i, p), (j, q) = divmod(u, stride), divmod(v, stride)
    return phases[:, p, q, i : i + xs, j : j + ys].unsqueeze(1)


def surface_sizes(bottom: Float[Tensor, "*K U V"]) -> Int[Tensor, "*K 2"]:
    """Cells (w, h) of each lower surface up to its last finite ones; 0 for one without any."""
    parts = bottom.flatten(0, -3).split(_SIZED)
    return torch.cat([_extent(part) for part in parts]).view(*bottom.shape[:-2], 2)


def _extent(bottom: Float[Tensor, "*K U V"]) -> Int[Tensor, "*K 2"]:
    """The same in one piece."""
    footprint = torch.isfinite(bottom)
    count_u, count_v = (
        torch.arange(1, side + 1, device=bottom.device) for side in bottom.shape[-2:]
    )
    lines = (footprint.any(-1) * count_u, footprint.any(-2) * count_v)
    return torch.stack([line.amax(-1) for line in lines], -1)


def _inside(heightmap: Tensor, bottom: Tensor, stride: int) -> Bool[Tensor, "B R Xs Ys"]:
    """Placements that keep every finite cell in the container, of orientations with any."""
    _, length, width = heightmap.shape
    device = bottom.device
    extent_x, extent_y = _extent(bottom).unbind(-1)
    x = torch.arange(0, length, stride, device=device)
    y = torch.arange(0, width, stride, device=device)
    fits_x = (x + extent_x.unsqueeze(-1) <= length) & (extent_x > 0).unsqueeze(-1)
    fits_y = y + extent_y.unsqueeze(-1) <= width
    return fits_x.unsqueeze(-1) & fits_y.unsqueeze(-2)


def _drop_height_chunk(heightmap: Tensor, bottom: Tensor, stride: int) -> Tensor:
    shape = lattice_shape(heightmap, bottom, stride)
    phases = _phases(heightmap, bottom, stride)
    window_x, window_y = _window(heightmap, bottom)
    z = torch.full(shape, -torch.inf, dtype=heightmap.dtype, device=heightmap.device)
    for u in range(window_x):
        for v in range(window_y):
            gap = _shifted(phases, u, v, *shape[2:]) - bottom[:, :, u, v, None, None]
            z = torch.maximum(z, gap)
    return torch.where(_inside(heightmap, bottom, stride), z, torch.inf)


def _com_hull_chunk(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    contact_tol: float,
    stride: int,
    centres: bool,
) -> Tensor:
    """Walk over the lines of corners; only a line's first and last supported one can be extreme.

    Line a lies between the window rows a - 1 and a, and takes corners from both. A line of centres
    is drawn in by half a cell, into row a, and takes from that row alone.
    """
    window_x, window_y = _window(heightmap, bottom)
    phases = _phases(heightmap, bottom, stride)
    threshold = z - contact_tol
    centre = com[..., None, None].double()
    inset, rows_a_line, lines = (HALF_CELL, 1, window_x) if centres else (0, 2, window_x + 1)
    high: list[Tensor] = []
    low: list[Tensor] = []
    extremes = torch.full((4, *z.shape), -torch.inf, dtype=torch.float64, device=z.device)
    max_left, max_right, neg_min_left, neg_min_right = extremes.unbind()
    for line in range(lines):
        if line < window_x:
            first, last = _row_support(phases, bottom[:, :, line, :window_y], threshold, line)
            high = [*high, last][-rows_a_line:]
            low = [*low, first][-rows_a_line:]
        else:
            high, low = high[-1:], low[-1:]
        reach_high = torch.maximum(high[0], high[-1]) * SUBCELL - inset - centre[:, :, 1]
        reach_low = centre[:, :, 1] - torch.minimum(low[0], low[-1]) * SUBCELL - inset
        dx = SUBCELL * line + inset - centre[:, :, 0]
        distance = torch.where(dx == 0, VERTICAL, dx.abs())
        not_left = torch.where(dx <= 0, 0.0, -torch.inf)
        not_right = torch.where(dx >= 0, 0.0, -torch.inf)
        steepest, shallowest = reach_high / distance, reach_low / distance
        max_left = torch.maximum(max_left, steepest + not_left)
        max_right = torch.maximum(max_right, steepest + not_right)
        neg_min_left = torch.maximum(neg_min_left, shallowest + not_left)
        neg_min_right = torch.maximum(neg_min_right, shallowest + not_right)
    return (max_left + max_right >= 0) & (neg_min_left + neg_min_right >= 0)


def _support_count_chunk(
    heightmap: Tensor, bottom: Tensor, z: Tensor, contact_tol: float, stride: int
) -> Tensor:
    window_x, window_y = _window(heightmap, bottom)
    phases = _phases(heightmap, bottom, stride)
    threshold = z - contact_tol
    count = torch.zeros(z.shape, dtype=torch.int32, device=z.device)
    for u in range(window_x):
        for v in range(window_y):
            gap = _shifted(phases, u, v, *z.shape[2:]) - bottom[:, :, u, v, None, None]
            count = count + (gap >= threshold)
    return count


def _row_support(
    phases: Tensor, bottom: Tensor, threshold: Tensor, u: int
) -> tuple[Float[Tensor, "B R Xs Ys"], Float[Tensor, "B R Xs Ys"]]:
    """Lower edge of the first and upper edge of the last supporting cell of window row u.

    In cells; (+inf, -inf) where none supports.
    """
    xs, ys = threshold.shape[2:]
    first = torch.full_like(threshold, torch.inf)
    last = torch.full_like(threshold, -torch.inf)
    for v, cell in enumerate(bottom.unbind(dim=2)):
        gap = _shifted(phases, u, v, xs, ys) - cell[:, :, None, None]
        supports = gap >= threshold
        first = torch.where(supports, first.clamp(max=v), first)
        last = last.masked_fill(supports, v + 1)
    return first, last
