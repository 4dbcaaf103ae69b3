"""Checks of a plan's items in an episode of those packed before, which is played item by item."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

from packing_env.reference import boxes, constraints, maps, stability
from packing_env.reference.claims import (
    RELATIVE,
    ItemClaim,
    PlanClaim,
    Violation,
    metres,
    number,
)
from packing_env.reference.episode import Episode, Placement, Rules
from packing_env.reference.raster import MARGIN, Columns, cuboid, rasterize
from packing_env.reference.solids import is_one_closed_shell, measure

KILOGRAMS = ("weight", "max_load")
"""Attributes that a plan gives in kilograms, and the rules read in milligrams."""


@dataclass(frozen=True, eq=False)
class _Placed:
    """An item in its place.

    Attributes:
        columns: Its extremes over each cell, metres above the container's floor.
        bottom: ``[U, V]`` float32 bottom map, metres above its lowest point.
        top: ``[U, V]`` float32 top map, metres above its lowest point.
        low: ``[3]`` lower corner of its bounding box, metres.
        high: ``[3]`` upper corner.
    """

    columns: Columns
    bottom: np.ndarray
    top: np.ndarray
    low: np.ndarray
    high: np.ndarray


def _box(item: ItemClaim, placed: _Placed, cell: float) -> boxes.Box:
    (x, y), (w, h) = item.corner, placed.bottom.shape
    z, d = round(item.z / cell), round(float(placed.top.max()) / cell)
    return (x, y, z, x + w, y + h, z + d)


class MapChecks:
    """The episode of the packed items, and the checks of the next item in it.

    Args:
        plan: The plan to check.
        notes: List that receives the claims that could not be checked.
        whole_cells: Round tops to whole cells, as in a task of cuboids of whole cells.
    """

    def __init__(self, plan: PlanClaim, notes: list[str], whole_cells: bool = False) -> None:
        self.plan, self.notes = plan, notes
        held = plan.constraints
        rules = Rules(
            plan.container[2],
            plan.cell,
            whole_cells=whole_cells,
            constraints=constraints.Constraints.of(dict(held), plan.cell) if held else None,
        )
        self.episode = Episode(plan.grid, [], rules, floor=plan.floor)
        self.packed: list[tuple[ItemClaim, _Placed]] = []
        self._latest: tuple[ItemClaim, _Placed] | None = None
        self._case: constraints.Case | None = None

    @property
    def height(self) -> float:
        """Highest point, metres."""
        return float(self.episode.heightmap.max())

    def violations(self, item: ItemClaim) -> Iterator[Violation]:
        """Yield the claims of an item that do not hold."""
        low, high = item.points.min(0), item.points.max(0)
        yield from self._inside(item, low, high)
        placed = self._stand(item, low, high)
        yield from self._under_the_lid(item, placed)
        yield from self._clear_of_cuboids(item, placed)
        yield from self._at_rest(item, placed)
        yield from self._where_claimed(item, placed)
        yield from self._supported(item, placed)
        yield from self._volume(item, placed)
        yield from self._constrained(item, placed)

    def put(self, item: ItemClaim) -> None:
        """Add the item whose :meth:`violations` were computed last."""
        if self._latest is None or self._latest[0] is not item:
            raise ValueError(
                "put() takes the item of the latest violations() call; call that first"
            )
        self.packed.append(self._latest)
        if self._case is not None:
            constraints.put(self._case)
        placed = self._latest[1]
        solid = maps.Item([placed.top], [placed.bottom], [(0, 0)], item.volume)
        self.episode.items.append(solid)
        at_rest = Placement(True, maps.FLOAT(item.z))
        self.episode.raise_heightmap(len(self.packed) - 1, 0, *placed.columns.corner, at_rest)

    def _stand(self, item: ItemClaim, low: np.ndarray, high: np.ndarray) -> _Placed:
        if item.is_upright_cuboid:
            columns = cuboid(low, high, self.plan.cell)
        else:
            columns = rasterize(item.points[item.solid.faces], self.plan.cell)
        bottom = (columns.bottom - columns.floor).astype(maps.FLOAT)
        top = (columns.top - columns.floor).astype(maps.FLOAT)
        placed = _Placed(columns, bottom, top, low, high)
        self._latest = item, placed
        return placed

    def _inside(self, item: ItemClaim, low: np.ndarray, high: np.ndarray) -> Iterator[Violation]:
        """Check that the item is between the four walls, on whole cells, and above the floor."""
        margin = MARGIN * self.plan.cell
        for axis in (0, 1):
            length = min(self.plan.container[axis], self.plan.grid[axis] * self.plan.cell)
            if not (low[axis] >= -margin and high[axis] <= length + margin):
                yield item.wrong(
                    "outside",
                    f"{'xy'[axis]} within 0 .. {metres(length)}, the whole cells of the container",
                    f"{number(low[axis])} .. {metres(high[axis])}",
                )
        if low[2] < -self.plan.slack:
            yield item.wrong("outside", "above the floor", f"z = {metres(low[2])}")

    def _under_the_lid(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        lid = self.plan.container[2]
        top = float(placed.columns.top.max())
        if top > lid + maps.lid_tolerance(lid) + self.plan.slack:
            yield item.wrong("lid", f"below {metres(lid)}", f"its top at {metres(top)}")

    def _where_claimed(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        """Check that ``x``, ``y`` and ``z`` agree with the translation."""
        x, y = placed.columns.corner
        if item.corner != (x, y):
            yield item.wrong(
                "x, y",
                f"cell {item.corner} = ({metres(item.corner[0] * self.plan.cell)}, "
                f"{metres(item.corner[1] * self.plan.cell)})",
                f"its solid begins in cell ({x}, {y}), at "
                f"({metres(placed.low[0])}, {metres(placed.low[1])})",
            )
        floor = placed.columns.floor
        if abs(item.z - floor) > self.plan.slack:
            yield item.wrong("z", metres(item.z), f"its lowest point at {metres(floor)}")

    def _clear_of_cuboids(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        """Check that upright cuboids do not overlap; they are compared without the grid."""
        if not item.is_upright_cuboid:
            return
        margin = MARGIN * self.plan.cell
        for other, there in self.packed:
            if other.is_upright_cuboid:
                high = np.minimum(placed.high, there.high)
                shared = high - np.maximum(placed.low, there.low)
                if (shared > (margin, margin, self.plan.slack)).all():
                    yield item.wrong(
                        "overlap",
                        "no overlap",
                        f"{metres(*shared)} shared with item {other.order} ({other.name})",
                    )

    def _at_rest(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        """Check that the item is at its drop height: neither inside the ground nor above it."""
        x, y = placed.columns.corner
        floor = placed.columns.floor
        rest = float(maps.drop_height(self.episode.heightmap, placed.bottom, x, y))
        w, h = placed.bottom.shape
        level = self.episode.heightmap[x : x + w, y : y + h] - placed.bottom
        u, v = (int(i) for i in np.unravel_index(np.argmax(level), level.shape))
        under = self._name_under(x + u, y + v)
        where = (
            f"at x = {metres((x + u + 0.5) * self.plan.cell)}, "
            f"y = {metres((y + v + 0.5) * self.plan.cell)}"
        )
        if rest > floor + self.plan.slack:
            yield item.wrong(
                "path" if self._exact(item) else "overlap",
                f"put down from above at z = {metres(floor)}",
                f"its underside {metres(rest - floor)} below the top of {under} {where}",
            )
        elif rest < floor - self.plan.slack:
            yield item.wrong(
                "floating",
                f"at rest at z = {metres(floor)}",
                f"z = {metres(rest)} when dropped there, on {under} {where}",
            )

    def _supported(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        """Check stability and support ratio; for meshes within the rounding of heights."""
        tol, slack = self.plan.contact_tol, 0.0 if self._exact(item) else self.plan.slack
        heights, rest = self.episode.heightmap, maps.FLOAT(item.z)
        touches = [
            stability.touch_at(heights, placed.bottom, *item.corner, rest, com, tolerance)
            for tolerance in dict.fromkeys((tol, tol + slack, tol - slack))
            for com in self._centre(item, placed)
        ]
        rule = self.plan.stability
        ratios = [max(1, len(touch.cells)) / touch.area() for touch in touches]
        if rule in boxes.ON_CELLS:
            yield from self._on_pile(item, placed)
        elif not any(stability.is_stable(rule, touch) for touch in touches):
            yield item.wrong(
                "stability", f"stable by {rule}", f"not: {ratios[0]:.1%} of it is supported"
            )
        claimed = item.support_ratio
        if not min(ratios) - RELATIVE <= claimed <= max(ratios) + RELATIVE:
            yield item.wrong("support_ratio", f"{claimed:.6f}", f"{ratios[0]:.6f}")

    def _on_pile(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        """Check stability by a rule of piles of cuboids."""
        rule, cell = self.plan.stability, self.plan.cell
        pile = [*self.packed, (item, placed)]
        if not all(one.is_of_whole_cells(cell) for one, _ in pile):
            yield item.wrong("stability", f"stable by {rule}", "not only cuboids of whole cells")
            return
        *below, box = (_box(one, there, cell) for one, there in pile)
        if not boxes.is_stable(rule, below, box):
            yield item.wrong("stability", f"stable by {rule}", "not: the pile does not stand")

    def _constrained(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        """Check the constraints; what another rounding of heights allows is allowed."""
        if self.episode.load is None:
            return
        entries = {k: v for k, v in item.handling.items() if k != "faces"}
        entries |= {k: round(entries[k] * 1_000_000) for k in KILOGRAMS if k in entries}
        slack = 0.0 if self._exact(item) else self.plan.slack
        heights, (x, y), tol = self.episode.heightmap, item.corner, self.plan.contact_tol
        rises = dict.fromkeys((slack, 0.0))
        rests = [maps.FLOAT(maps.FLOAT(item.z) + maps.FLOAT(rise)) for rise in rises]
        cases = [
            constraints.Case(
                load=self.episode.load,
                heightmap=heights,
                handling=constraints.Handling(**entries),
                bottom=placed.bottom,
                com=com,
                x=x,
                y=y,
                z=z,
                support=maps.supporting_cells(heights, placed.bottom, x, y, z, tol),
            )
            for z, com in product(rests, self._centre(item, placed))
        ]
        self._case = cases[0]
        first, *others = (constraints.broken(case) for case in cases)
        for rule, reason in first.items():
            if all(rule in other for other in others):
                yield item.wrong(rule, f"{rule}={self.plan.constraints.get(rule)}", reason)

    def _centre(self, item: ItemClaim, placed: _Placed) -> list[tuple[int, int]]:
        """Return the centre of mass, in 1/64 cell from the window's corner; two if a tie."""
        volume, com = measure(item.solid)
        if abs(volume - item.volume) > RELATIVE * volume and item.solid.com is not None:
            com = item.solid.com
        world = item.rotation @ com + item.translation
        place = 64.0 * (world[:2] / self.plan.cell - np.array(placed.columns.corner))
        ways = [sorted({round(p - RELATIVE), round(p + RELATIVE)}) for p in place.tolist()]
        return [(across, along) for across in ways[0] for along in ways[1]]

    def _volume(self, item: ItemClaim, placed: _Placed) -> Iterator[Violation]:
        """Check the volume; only an upper bound unless the surface is one closed shell."""
        volume, _ = measure(item.solid)
        if abs(volume - item.volume) <= RELATIVE * abs(volume):
            return
        if is_one_closed_shell(item.solid.faces):
            yield item.wrong("volume", f"{item.volume:.6g} m^3", f"{volume:.6g} m^3 in its surface")
            return
        here = np.isfinite(placed.columns.bottom)
        columns = (placed.columns.top[here] - placed.columns.bottom[here]).sum()
        most = float(columns) * self.plan.cell**2
        if not 0 < item.volume <= most * (1 + RELATIVE):
            yield item.wrong(
                "volume", f"{item.volume:.6g} m^3", f"at most {most:.6g} m^3 in its columns"
            )
        self.notes.append(
            f"volume of {item.name}, {item.volume:.6g} m^3 (its surface is not one closed shell: "
            f"checked only to be no more than the volume of its columns)"
        )

    def _exact(self, item: ItemClaim) -> bool:
        """Test if all items are upright cuboids, whose maps have no rounding."""
        return all(one.is_upright_cuboid for one in (item, *(other for other, _ in self.packed)))

    def _name_under(self, x: int, y: int) -> str:
        """Name the last item put over a cell, or what is there from the start."""
        for other, placed in reversed(self.packed):
            u, v = x - placed.columns.corner[0], y - placed.columns.corner[1]
            w, h = placed.bottom.shape
            if 0 <= u < w and 0 <= v < h and np.isfinite(placed.bottom[u, v]):
                return f"item {other.order} ({other.name})"
        return "a pre-placed box" if self.episode.heightmap[x, y] > 0 else "the floor"
