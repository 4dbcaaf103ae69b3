"""The operation of `packing_env.kernels.features` in plain torch."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor
from torch.nn import functional

NONE = 30_000
"""Value of a minimum over no position."""

FIXED = 6
"""Number of features of a window before the counts by level."""

SHAPE = 3
"""Number of features of the whole map before the counts by bin."""

FRACTION = 15
"""Number of fractional bits of factors."""

MOST = 1.1
"""Largest feature."""

STEEPEST = 15
"""Steps between neighbours are limited to this value."""


def map_features(
    maps: Tensor,
    sizes: list[int],
    levels: list[int],
    bins: list[int],
    pool: list[int],
    gaps: list[int],
    height: int,
    tolerance: int,
    shift: int,
    scale: Tensor,
    counts: Tensor,
    logs: Tensor,
    used: Tensor,
) -> Tensor:
    """Carry out `packing_env.kernels.map_features`."""
    # 1. The whole map.
    cells = maps.int()
    columns = _shape(cells, bins, shift)
    # 2. Each window in both orientations: minima over its positions, and counts by level.
    area = functional.pad((cells >> shift).cumsum(1).cumsum(2), (1, 0, 1, 0))
    pairs = (list(zip(part[::2], part[1::2], strict=True)) for part in (sizes, gaps))
    for (length, width), (flat_gap, low_gap) in zip(*pairs, strict=True):
        turned = ((length, width), (width, length))[: 1 if length == width else 2]
        parts = [_positions(cells, area, *size, tolerance, shift) for size in turned]
        z, gap, held = (torch.cat(part, 1) for part in zip(*parts, strict=True))
        flat = torch.where(gap <= flat_gap, held, NONE)
        filled = z + (gap * gap_factor(length * width, shift) >> FRACTION)
        minima = (
            z,
            held,
            flat,
            torch.where(z < height, gap, NONE),
            torch.where(gap <= low_gap, z, NONE),
            torch.where(held < NONE, filled, NONE),
        )
        columns += [part.amin(1) for part in minima]
        for level in levels:
            columns += [(held <= level).sum(1), (flat <= level).sum(1)]
    # 3. The parts of the map; then logarithms of counts, scales, and the limit.
    whole = torch.stack(columns + _parts(cells, area, pool), 1)
    logarithm = logs[torch.where(counts, whole, 0).long()]
    features = (torch.where(counts, logarithm, whole.float()) * scale).clamp(max=MOST)
    return torch.where(used[:, None], features, 0.0) if used.shape[0] else features


def gap_factor(cells: int, shift: int) -> int:
    """Return the factor that turns a gap into twice its height per cell, with `FRACTION` bits."""
    return (1 << (FRACTION + 1 + shift)) // cells


def _shape(cells: Tensor, bins: list[int], shift: int) -> list[Tensor]:
    """Return the features of the whole map."""
    flat = cells.flatten(1)
    steps = torch.cat([cells.diff(dim=axis).abs().flatten(1) for axis in (1, 2)], 1)
    shape = [flat.amax(1), (steps >> shift).clamp(max=STEEPEST).sum(1), (steps > 0).sum(1)]
    return shape + [(flat <= level).sum(1) for level in bins]


def _parts(cells: Tensor, area: Tensor, pool: list[int]) -> list[Tensor]:
    """Return the highest cell of each part and, if it has several cells, their sum."""
    edges = [
        [-(-part * side // parts) for part in range(parts + 1)]
        for parts, side in zip(pool, cells.shape[1:], strict=True)
    ]
    spans = [
        (a, b, c, d)
        for a, b in itertools.pairwise(edges[0])
        for c, d in itertools.pairwise(edges[1])
    ]
    highest = [cells[:, a:b, c:d].amax((1, 2)) for a, b, c, d in spans]
    if tuple(pool) == tuple(cells.shape[1:]):
        return highest
    sums = [area[:, b, d] - area[:, a, d] - area[:, b, c] + area[:, a, c] for a, b, c, d in spans]
    return highest + sums


def _positions(
    cells: Tensor, area: Tensor, length: int, w: int, tolerance: int, shift: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return rest height, gap, and rest height (`NONE` where not held), each ``[N, P]``."""
    # 1. The highest cell of each quadrant.
    half = ((length + 1) // 2, (w + 1) // 2)
    peaks = functional.max_pool2d(cells[:, None].float(), half, 1)[:, 0].int()
    x, y = cells.shape[1] - length + 1, cells.shape[2] - w + 1
    u, v = length - half[0], w - half[1]
    quadrants = torch.stack([peaks[:, i : i + x, j : j + y] for i in (0, u) for j in (0, v)])
    # 2. The rest height; the space below it comes from the summed-area table.
    z, low = quadrants.amax(0), quadrants.amin(0)
    below = area[:, length:, w:] - area[:, :x, w:] - area[:, length:, :y] + area[:, :x, :y]
    gap = length * w * (z >> shift) - below
    held = torch.where(z - low <= tolerance, z, NONE)
    return z.flatten(1), gap.flatten(1), held.flatten(1)
