"""Checks of a plan's items, in an episode that replays the plan item by item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from packing_env.reference import boxes, constraints, map_constraints, maps, stability
from packing_env.reference.claims import RELATIVE, ItemClaim, PlanClaim, Violation, metres
from packing_env.reference.episode import Episode, Rules
from packing_env.reference.raster import MARGIN, Columns, cuboid, rasterize
from packing_env.reference.solids import measure


@dataclass(frozen=True, eq=False)
class _Placed:
    """An item in its place.

    Attributes:
        item: Its claims.
        columns: Its lowest and highest points over each cell, metres above the container's floor.
        bottom: ``[U, V]`` float32 bottom map, metres above its own lowest point. If a tip of the
            solid lies on a grid line, and therefore in no cell, the map is lower than the solid by
            the height of this tip.
        solids: The item for the episode, with its centre of mass rounded to 1/64 cell from the
            window's corner; one item per way of rounding if a coordinate is on a tie.
        low: ``[3]`` lower corner of its bounding box, metres.
        high: ``[3]`` upper corner.
    """

    item: ItemClaim
    columns: Columns
    bottom: np.ndarray
    solids: list[maps.Item]
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(cls, item: ItemClaim, cell: float) -> _Placed:
        """Rasterize an item in its place."""
        low, high = item.points.min(0), item.points.max(0)
        if item.is_upright_cuboid:
            columns = cuboid(low, high, cell)
        else:
            columns = rasterize(item.points[item.solid.faces], cell)
        bottom = (columns.bottom - columns.floor).astype(maps.FLOAT)
        top = (columns.top - low[2]).astype(maps.FLOAT)
        handling = constraints.Handling.of(item.handling)
        solids = [
            maps.Item([top], [bottom], [com], item.volume, handling=handling)
            for com in _centres(item, columns.corner, cell)
        ]
        return cls(item, columns, bottom, solids, low, high)


def _centres(item: ItemClaim, corner: tuple[int, int], cell: float) -> list[tuple[int, int]]:
    """Return the centre of mass, in 1/64 cell from a corner in cells; both values if tied."""
    volume, com = measure(item.solid)
    if abs(volume - item.volume) > RELATIVE * volume and item.solid.com is not None:
        com = item.solid.com
    world = item.rotation @ com + item.translation
    place = 64.0 * (world[:2] / cell - np.array(corner))
    xs, ys = (sorted({round(p - RELATIVE), round(p + RELATIVE)}) for p in place.tolist())
    return list(product(xs, ys))


class MapChecks:
    """The episode of the packed items, with the checks of the next item.

    Args:
        plan: The plan to check.
        notes: List that receives the claims that could not be checked.
        whole_cells: Whether tops are rounded to whole cells, as in a task of such cuboids.
    """

    def __init__(self, plan: PlanClaim, notes: list[str], whole_cells: bool = False) -> None:
        self.plan, self.notes = plan, notes
        held = plan.constraints
        rules = Rules(
            plan.container[2],
            plan.cell,
            contact_tol=plan.contact_tol,
            whole_cells=whole_cells,
            constraints=constraints.Constraints.of(held, plan.cell) if held else None,
        )
        self.episode = Episode(plan.grid, [], rules, floor=plan.floor)
        self.packed: list[_Placed] = []
        self._next: _Placed | None = None
        self._case: map_constraints.MapCase | None = None

    @property
    def height(self) -> float:
        """Highest point, metres."""
        return float(self.episode.heightmap.max())

    def violations(self, item: ItemClaim) -> Iterator[Violation]:
        """Yield the wrong claims about an item."""
        yield from self._inside(item)
        placed = self._next = _Placed.of(item, self.plan.cell)
        yield from self._under_the_lid(placed)
        yield from self._clear_of_cuboids(placed)
        yield from self._at_rest(placed)
        yield from self._where_claimed(placed)
        yield from self._supported(placed)
        here = placed.columns.footprint
        columns = float((placed.columns.top[here] - placed.columns.bottom[here]).sum())
        yield from item.wrong_volume(columns * self.plan.cell**2, "columns", self.notes)
        yield from self._constrained(placed)

    def put(self, item: ItemClaim) -> None:
        """Add the item whose :meth:`violations` were computed last."""
        placed = self._next
        assert placed is not None
        self.packed.append(placed)
        if self._case is not None:
            self._case.load.put(self._case)
        self.episode.items.append(placed.solids[0])
        x, y = placed.columns.corner
        self.episode.raise_heightmap(len(self.packed) - 1, 0, x, y, maps.FLOAT(item.z))

    def _inside(self, item: ItemClaim) -> Iterator[Violation]:
        """Check that the item is inside the four walls, on whole cells, and above the floor."""
        low, high = item.points.min(0), item.points.max(0)
        margin = MARGIN * self.plan.cell
        for axis in (0, 1):
            length = min(self.plan.container[axis], self.plan.grid[axis] * self.plan.cell)
            if not (low[axis] >= -margin and high[axis] <= length + margin):
                cells = ", the whole cells of the container"
                yield item.outside(axis, length, low[axis], high[axis], cells)
        if low[2] < -self.plan.slack:
            yield item.wrong("outside", "above the floor", f"z = {metres(low[2])}")

    def _under_the_lid(self, placed: _Placed) -> Iterator[Violation]:
        lid = self.plan.container[2]
        top = float(placed.columns.top.max())
        if top > lid + maps.lid_tolerance(lid) + self.plan.slack:
            yield placed.item.wrong("lid", f"below {metres(lid)}", f"its top at {metres(top)}")

    def _where_claimed(self, placed: _Placed) -> Iterator[Violation]:
        """Check that ``x``, ``y`` and ``z`` agree with the translation."""
        item, corner, floor = placed.item, placed.columns.corner, float(placed.low[2])
        if item.corner != corner:
            claimed = ", ".join(metres(cells * self.plan.cell) for cells in item.corner)
            begins = f"({metres(placed.low[0])}, {metres(placed.low[1])})"
            yield item.wrong(
                "x, y",
                f"cell {item.corner} = ({claimed})",
                f"its solid begins in cell {corner}, at {begins}",
            )
        if abs(item.z - floor) > self.plan.slack:
            yield item.wrong("z", metres(item.z), f"its lowest point at {metres(floor)}")

    def _clear_of_cuboids(self, placed: _Placed) -> Iterator[Violation]:
        """Check that upright cuboids do not overlap; this compares them without the grid."""
        margin = MARGIN * self.plan.cell
        for other in self.packed:
            if placed.item.is_upright_cuboid and other.item.is_upright_cuboid:
                high = np.minimum(placed.high, other.high)
                shared = high - np.maximum(placed.low, other.low)
                if (shared > (margin, margin, self.plan.slack)).all():
                    yield placed.item.overlaps(other.item, shared)

    def _at_rest(self, placed: _Placed) -> Iterator[Violation]:
        """Check that the item is at its drop height, neither inside the ground nor above it."""
        x, y = placed.columns.corner
        floor = float(placed.low[2])
        rest = float(maps.drop_height(self.episode.heightmap, placed.bottom, x, y))
        if abs(rest - floor) <= self.plan.slack:
            return
        w, h = placed.bottom.shape
        level = self.episode.heightmap[x : x + w, y : y + h] - placed.bottom
        u, v = (int(i) for i in np.unravel_index(np.argmax(level), level.shape))
        at = [metres((cell + 0.5) * self.plan.cell) for cell in (x + u, y + v)]
        under = f"{self._name_under(x + u, y + v)} at x = {at[0]}, y = {at[1]}"
        if rest > floor:
            yield placed.item.wrong(
                "path" if self._is_exact(placed) else "overlap",
                f"put down from above at z = {metres(floor)}",
                f"its underside {metres(rest - floor)} below the top of {under}",
            )
        else:
            yield placed.item.wrong(
                "floating",
                f"at rest at z = {metres(floor)}",
                f"z = {metres(rest)} when dropped there, on {under}",
            )

    def _supported(self, placed: _Placed) -> Iterator[Violation]:
        """Check stability and support ratio; for meshes, up to the rounding of heights."""
        item, rule, tol = placed.item, self.plan.stability, self.plan.contact_tol
        slack = 0.0 if self._is_exact(placed) else self.plan.slack
        heights, rest = self.episode.heightmap, maps.FLOAT(item.z)
        touches = [
            stability.touch_at(heights, placed.bottom, *item.corner, rest, solid.com[0], tolerance)
            for tolerance in dict.fromkeys((tol, tol + slack, tol - slack))
            for solid in placed.solids
        ]
        ratios = [max(1, touch.support) / touch.area for touch in touches]
        if rule in boxes.ON_CELLS:
            yield from self._on_pile(placed)
        elif not any(stability.is_stable(rule, touch) for touch in touches):
            reason = f"not: {ratios[0]:.1%} of it is supported"
            yield item.wrong("stability", f"stable by {rule}", reason)
        if not min(ratios) - RELATIVE <= item.support_ratio <= max(ratios) + RELATIVE:
            yield item.wrong("support_ratio", f"{item.support_ratio:.6f}", f"{ratios[0]:.6f}")

    def _on_pile(self, placed: _Placed) -> Iterator[Violation]:
        """Check stability by a rule about piles of cuboids."""
        rule, pile = self.plan.stability, [*self.packed, placed]
        if not all(each.item.is_of_whole_cells(self.plan.cell) for each in pile):
            reason = "not only cuboids of whole cells"
            yield placed.item.wrong("stability", f"stable by {rule}", reason)
            return
        *below, box = (
            self.episode.box(each.solids[0], 0, *each.item.corner, maps.FLOAT(each.item.z))
            for each in pile
        )
        if not boxes.is_stable(rule, below, box):
            reason = "not: the pile does not stand"
            yield placed.item.wrong("stability", f"stable by {rule}", reason)

    def _constrained(self, placed: _Placed) -> Iterator[Violation]:
        """Check the constraints; only violations under every rounding of heights are reported."""
        item = placed.item
        slack = 0.0 if self._is_exact(placed) else self.plan.slack
        rises = dict.fromkeys((slack, 0.0))
        rests = [maps.FLOAT(maps.FLOAT(item.z) + maps.FLOAT(rise)) for rise in rises]
        places = product(rests, placed.solids)
        cases = [self.episode.case(solid, 0, *item.corner, z) for z, solid in places]
        self._case = cases[0]
        first, *others = (map_constraints.broken(case) if case else {} for case in cases)
        for rule, reason in first.items():
            if all(rule in other for other in others):
                yield item.wrong(rule, f"{rule}={self.plan.constraints.get(rule)}", reason)

    def _is_exact(self, placed: _Placed) -> bool:
        """Test if all items are upright cuboids, whose maps have no rounding."""
        return all(each.item.is_upright_cuboid for each in (placed, *self.packed))

    def _name_under(self, x: int, y: int) -> str:
        """Name the last item over a cell; without one, the floor or a pre-placed box."""
        for other in reversed(self.packed):
            u, v = x - other.columns.corner[0], y - other.columns.corner[1]
            w, h = other.bottom.shape
            if 0 <= u < w and 0 <= v < h and other.columns.footprint[u, v]:
                return f"item {other.item.order} ({other.item.name})"
        return "a pre-placed box" if self.episode.heightmap[x, y] > 0 else "the floor"
