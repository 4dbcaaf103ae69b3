"""All placements of cuboids on whole cells, in torch: any device, traceable, no host read.

Heights are counted in cells and kept in uint8 with the rows B innermost, so that one shift of the
ground serves all of them. They are raised by one, which leaves 0 for cells that do not exist:
beyond the container's edge, and beyond an item's own window in that of the catalogue. One pass over
the window along y and one along x suffice: a window row's highest cell, the count of cells that are
that high, and the first and last of them do not depend on the other rows. Masks multiply where a
`where` would do: products are vectorised on a CPU.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn import functional

from packing_env.kernels.arithmetic import divide
from packing_env.kernels.layout import in_rows, lattice
from packing_env.kernels.stability_rules import RULES, Rule, evaluate

_CHUNK = 100_000
"""Placements handled at once on a CPU, so that intermediate results stay in its cache."""


@dataclass(frozen=True)
class Task:
    """The constants of a call; see :func:`packing_env.kernels.cuboid_maps`."""

    cell: float
    height: int
    window: tuple[int, int]
    rule: Rule
    stride: int
    lattice: tuple[int, int]


@dataclass(frozen=True)
class Sides:
    """Sides in cells of every item in every row, ``[P, 1, 1, B]`` int32."""

    w: Tensor
    h: Tensor
    d: Tensor


@dataclass(frozen=True)
class WindowRows:
    """Rows of cells that a window may cover, ``[P, Xw, Ys, B]``, by the y of their lower end.

    Attributes:
        top: Height of the highest cell.
        count: Cells that are that high.
        up: Upper edge of the last of them, from the row's lower end.
        down: Lower edge of the first of them, from the row's upper end.
        end: Height of the row's last cell; that of its first cell is the ground's.
    """

    top: Tensor
    count: Tensor
    up: Tensor
    down: Tensor
    end: Tensor


def cuboid_maps(
    heightmap: Float[Tensor, "B X Y"],
    size: Int[Tensor, "B P 3"],
    cell: float,
    height: int,
    window: Sequence[int],
    rule: str,
    stride: int = 1,
) -> tuple[Float[Tensor, "B P Xs Ys"], Bool[Tensor, "B P Xs Ys"]]:
    """Carry out :func:`packing_env.kernels.cuboid_maps`."""
    xs, ys = lattice(heightmap, stride)
    task = Task(cell, height, (window[0], window[1]), RULES[rule], stride, (xs, ys))
    return _maps(heightmap, size, task)


def slope_scale(window: tuple[int, int]) -> tuple[int, int]:
    """Return ``(S, S0)``, with which slopes are kept as integers.

    A slope ``rise / run`` is kept as ``rise * round(S / run)``, which is off by V / 2 at most:
    half cells from the window's centre have ``|rise| <= V`` and ``run <= U``. Two slopes that do
    not cancel sum to 1 / U^2 at least, so with ``S > 2 V U^2`` their integers sum to -V or more if
    and only if they sum to 0 or more. S0 stands for ``S / 0``: steeper than any other slope.
    """
    across, along = window
    scale = 2 * along * across * across + 1
    return scale, along * (scale + 1) + 1


def integers(window: tuple[int, int]) -> tuple[torch.dtype, torch.dtype]:
    """Return the narrowest integers for counts of a window's cells, and for slopes and sums."""
    across, along = window
    largest = 2 * (along + 2) * slope_scale(window)[1]
    for counts, slopes in ((torch.uint8, torch.int16), (torch.int16, torch.int32)):
        fits = across * along <= torch.iinfo(counts).max
        if fits and largest <= torch.iinfo(slopes).max:
            return counts, slopes
    return torch.int32, torch.int64


