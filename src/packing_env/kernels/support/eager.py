"""Hulls and counts of supporting cells in torch: any device, traceable, no host read.

Every backend agrees with these functions bit for bit. Loops run over the cells of the item's
window, whose size is static, never over data. Padding orientations take as long as real ones.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.layout import (
    HALF_CELL,
    SUBCELL,
    VERTICAL,
    gather_surfaces,
    in_rows,
    phases_of,
    rows_at_once,
    window_cell,
    window_cells,
)
from packing_env.kernels.stability_rules import chords_hold
from packing_env.kernels.support.corners import holds_all


def com_hull(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"] | Float[Tensor, "K U V"],
    z: Float[Tensor, "B R Xs Ys"],
    com: Int[Tensor, "B R 2"],
    tolerance: float,
    stride: int,
    centres: bool,
    which: Int[Tensor, "B R"] | None = None,
    size: Int[Tensor, "K 2"] | None = None,
    margin: Int[Tensor, "B R 2"] | None = None,
) -> Bool[Tensor, "B R Xs Ys"]:
    """Carry out `packing_env.kernels.com_hull`."""
    surfaces = gather_surfaces(bottom, which) if which is not None else bottom

    def holds(point: Tensor, judged: Tensor) -> Tensor:
        return _com_hull(heightmap, surfaces, judged, point, tolerance, stride, centres)

    return holds_all(holds, z, com, margin)


def support_count(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"] | Float[Tensor, "K U V"],
    z: Float[Tensor, "B R Xs Ys"],
    tolerance: float,
    stride: int,
    which: Int[Tensor, "B R"] | None = None,
    size: Int[Tensor, "K 2"] | None = None,
) -> Int[Tensor, "B R Xs Ys"]:
    """Carry out `packing_env.kernels.support_count`."""
    surfaces = gather_surfaces(bottom, which) if which is not None else bottom
    return _support_count(heightmap, surfaces, z, tolerance, stride)


@in_rows(4, lambda *arguments: rows_at_once(arguments[2].shape[1:]))
def _com_hull(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"],
    z: Float[Tensor, "B R Xs Ys"],
    com: Int[Tensor, "B R 2"],
    tolerance: float,
    stride: int,
    centres: bool,
) -> Bool[Tensor, "B R Xs Ys"]:
    """Return :func:`com_hull` of gathered surfaces.

    Go over the lines of corners; only the first and the last supporting corner of a line can be
    extreme.

    Line a lies between the window rows a - 1 and a, and has corners of both rows. With ``centres``,
    the line is moved by half a cell into row a, and has the centres of this row.
    """
    # 1. The ground by phase, the thresholds and the centres.
    window_x, window_y = window_cells(heightmap, bottom)
    phases = phases_of(heightmap, bottom, stride)
    # Go over the cells of the window, for all placements at once.
    threshold = z - tolerance
    centre = com[..., None, None].double()
    inset, rows_a_line, lines = (HALF_CELL, 1, window_x) if centres else (0, 2, window_x + 1)
    # 2. The steepest slopes so far: up and down, to the left and to the right.
    high: list[Tensor] = []
    low: list[Tensor] = []
    extremes = torch.full((4, *z.shape), -torch.inf, dtype=torch.float64, device=z.device)
    max_left, max_right, neg_min_left, neg_min_right = extremes.unbind()
    for line in range(lines):
        # 3. The supporting cells of the rows at the line; beyond the last row there are none.
        if line < window_x:
            first, last = _row_support(phases, bottom[:, :, line, :window_y], threshold, line)
            high = [*high, last][-rows_a_line:]
            low = [*low, first][-rows_a_line:]
        else:
            high, low = high[-1:], low[-1:]
        # 4. Slopes to the line's first and last corner.
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
    # 5. One chord must pass above the centre and one below it.
    held: Tensor = chords_hold(max_left + max_right, neg_min_left + neg_min_right)
    return held


@in_rows(3, lambda *arguments: rows_at_once(arguments[2].shape[1:]))
def _support_count(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"],
    z: Float[Tensor, "B R Xs Ys"],
    tolerance: float,
    stride: int,
) -> Int[Tensor, "B R Xs Ys"]:
    """Return :func:`support_count` of gathered surfaces."""
    window_x, window_y = window_cells(heightmap, bottom)
    phases = phases_of(heightmap, bottom, stride)
    threshold = z - tolerance
    count = torch.zeros(z.shape, dtype=torch.int32, device=z.device)
    for u in range(window_x):
        for v in range(window_y):
            gap = window_cell(phases, u, v, *z.shape[2:]) - bottom[:, :, u, v, None, None]
            count = count + (gap >= threshold)
    return count


def _row_support(
    phases: Tensor, bottom: Tensor, threshold: Tensor, u: int
) -> tuple[Float[Tensor, "B R Xs Ys"], Float[Tensor, "B R Xs Ys"]]:
    """Return the lower edge of the first and the upper edge of the last supporting cell of row u.

    The unit is a cell; the result is (+inf, -inf) where no cell supports.
    """
    xs, ys = threshold.shape[2:]
    first = torch.full_like(threshold, torch.inf)
    last = torch.full_like(threshold, -torch.inf)
    for v, cell in enumerate(bottom.unbind(dim=2)):
        gap = window_cell(phases, u, v, xs, ys) - cell[:, :, None, None]
        supports = gap >= threshold
        first = torch.where(supports, first.clamp(max=v), first)
        last = last.masked_fill(supports, v + 1)
    return first, last
