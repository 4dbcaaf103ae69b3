"""Largest empty rectangles of a grid beside any obstacle, by tables of running maxima."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class SideAreas:
    """Area of the largest empty rectangle on one side of a line, on each of H levels.

    A rectangle that avoids a rectangular obstacle lies entirely on one side of it, so these four
    tables cover every obstacle.

    Attributes:
        before_x: ``[B, H, X + 1]`` in the columns below i.
        after_x: ``[B, H, X + 1]`` in the columns from i on.
        before_y: ``[B, H, Y + 1]`` in the rows below j.
        after_y: ``[B, H, Y + 1]`` in the rows from j on.
    """

    before_x: Int[Tensor, "B H I"]
    after_x: Int[Tensor, "B H I"]
    before_y: Int[Tensor, "B H J"]
    after_y: Int[Tensor, "B H J"]


def longest_run(open_: Bool[Tensor, "*batch N"]) -> Int[Tensor, "*batch"]:
    """Return the length of the longest run of True along the last axis."""
    place = torch.arange(open_.shape[-1], device=open_.device, dtype=torch.int32)
    shut = torch.where(open_, -1, place).cummax(-1).values
    return torch.where(open_, place - shut, 0).amax(-1)


def _sides(empty: Bool[Tensor, "B H X Y"]) -> tuple[Tensor, Tensor]:
    """Return the largest empty rectangles in the columns below i and from i, ``[B, H, X + 1]``."""
    columns = empty.shape[2]
    before = torch.zeros(*empty.shape[:2], columns + 1, dtype=torch.int32, device=empty.device)
    after = torch.zeros_like(before)
    span = empty
    for width in range(1, columns + 1):
        if width > 1:  # columns i .. i + width - 1 are open together
            span = span[:, :, :-1] & empty[:, :, width - 1 :]
        area = longest_run(span) * width
        before[..., width:] = torch.maximum(before[..., width:], area)
        after[..., : columns - width + 1] = torch.maximum(after[..., : columns - width + 1], area)
    return before.cummax(-1).values, after.flip(-1).cummax(-1).values.flip(-1)


def side_areas(heightmap: Int[Tensor, "B X Y"], levels: int) -> SideAreas:
    """Compute the tables of a heightmap in cells; a cell is empty from its height up."""
    level = torch.arange(levels, device=heightmap.device)[:, None, None]
    empty = heightmap[:, None] <= level
    return SideAreas(*_sides(empty), *_sides(empty.mT))


def area_beside(
    areas: SideAreas,
    lower: Int[Tensor, "B P 2"],
    upper: Int[Tensor, "B P 2"],
    z: Int[Tensor, "B P"],
) -> Int[Tensor, "B P"]:
    """Sum the largest empty rectangles beside each obstacle over the levels below ``z``.

    Args:
        areas: Tables of the heightmap.
        lower: Lower corners of the obstacles, cells; one outside the grid counts as at its edge.
        upper: Upper corners.
        z: Bases of the obstacles, cells.
    """
    tables = (
        (areas.before_x, lower[..., 0]),
        (areas.after_x, upper[..., 0]),
        (areas.before_y, lower[..., 1]),
        (areas.after_y, upper[..., 1]),
    )
    total = torch.zeros_like(z)
    for level in range(areas.before_x.shape[1]):
        best = torch.zeros_like(z)
        for table, at in tables:
            line = at.clamp(0, table.shape[2] - 1)
            best = torch.maximum(best, table[:, level].long().gather(1, line))
        total = total + torch.where(level < z, best, 0)
    return total
