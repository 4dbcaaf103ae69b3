"""The reference's own rasteriser: heights of placed solids over each cell of the container.

Each triangle is cut into pieces that each lie over one cell (Sutherland and Hodgman, Commun. ACM
1974, along x and then along y). The extremes of a piece are at its corners. Cells are open:
geometry that extends less than :data:`MARGIN` of a cell into a cell does not occupy it. Heights are
float64 metres above the container's floor.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

MARGIN = 1e-6
"""Share of a cell."""
BLOCK = 1 << 17
"""Number of pieces that are cut at once."""


@dataclass(frozen=True, eq=False)
class Columns:
    """A solid on the container's grid.

    Attributes:
        corner: Lower corner ``(x, y)`` of its window in cells; it may lie outside the container.
        top: ``[U, V]`` highest point over each cell of the window; -inf outside the footprint.
        bottom: ``[U, V]`` lowest point over each cell; +inf outside the footprint.
    """

    corner: tuple[int, int]
    top: np.ndarray
    bottom: np.ndarray

    @property
    def footprint(self) -> np.ndarray:
        """``[U, V]`` bool, True for the cells that the solid occupies."""
        return np.isfinite(self.bottom)

    @property
    def floor(self) -> float:
        """The lowest point."""
        return float(self.bottom.min())


def rasterize(triangles: np.ndarray, cell: float) -> Columns:
    """Rasterize a solid given by its surface ``[T, 3, 3]`` (triangle, corner, x y z), metres.

    A closed surface passes over every cell below the solid, so the interior need not be filled. A
    part that is thinner than the margin is kept: a wall on a grid line counts for the cell behind
    it.
    """
    corners = triangles / np.array([cell, cell, 1.0])
    low, high = corners[..., :2].min((0, 1)), corners[..., :2].max((0, 1))
    corner, size = _window(low, high)
    inner = corners - np.array([*corner, 0.0])
    surface = np.concatenate((inner, _walls_on_grid_lines(inner, size)))
    top = np.full(size, -np.inf)
    bottom = np.full(size, np.inf)
    for block in _blocks(surface):
        pieces, _, column = _cut(block, 0)
        pieces, which, row = _cut(pieces, 1)
        column = column[which]
        there = (column >= 0) & (column < size[0]) & (row >= 0) & (row < size[1])
        place = column[there], row[there]
        np.maximum.at(top, place, pieces[there, :, 2].max(1))
        np.minimum.at(bottom, place, pieces[there, :, 2].min(1))
    return Columns(corner, top, bottom)


def cuboid(lower: np.ndarray, upper: np.ndarray, cell: float) -> Columns:
    """Return the columns of the box between two corners ``[3]``, metres."""
    corner, size = _window(lower[:2] / cell, upper[:2] / cell)
    return Columns(corner, np.full(size, upper[2]), np.full(size, lower[2]))


def _window(low: np.ndarray, high: np.ndarray) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return lower corner and size of the window between two points; at least one cell per axis."""
    x, y = np.floor(low + MARGIN).astype(int).tolist()
    w, h = np.maximum(np.ceil(high - MARGIN).astype(int) - (x, y), 1).tolist()
    return (x, y), (w, h)


def _blocks(triangles: np.ndarray) -> Iterator[np.ndarray]:
    """Split triangles into blocks whose bounding boxes contain about :data:`BLOCK` cells each."""
    span = triangles[..., :2].max(1) - triangles[..., :2].min(1)
    cells = np.cumsum(np.prod(np.ceil(span) + 1, axis=1))
    edges = np.searchsorted(cells, np.arange(BLOCK, cells[-1], BLOCK), side="right")
    yield from (part for part in np.split(triangles, np.unique(edges)) if len(part))


def _cut(polygons: np.ndarray, axis: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cut convex polygons ``[P, n, 3]`` along an axis into one piece per cell that they overlap.

    Returns:
        The pieces ``[Q, n + 2, 3]`` (shorter ones are padded with their first corner), the index of
        each piece's polygon, and its cell along the axis.
    """
    along = polygons[..., axis]
    first = np.ceil(along.min(1) - 1.0 + MARGIN).astype(int)
    last = np.floor(along.max(1) - MARGIN).astype(int)
    count = np.maximum(last - first + 1, 0)
    which = np.repeat(np.arange(len(polygons)), count)
    cell = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count) + first[which]
    pieces = polygons[which]
    for inset, sign in ((MARGIN, 1.0), (1.0 - MARGIN, -1.0)):
        pieces, there = _clip(pieces, axis, cell[:, None] + inset, sign)
        pieces, which, cell = pieces[there], which[there], cell[there]
    return pieces, which, cell


def _clip(
    polygons: np.ndarray, axis: int, bound: np.ndarray, sign: float
) -> tuple[np.ndarray, np.ndarray]:
    """Keep the part of polygons ``[P, n, 3]`` above the bound ``[P, 1]`` (sign 1) or below it (-1).

    Returns:
        ``[P, n + 1, 3]`` (shorter ones are padded with their first corner), and a bool per polygon:
        True if some part of it remains.
    """
    count = polygons.shape[1] + 1
    depth = sign * (polygons[..., axis] - bound)
    inside = depth >= 0.0
    crosses = inside != np.roll(inside, -1, 1)
    difference = depth - np.roll(depth, -1, 1)
    share = depth / np.where(crosses, difference, 1.0)
    met = polygons + share[..., None] * (np.roll(polygons, -1, 1) - polygons)
    met[..., axis] = bound
    corners = np.stack((polygons, met), 2).reshape(len(polygons), -1, 3)
    remains = np.stack((inside, crosses), 2).reshape(len(polygons), -1)
    order = np.argsort(~remains, axis=1, kind="stable")[:, :count]
    clipped = np.take_along_axis(corners, order[..., None], 1)
    clipped = np.where(np.take_along_axis(remains, order, 1)[..., None], clipped, clipped[:, :1])
    return clipped, np.any(remains, axis=1)


def _walls_on_grid_lines(triangles: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Move the triangles that lie on a grid line to the middle of the cell behind them.

    Otherwise, triangles within the margin of the line would count for no cell. A triangle is such a
    wall if its normal is within 60 degrees of the axis, or if it is within the margin of a line
    along both axes.
    """
    low, high = triangles[..., :2].min(1), triangles[..., :2].max(1)
    line = np.round((low + high) / 2.0)
    on_line = (low > line - MARGIN) & (high < line + MARGIN)
    normal = np.cross(triangles[:, 1] - triangles[:, 0], triangles[:, 2] - triangles[:, 0])
    faces = np.abs(normal[:, :2]) > 0.5 * np.linalg.norm(normal, axis=1, keepdims=True)
    wall = (on_line & (faces | on_line.all(1, keepdims=True))).any(1)
    behind = line - (normal[:, :2] >= 0.0)
    middle = np.clip(behind, 0, np.array(size) - 1) + 0.5
    moved = triangles.copy()
    moved[..., :2] = np.where(on_line[:, None], middle[:, None], triangles[..., :2])
    return moved[wall]
