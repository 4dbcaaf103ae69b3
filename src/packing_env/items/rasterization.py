"""Rasterisation of solids to heightmaps: conservative and exact per cell, in float64 torch.

The extremes of a triangle over a cell are at the ends of its edges, clipped to the cell (Liang and
Barsky, ACM Trans. Graph. 1984), or at corners of the cell inside the triangle. Cells are open: they
are shrunk by `CELL_MARGIN` on each side.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.items.maps import ItemMaps
from packing_env.items.meshes.mesh import Mesh
from packing_env.items.rotations import quarter_turn_plan

CELL_MARGIN = 1e-6
"""Geometry that overlaps a cell by less than this share of a cell does not occupy it."""
MAX_CELLS = 1 << 26
"""Largest number of cells of a window that is allocated."""
_LONGEST = 1 << 31
"""Largest length in cells; anything longer is wider than any container."""
CHUNK = 1 << 18
"""Number of pairs of a primitive and a cell that are processed at once."""
TRIANGLE_BYTES, CELL_BYTES = 450, 24
"""Measured bytes per triangle of an orientation, and per cell of a window."""
SLIVER = 1e-9
"""A triangle whose projection from above is thinner than this share of a cell counts as vertical.
"""


def rasterize(
    mesh: Mesh,
    rotation: Float[Tensor, "3 3"],
    cell: float,
    device: torch.device | str | None = None,
) -> ItemMaps:
    """Compute the heightmaps of a solid in one orientation; see `rasterize_many`."""
    return rasterize_many(mesh, rotation[None], cell, device)[0]


def rasterize_many(
    mesh: Mesh,
    rotations: Float[Tensor, "R 3 3"],
    cell: float,
    device: torch.device | str | None = None,
) -> list[ItemMaps]:
    """Compute the heightmaps of a solid in several orientations.

    Top is the maximum of the surface over the open area of a cell, bottom the minimum. The window
    starts at the solid's smallest x and y. Rotations that differ from an earlier one by quarter
    turns about z use its maps, turned on the grid: the pi/2 set needs only six rasterisations.

    Args:
        mesh: the solid, metres.
        rotations: [R, 3, 3], from the frame of `mesh`.
        cell: side of a cell, metres.
        device: device of the computation and of the maps; by default the device of the mesh.

    Raises:
        ValueError: The cell is not positive, or a window would exceed `MAX_CELLS`.
    """
    if not cell > 0.0:
        raise ValueError(f"cell must be positive, got {cell}")
    # 1. Find the rotations that are not quarter turns of each other.
    device = torch.device(device) if device is not None else mesh.vertices.device
    rotations = rotations.to(device, torch.float64)
    base, turns = quarter_turn_plan(rotations)
    distinct = sorted(set(base))
    mesh = replace(mesh, vertices=mesh.vertices.to(device), faces=mesh.faces.to(device))
    # 2. Rasterise them in groups; the maps of other rotations are quarter turns of these maps.
    edges = _undirected_edges(mesh.faces)
    maps: dict[int, ItemMaps] = {}
    group = max(1, CHUNK // len(edges))
    for start in range(0, len(distinct), group):
        ids = distinct[start : start + group]
        solid = _Posed.make(mesh, edges, rotations[ids], cell)
        maps.update(zip(ids, solid.rasterize(), strict=True))
    return [maps[b].rotated(k) for b, k in zip(base, turns, strict=True)]


def window_sizes(mesh: Mesh, rotations: Float[Tensor, "R 3 3"], cell: float) -> Int[Tensor, "R 2"]:
    """Return the cells (w, h) of the windows of the maps in some orientations."""
    points = rotations[:, :2] @ mesh.vertices.mT
    return window_cells((points.amax(2) - points.amin(2)) / cell)


def scratch_bytes(num_faces: int, sizes: Tensor) -> int:
    """Estimate the bytes for rasterising windows of [R, 2] cells, not counting one chunk."""
    together = min(len(sizes), max(1, CHUNK // (3 * num_faces // 2 + 1)))
    cells = min(float(sizes.double().prod(1).sum()), 1e300)
    return TRIANGLE_BYTES * together * num_faces + CELL_BYTES * int(cells)


def _undirected_edges(faces: Int[Tensor, "F 3"]) -> Int[Tensor, "E 2"]:
    sides = torch.stack([faces, faces.roll(-1, 1)], -1).view(-1, 2).sort(1).values
    num_vertices = int(faces.max()) + 1
    key = torch.unique(sides[:, 0] * num_vertices + sides[:, 1])
    return torch.stack([key // num_vertices, key % num_vertices], 1)


def window_cells(extent: Float[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
    """Return the number of cells that lengths overlap; nearly whole lengths are rounded."""
    return torch.ceil(extent - CELL_MARGIN).clamp(min=1, max=_LONGEST).to(torch.int64)


@dataclass(frozen=True, eq=False)
class _Posed:
    """A solid in K orientations; x and y are in cells of the windows, and z is in metres."""

    points: Float[Tensor, "K V 3"]
    faces: Int[Tensor, "F 3"]
    edges: Int[Tensor, "E 2"]
    size: Int[Tensor, "K 2"]
    start: Int[Tensor, " K"]
    rotations: Float[Tensor, "K 3 3"]
    low: Float[Tensor, "K 3"]
    cell: float

    @classmethod
    def make(cls, mesh: Mesh, edges: Tensor, rotations: Tensor, cell: float) -> _Posed:
        """Rotate the solid; lay out the windows one after another in a flat buffer."""
        points = (rotations[:, None] * mesh.vertices[None, :, None]).sum(-1)
        low = points.amin(1)
        points = points - low[:, None]
        points[..., :2] /= cell
        size = window_cells(points[..., :2].amax(1))
        cells = size.prod(1)
        if float(size.double().prod(1).max()) > MAX_CELLS:
            raise ValueError(
                f"{mesh.name}: a window of {size.amax(0).tolist()} cells of {cell} m is too large; "
                "check the unit of the mesh, or use larger cells"
            )
        start = cells.cumsum(0) - cells
        return cls(points, mesh.faces, edges, size, start, rotations, low, cell)

    def rasterize(self) -> list[ItemMaps]:
        """Compute the heightmaps of each orientation."""
        total = int(self.size.prod(1).sum())
        top = self.points.new_full((total,), -torch.inf)
        bottom = self.points.new_full((total,), torch.inf)
        # 1. Edges, clipped to the cells.
        triangles, owner = self.points[:, self.faces].flatten(0, 1), self._owner(len(self.faces))
        edges = self.points[:, self.edges].flatten(0, 1), self._owner(len(self.edges))
        walls = self._walls_on_grid_lines(triangles, owner)
        ends, edge_owner = (torch.cat(pair) for pair in zip(edges, walls, strict=True))
        for cells, high, low in self._clipped_edges(ends, edge_owner):
            top.scatter_reduce_(0, cells, high, "amax")
            bottom.scatter_reduce_(0, cells, low, "amin")
        # 2. Corners of cells inside triangles.
        for cells, height in self._covered_corners(triangles, owner):
            top.scatter_reduce_(0, cells, height, "amax")
            height = torch.where(height > -torch.inf, height, torch.inf)
            bottom.scatter_reduce_(0, cells, height, "amin")
        return [self._maps(k, top, bottom) for k in range(len(self.size))]

    def _owner(self, count: int) -> Tensor:
        """Return the orientation [K * count] of each of `count` primitives per orientation."""
        return torch.arange(len(self.size), device=self.size.device).repeat_interleave(count)

    def _maps(self, k: int, top: Tensor, bottom: Tensor) -> ItemMaps:
        """Cut out the maps of orientation k, which start at the lowest point of the solid.

        A steep tip on a grid line is a little lower than its clipped faces. The bottom map is
        lowered by this difference; otherwise an item could rest below the floor.
        """
        width, depth = self.size[k].tolist()
        here = slice(int(self.start[k]), int(self.start[k]) + width * depth)
        upper, lower = top[here], bottom[here] - bottom[here].min()
        upper, lower = (heights.float().view(width, depth) for heights in (upper, lower))
        return ItemMaps(upper, lower, self.rotations[k], -self.low[k], self.cell)

    def _walls_on_grid_lines(self, triangles: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges of triangles on a grid line, moved into the cell on their inner side.

        Such a triangle has no area in any cell, so an open or very thin part would otherwise
        vanish.
        """
        a, b, c = triangles.unbind(1)
        normal = torch.linalg.cross(b - a, c - a)
        low, high = triangles[..., :2].amin(1), triangles[..., :2].amax(1)
        first, last = _cell_range(low, high)
        on_line = last < first
        facing = normal[:, :2].abs() > 0.5 * normal.norm(dim=1, keepdim=True)
        wall = (on_line & (facing | on_line.all(1, keepdim=True))).any(1)
        inner = (low + high).div(2.0).round() - (normal[:, :2] >= 0).double()
        inner = torch.minimum(inner.clamp(min=0), self.size[owner] - 1.0) + 0.5
        moved = triangles.clone()
        moved[..., :2] = torch.where(on_line[:, None], inner[:, None], triangles[..., :2])
        moved = moved[wall]
        sides = torch.stack([moved, moved.roll(-1, 1)], 2).flatten(0, 1)
        return sides, owner[wall].repeat_interleave(3)

    def _clipped_edges(
        self, ends: Tensor, owner: Tensor
    ) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yield cells, and the highest and lowest z of each edge within them, chunk by chunk."""
        first, last = _cell_range(ends[..., :2].amin(1), ends[..., :2].amax(1))
        first = first.clamp(min=0)
        last = torch.minimum(last, self.size[owner] - 1)
        for edge, at in pairs(first, last):
            a, step = ends[edge, 0], ends[edge, 1] - ends[edge, 0]
            enter, leave = _inside(a[:, :2], step[:, :2], at.double())
            hit = enter <= leave
            z_in = a[:, 2] + enter * step[:, 2]
            z_out = a[:, 2] + leave * step[:, 2]
            high = torch.where(hit, torch.maximum(z_in, z_out), -torch.inf)
            low = torch.where(hit, torch.minimum(z_in, z_out), torch.inf)
            yield self._flat(owner[edge], at), high, low

    def _covered_corners(self, triangles: Tensor, owner: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield cells, and the height of each triangle at their corners (-inf outside)."""
        a, b, c = triangles.unbind(1)
        normal = torch.linalg.cross(b - a, c - a)
        # The plane of a vertical triangle has no height at a corner; its edges cover this case.
        longest = (triangles.roll(-1, 1) - triangles)[..., :2].norm(dim=2).amax(1)
        flat = normal[:, 2].abs() <= SLIVER * longest
        first, last = _corner_range(triangles[..., :2].amin(1), triangles[..., :2].amax(1))
        first = first.clamp(min=0)
        last = torch.minimum(last, 2 * self.size[owner] - 1)
        last = torch.where(flat[:, None], first - 1, last)
        for triangle, at in pairs(first, last):
            cell = at // 2
            point = cell.double() + CELL_MARGIN + (at % 2).double() * (1.0 - 2.0 * CELL_MARGIN)
            corners = triangles[triangle]
            n = normal[triangle]
            away = point - corners[:, 0, :2]
            height = corners[:, 0, 2] - (n[:, :2] * away).sum(1) / n[:, 2]
            z = corners[..., 2]
            height = torch.minimum(torch.maximum(height, z.amin(1)), z.amax(1))
            covered = _covers(corners[..., :2], point, n[:, 2])
            yield self._flat(owner[triangle], cell), torch.where(covered, height, -torch.inf)

    def _flat(self, owner: Tensor, at: Tensor) -> Tensor:
        """Return the positions of cells [P, 2] of orientations [P] in the flat buffer."""
        return self.start[owner] + at[:, 0] * self.size[owner, 1] + at[:, 1]