@in_rows(2, lambda _, size, task: _CHUNK // max(1, size.shape[1] * math.prod(task.lattice)))
def _maps(heightmap: Tensor, size: Tensor, task: Task) -> tuple[Tensor, Tensor]:
    """Compute the maps of some rows of the batch."""
    sides = Sides(*(side[:, None, None] for side in size.permute(2, 1, 0).contiguous()))
    ground = _ground(heightmap, task)
    rows = _window_rows(ground, sides.h, task)
    tops = [top & mask for top, mask in _pairs(rows.top, sides.w, task)]
    raised = reduce(torch.maximum, tops)
    inside = _inside(heightmap, sides, task)
    highest = (task.height + 1 - sides.d).clamp(min=0).to(torch.uint8)
    legal = inside & (raised <= highest)
    if task.rule.measures:
        on = [(top == raised).view(torch.uint8) for top in tops]
        legal = legal & evaluate(task.rule, _Placements(ground, rows, on, raised, sides, task))
    inside_first = _batch_first(inside)
    penalty = 1 / inside_first.float() - 1  # 0 or +inf
    return (_batch_first(raised) - 1).float() * task.cell + penalty, _batch_first(legal)


def _batch_first(planes: Tensor) -> Tensor:
    """Return ``[P, Xs, Ys, B]`` as ``[B, P, Xs, Ys]``."""
    return planes.flatten(0, 2).mT.contiguous().view(planes.shape[3], *planes.shape[:3])


def _ground(heightmap: Tensor, task: Task) -> UInt8[Tensor, "1 Xw Yw B"]:
    """Return raised heights in cells, 0 where a window at a lattice point leaves the container."""
    raised = divide(heightmap, task.cell).to(torch.uint8).permute(1, 2, 0).contiguous() + 1
    cells_x, cells_y = (
        (steps - 1) * task.stride + window
        for steps, window in zip(task.lattice, task.window, strict=True)
    )
    more_x, more_y = cells_x - heightmap.shape[1], cells_y - heightmap.shape[2]
    return functional.pad(raised, (0, 0, 0, max(0, more_y), 0, max(0, more_x)))[None]


def _row_cells(ground: Tensor, v: int, task: Task) -> Tensor:
    """Return the v-th cell of the window rows that begin at lattice points in y."""
    return ground[:, :, v : v + (task.lattice[1] - 1) * task.stride + 1 : task.stride]


def _row_of(planes: Tensor, u: int, task: Task) -> Tensor:
    """Return the u-th row of the windows that begin at lattice points in x."""
    return planes[:, u : u + (task.lattice[0] - 1) * task.stride + 1 : task.stride]


def _masks(side: Tensor, window: int) -> UInt8[Tensor, "window P 1 1 B"]:
    """Return 0xFF for the cells of the window that an item with this side covers, else 0."""
    cells = torch.arange(window, device=side.device).view(-1, 1, 1, 1, 1)
    return (cells < side).to(torch.uint8) * 255


def _pairs(planes: Tensor, w: Tensor, task: Task) -> list[tuple[Tensor, Tensor]]:
    """Return each row of the windows, and its mask."""
    masks = _masks(w, task.window[0])
    return [(_row_of(planes, u, task), mask) for u, mask in enumerate(masks)]


def _inside(heightmap: Tensor, sides: Sides, task: Task) -> Bool[Tensor, "P Xs Ys B"]:
    """Return which placements of real items stay in the container."""
    x, y = (torch.arange(n, device=heightmap.device) * task.stride for n in task.lattice)
    fits_x = (x[:, None, None] + sides.w <= heightmap.shape[1]) & (sides.w > 0)
    return fits_x & (y[:, None] + sides.h <= heightmap.shape[2])


def _window_rows(ground: Tensor, h: Tensor, task: Task) -> WindowRows:
    """Scan the window along y once; fields that the rule does not need mean nothing."""
    rule, (count_type, _) = task.rule, integers(task.window)
    masks = _masks(h, task.window[1])
    top = end = _row_cells(ground, 0, task) & masks[0]
    count = torch.ones_like(top, dtype=count_type)
    last = first = torch.zeros_like(count)
    for v in range(1, len(masks)):
        cell = _row_cells(ground, v, task) & masks[v]
        if rule.percents or rule.hull:
            higher, level = (flags.to(count_type) for flags in (cell > top, cell >= top))
            if rule.percents:
                count = count - count * higher + level
            if rule.hull:
                last = torch.maximum(last, level * v)
                first = torch.maximum(first, higher * v)
        if rule.corners:
            end = _blend(end, cell, h == v + 1)
        top = torch.maximum(top, cell)
    return WindowRows(top, count, last + 1, h.to(count_type) - first, end)


def _blend(one: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    """Return ``other`` where ``chosen``; uint8 wraps around and back."""
    return one + (other - one) * chosen.to(torch.uint8)


@dataclass(frozen=True)
class _Placements:
    """Measurements of the placements, for the rules.

    Attributes:
        ground: Raised heights as from :func:`_ground`.
        rows: Rows of cells that the windows may cover.
        on: Per row of the window, 1 where it supports, else 0.
        raised: ``[P, Xs, Ys, B]`` raised rest heights.
        sides: Sides of the items.
        task: The constants of the call.
    """

    ground: Tensor
    rows: WindowRows
    on: Sequence[Tensor]
    raised: Tensor
    sides: Sides
    task: Task

    def areas(self) -> tuple[Tensor, Tensor]:
        """Return the counts of supporting cells, and of the cells of the footprints."""
        return reduce(torch.add, self._where_on(self.rows.count)), self.sides.w * self.sides.h

    def corners(self, at_highest: bool) -> tuple[Tensor, Tensor]:
        """Count the corner cells at a level, and test if the highest supports."""
        corners = []
        for edge in (_row_cells(self.ground, 0, self.task), self.rows.end):
            near = far = _row_of(edge, 0, self.task).expand_as(self.raised)
            for u in range(1, len(self.on)):
                far = _blend(far, _row_of(edge, u, self.task), self.sides.w == u + 1)
            corners += [near, far]
        highest = reduce(torch.maximum, corners)
        level = highest if at_highest else self.raised
        found = [(corner == level).view(torch.uint8) for corner in corners]
        return reduce(torch.add, found), highest == self.raised

    def in_hull(self, centres: bool) -> Bool[Tensor, "P Xs Ys B"]:
        """Test if the windows' centres lie in the hulls."""
        upper, lower = (
            _chord_passes(self._where_on(edge), self.sides, self.task)
            for edge in (self.rows.up, self.rows.down)
        )
        return upper & lower

    def _where_on(self, planes: Tensor) -> list[Tensor]:
        """Return a number of each window row, 0 where the row does not support."""
        return [_row_of(planes, u, self.task) * touches for u, touches in enumerate(self.on)]


def _chord_passes(reach: Sequence[Tensor], sides: Sides, task: Task) -> Bool[Tensor, "P Xs Ys B"]:
    """Return True where the hull reaches the window's centre from one side in y.

    ``reach`` holds how far the supporting cells of each window row reach to the other side, 0 for
    none. A line between rows is reached by the squares of both; centres lie half a cell before.
    Slopes are integers (:func:`slope_scale`), raised by S0 so that 0 is below them all: none.
    """
    centres = int(task.rule.hull == "centres")
    if not centres:
        none = torch.zeros_like(reach[0])
        reach = [torch.maximum(one, other) for one, other in pairwise((none, *reach, none))]
    scale, steepest = slope_scale(task.window)
    _, dtype = integers(task.window)
    left = right = torch.zeros_like(reach[0], dtype=dtype)
    for line, edge in enumerate(reach):
        run = 2 * line + centres - sides.w.long()
        distance = run.abs().clamp(min=1)
        weight = (2 * scale + distance) // (2 * distance)
        weight = torch.where(run == 0, steepest, weight)
        base = steepest - (sides.h + centres) * weight
        wide = edge.to(dtype)
        slope = (wide * (2 * weight).to(dtype) + base.to(dtype)) * wide.clamp(max=1)
        left = torch.maximum(left, slope * (run <= 0).to(dtype))
        right = torch.maximum(right, slope * (run >= 0).to(dtype))
    return left + right >= 2 * steepest - task.window[1]
