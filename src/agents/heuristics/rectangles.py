"""Largest empty rectangles of a grid next to any obstacle, from tables of running maxima."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor


def longest_run(open_: Bool[Tensor, "*batch N"]) -> Int[Tensor, "*batch"]:
    """Return the length of the longest run of True along the last axis."""
    place = torch.arange(open_.shape[-1], device=open_.device, dtype=torch.int32)
    shut = torch.where(open_, -1, place).cummax(-1).values
    return torch.where(open_, place - shut, 0).amax(-1)


def _sides(empty: Bool[Tensor, "B H X Y"]) -> tuple[Tensor, Tensor]:
    """Return the largest areas in columns < i and in columns >= i, ``[B, H, X + 1]``."""
    columns = empty.shape[2]
    before = torch.zeros(*empty.shape[:2], columns + 1, dtype=torch.int32, device=empty.device)
    after = torch.zeros_like(before)
    span = empty
    for width in range(1, columns + 1):
        if width > 1:  # True where columns i .. i + width - 1 are all empty
            span = span[:, :, :-1] & empty[:, :, width - 1 :]
        area = longest_run(span) * width
        before[..., width:] = torch.maximum(before[..., width:], area)
        after[..., : columns - width + 1] = torch.maximum(after[..., : columns - width + 1], area)
    return before.cummax(-1).values, after.flip(-1).cummax(-1).values.flip(-1)


def side_areas(heightmap: Int[Tensor, "B X Y"], levels: int) -> tuple[Tensor, ...]:
    """Compute the area of the largest empty rectangle on each side of a line, on each level.

    A rectangle that avoids a rectangular obstacle lies entirely on one side of it. So these four
    tables are sufficient for every obstacle. Heights are in cells; a cell is empty above its
    height.

    Returns:
        Areas, int32: in columns < i and in columns >= i, ``[B, H, X + 1]``; in rows < j and in rows
        >= j, ``[B, H, Y + 1]``.
    """
    level = torch.arange(levels, device=heightmap.device)[:, None, None]
    empty = heightmap[:, None] <= level
    return *_sides(empty), *_sides(empty.mT)


def area_beside(
    tables: tuple[Tensor, ...],
    lower: Int[Tensor, "B P 2"],
    upper: Int[Tensor, "B P 2"],
    z: Int[Tensor, "B P"],
) -> Int[Tensor, "B P"]:
    """Sum the largest empty rectangles beside each obstacle over the levels below ``z``.

    Args:
        tables: :func:`side_areas` of the heightmap.
        lower: Lower corners of the obstacles, cells; corners outside the grid are clamped to its
            edge.
        upper: Upper corners.
        z: Bases of the obstacles, cells.
    """
    lines = (lower[..., 0], upper[..., 0], lower[..., 1], upper[..., 1])
    total = torch.zeros_like(z)
    for level in range(tables[0].shape[1]):
        best = torch.zeros_like(z)
        for table, at in zip(tables, lines, strict=True):
            line = at.clamp(0, table.shape[2] - 1)
            best = torch.maximum(best, table[:, level].long().gather(1, line))
        total = total + torch.where(level < z, best, 0)
    return total