def _cell_range(low: Tensor, high: Tensor) -> tuple[Int[Tensor, "P 2"], Int[Tensor, "P 2"]]:
    """Return the first and last cell whose open area an interval overlaps; last < first if none."""
    first = torch.ceil(low - 1.0 + CELL_MARGIN).to(torch.int64)
    last = torch.floor(high - CELL_MARGIN).to(torch.int64)
    return first, last


def _corner_range(low: Tensor, high: Tensor) -> tuple[Int[Tensor, "P 2"], Int[Tensor, "P 2"]]:
    """Return the first and last corner in an interval; corners 2 i and 2 i + 1 bound cell i."""
    cell, last_cell = low.floor(), high.floor()
    corners = low.new_tensor([CELL_MARGIN, 1.0 - CELL_MARGIN])
    first = 2 * cell + ((low - cell)[..., None] > corners).sum(-1)
    last = 2 * last_cell - 1 + ((high - last_cell)[..., None] >= corners).sum(-1)
    return first.to(torch.int64), last.to(torch.int64)


def pairs(first: Int[Tensor, "F D"], last: Int[Tensor, "F D"]) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the pairs of a primitive and a position in its range [P, D], `CHUNK` at a time."""
    span = (last - first + 1).clamp(min=0)
    count = span.prod(1)
    nonempty = count.nonzero().flatten()
    count, span, first = count[nonempty], span[nonempty], first[nonempty]
    total = count.cumsum(0)
    begin = 0
    while begin < len(nonempty):
        # As many primitives as fill a chunk, but at least one.
        done = int(total[begin - 1]) if begin else 0
        end = max(int(torch.searchsorted(total, done + CHUNK, right=True)), begin + 1)
        here = slice(begin, end)
        row = torch.arange(begin, end, device=nonempty.device).repeat_interleave(count[here])
        local = torch.arange(len(row), device=nonempty.device) + done - (total - count)[row]
        steps = []
        for size in span[row].flip(1).unbind(1):  # the last axis varies fastest
            steps.append(local % size)
            local = local // size
        yield nonempty[row], first[row] + torch.stack(steps[::-1], 1)
        begin = end


def _inside(a: Tensor, step: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """Compute where segments a + t step, t in [0, 1], enter and leave shrunk cells, as t."""
    low, high = cell + CELL_MARGIN - a, cell + 1.0 - CELL_MARGIN - a
    still = step == 0.0
    divisor = torch.where(still, 1.0, step)
    one, other = low / divisor, high / divisor
    outside = (low > 0.0) | (high < 0.0)
    enter = torch.where(still, torch.where(outside, torch.inf, 0.0), torch.minimum(one, other))
    leave = torch.where(still, torch.where(outside, -torch.inf, 1.0), torch.maximum(one, other))
    return enter.amax(1).clamp(0.0, torch.inf), leave.amin(1).clamp(-torch.inf, 1.0)


def _covers(
    corners: Float[Tensor, "P 3 2"], point: Float[Tensor, "P 2"], area: Float[Tensor, " P"]
) -> Bool[Tensor, " P"]:
    """Return whether each point lies in its projected triangle (edges included)."""
    side = corners.roll(-1, 1) - corners
    away = point[:, None] - corners
    turn = side[..., 0] * away[..., 1] - side[..., 1] * away[..., 0]
    return (turn * area.sign()[:, None] >= 0.0).all(1)
