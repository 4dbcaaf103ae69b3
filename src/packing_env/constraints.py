"""Constraints of a task: rules for legal placements in addition to geometry and stability.

:class:`packing_env.items.Handling` holds the attributes of items that constraints read (weight,
group, ...). :mod:`packing_env.core.constraints` applies constraints to masks.
:mod:`packing_env.reference.constraints` specifies them in plain loops.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import combinations
from typing import Annotated, Any

from packing_env.values import Count, Length, Option, ParameterError, check, read, read_mapping

UNITS_PER_KG = 1_000_000
"""Milligrams per kilogram; weights are whole milligrams, so that their sums are exact."""
_FLOAT_ERROR = 1e-2
"""Milligrams by which a float may differ from the weight that it stands for."""
MAX_WEIGHT = 1e6
"""Largest weight in kilograms, so that sums of moments stay below 2^63."""
CELL_MARGIN = 1e-6
"""Share of a cell that is ignored as a rounding error."""
CLEARANCE_SLACK = 1e-6
"""Metres; a neighbour may rise above an item's lower surface by this much before the clearance
applies.
"""

WEIGHT = Option(at_least=0.0, at_most=MAX_WEIGHT, unit="kg")
Box = tuple[float, float, float, Length, Length, Length]
"""Lower corner and sides ``(x, y, z, dx, dy, dz)``, metres."""
Cut = tuple[str, float, float]
"""A cut edge: the two walls that meet there, ``"+x-z"``, and the lengths cut off, metres. ``-x`` is
the wall x = 0, ``+x`` the wall x = X, ``-z`` the floor, ``+z`` the top."""


def _cut(entry: Any, name: str) -> Cut:
    if not isinstance(entry, Sequence) or isinstance(entry, str) or len(entry) != 3:
        raise ParameterError(
            f"{name} has the entry {entry!r}; give an edge and two lengths, as in (+x-z, 0.3, 0.4)"
        )
    edge = str(entry[0])
    if not re.fullmatch("[+-][xyz][+-][xyz]", edge) or edge[1] == edge[3]:
        raise ParameterError(
            f"{name} has the edge {edge!r}; name the two walls that meet there, as in '+x-z': "
            "the far wall along x, and the floor"
        )
    one, other = (read(name, length, Length) for length in entry[1:])
    return (edge, one, other) if edge[1] < edge[3] else (edge[2:] + edge[:2], other, one)


_Gap = Annotated[float, Option(at_least=0.0, unit="metres")]


@dataclass(frozen=True)
class Constraints:
    """The constraints of a task; a constraint that is not stated does not apply.

    An item *rests on* another if a cell that supports it belongs to the other item. A cell supports
    if its distance to the item is at most the task's contact tolerance. A cell belongs to the item
    that was placed over it last.

    An order of boxes (geometry ``"boxes"``) has exact lengths and no cells. A box rests on another
    box if its base is at the other's top and the two overlap, seen from above. ``support`` and
    ``door`` apply only to orders of boxes.

    Attributes:
        no_stacking: No item rests on an item that is not ``stackable``.
        max_load: No item bears more than its ``max_load``. It bears the whole weight of every item
            that rests on it, directly or through others. An item that rests on several items loads
            each of them with its whole weight, because one contact may carry all of it.
        fragile: ``"last"``: once a ``fragile`` item is packed, only fragile items follow.
            ``"top"``: only fragile items rest on fragile items.
        lifo: Last in, first out. No item may be above an item of a smaller ``group``, whether they
            touch or not, because items are unloaded upwards. With ``door`` ``"rear"`` or
            ``"side"``: no item of a larger group blocks the straight way out of an item of a
            smaller group, or rests on it, directly or through others.
        weight_limit: Largest total weight of all items in kilograms.
        balance: Largest distance of the common centre of mass from the middle, as a share of the
            length and width of the container (of the deck, if there is an overhang). The limit
            applies after every placement; in an order of boxes, it applies at the end of the load.
            0.5 allows everything.
        clearance: Metres between neighbouring items in x or in y, rounded up to whole cells. In an
            order of boxes it is exact, and applies between items whose height ranges overlap.
        wall_clearance: Metres between items and walls, rounded like ``clearance``; None means the
            value of ``clearance``.
        preplaced: Boxes that are in the container from the start: lower corner and sides ``(x, y,
            z, dx, dy, dz)`` in metres. Items may rest on them. Every cell that such a box overlaps
            has the height of its top. In an order of boxes, a side that is not a whole number of
            units is moved outwards to the next unit.
        support: Orders of boxes: smallest share of an item's base that rests on the floor, on
            pre-placed boxes or on other items; 1 is full support.
        door: Orders of boxes: the side from which items are loaded. Items move straight in, without
            turning: ``"top"`` (also the default, None) from above, ``"rear"`` along -x from the
            wall at x = X, ``"side"`` along -y from the wall at y = Y.
        together: Orders of boxes: labels of items, each with their number in the order. Either all
            items of a label are in the container, or none.
        overhang: Orders of boxes: metres along x and y by which items may reach over the deck of a
            pallet, on each side. The container includes the overhang, and no floor supports items
            there.
        cut: Orders of boxes: edges of the container that are cut off, as in air freight, each as
            ``("+x-z", 0.3, 0.4)``: 0.3 m of the length at the far wall along x, and 0.4 m of the
            height at the floor. No item reaches beyond the plane through the two lines at
            these lengths, or rests on the plane.
    """

    no_stacking: bool = False
    max_load: bool = False
    fragile: Annotated[str, Option(choices=("last", "top"))] | None = None
    lifo: bool = False
    weight_limit: Annotated[float, WEIGHT] | None = None
    balance: Annotated[float, Option(at_least=0.0, at_most=0.5)] | None = None
    clearance: _Gap | None = None
    wall_clearance: _Gap | None = None
    preplaced: tuple[Annotated[Box, Option(example="[x, y, z, dx, dy, dz], metres")], ...] = ()
    support: Annotated[float, Option(above=0.0, at_most=1.0)] | None = None
    door: Annotated[str, Option(choices=("top", "rear", "side"))] | None = None
    together: tuple[Annotated[tuple[str, Count], Option(example="[label, number]")], ...] = ()
    overhang: Annotated[tuple[_Gap, _Gap], Option(example="[x, y], metres")] | None = None
    cut: tuple[Annotated[Cut, Option(read=_cut)], ...] = ()

    def __post_init__(self) -> None:
        check(self, "constraints.")

    @classmethod
    def read(cls, given: Any, name: str = "constraints") -> Constraints:
        """Return constraints from an instance or a mapping; skip entries whose value is None.

        Raises:
            ParameterError: An entry is unknown or its value invalid.
        """
        if isinstance(given, cls):
            return given
        if not isinstance(given, Mapping):
            raise ParameterError(
                f"{name}={given!r} must be a mapping, as in {{weight_limit: 20.0}}"
            )
        return cls(**read_mapping(cls, given, name, f"{name}."))

    def __bool__(self) -> bool:
        return self != _NONE

    def to_json(self) -> dict[str, Any]:
        """Return the constraints that apply, as plain JSON types; :meth:`read` reads them."""
        entries = {f.name: getattr(self, f.name) for f in fields(self)}
        entries["overhang"] = None if self.overhang is None else list(self.overhang)
        for name in ("preplaced", "cut", "together"):
            entries[name] = [list(entry) for entry in getattr(self, name)]
        return {k: v for k, v in entries.items() if v is not None and v is not False and v != []}

    @property
    def needs(self) -> tuple[str, ...]:
        """Attributes of items that the constraints read."""
        reads = {
            "weight": self.max_load or self.weight_limit is not None or self.balance is not None,
            "max_load": self.max_load,
            "stackable": self.no_stacking,
            "fragile": self.fragile is not None,
            "group": self.lifo,
        }
        return tuple(name for name, used in reads.items() if used)

    @property
    def needs_owners(self) -> bool:
        """True if a constraint depends on which item lies below which."""
        return self.no_stacking or self.max_load or self.lifo or self.fragile == "top"

    @property
    def needs_maps(self) -> bool:
        """True if a constraint excludes placements; pre-placed boxes only raise the heightmap."""
        return self.needs != () or bool(self.clearance or self.wall_clearance)

    @property
    def of_orders(self) -> tuple[str, ...]:
        """The entries that apply only to orders of boxes."""
        stated = {
            "support": self.support is not None,
            "door": self.door not in (None, "top"),
            "together": bool(self.together),
            "overhang": self.overhang is not None,
            "cut": len(self.cut) > 0,
        }
        return tuple(name for name, holds in stated.items() if holds)

    @property
    def walls(self) -> float:
        """Clearance to walls, metres."""
        return (self.clearance if self.wall_clearance is None else self.wall_clearance) or 0.0

    @property
    def lengths(self) -> tuple[float, ...]:
        """All lengths that the constraints name, metres."""
        boxes = [length for box in self.preplaced for length in box]
        cuts = [length for cut in self.cut for length in cut[1:]]
        return (self.clearance or 0.0, self.walls, *(self.overhang or ()), *boxes, *cuts)

    def starts_of_stacks(self, cell: float) -> tuple[float, ...]:
        """Return the heights, modulo the cell, at which stacks of whole-cell cuboids may start.

        They are in metres: 0 for the floor, and the height of each pre-placed box's top modulo the
        cell. Heights within :data:`CELL_MARGIN` are merged.
        """
        starts = [0.0]
        for box in self.preplaced:
            top = level_of(box[2] + box[5], cell)
            start = top - math.floor(top / cell + CELL_MARGIN) * cell
            if all(abs(start - other) > CELL_MARGIN * cell for other in starts):
                starts.append(start)
        return tuple(starts)

    def check_task(self, container: tuple[float, float, float], geometry: str) -> None:
        """Raise if an environment's task cannot have these constraints.

        Raises:
            ParameterError: A constraint is impossible; the message names the entry and the remedy.
        """
        if not self:
            return
        if geometry != "maps":
            raise ParameterError(
                f"the constraints {', '.join(self.to_json())} need geometry='maps', not "
                f"{geometry!r}; leave them out, or change the geometry"
            )
        for name in self.of_orders:
            raise ParameterError(
                f"constraints.{name}={getattr(self, name)!r} applies to orders of boxes, not to "
                "geometry='maps'; leave it out, or pack an order of boxes (`packing pack`)"
            )
        self.check_container(container)

    def check_container(self, container: tuple[float, float, float]) -> None:
        """Raise if a length does not fit a container ``(X, Y, H)``, metres.

        Raises:
            ParameterError: A length does not fit; the message names the entry and the remedy.
        """
        # Items may lie in one row, so the clearance between them may exceed the shorter side.
        floor = container[:2]
        for name, gap, side in (
            ("clearance", self.clearance or 0.0, max(floor)),
            ("wall_clearance", self.walls, min(floor)),
        ):
            if gap >= side / 2:
                raise ParameterError(
                    f"constraints.{name}={gap} m leaves no room in a container of "
                    f"{container[0]:g} x {container[1]:g} m; give less than {side / 2:g} m, or a "
                    "larger container"
                )
        for box in self.preplaced:
            high = [low + side for low, side in zip(box[:3], box[3:], strict=True)]
            beyond = [h > c + 1e-6 for h, c in zip(high, container, strict=True)]
            if min(box[:3]) < 0 or any(beyond):
                raise ParameterError(
                    f"constraints.preplaced: the box {list(box)} reaches out of the container, "
                    f"{list(container)}; boxes are (x, y, z, dx, dy, dz) in metres"
                )
            for edge, *lengths in self.cut:
                if _beyond_cut(box, edge, lengths, container) > CLEARANCE_SLACK:
                    raise ParameterError(
                        f"constraints.preplaced: the box {list(box)} reaches beyond the cut edge "
                        f"{edge}; move it, or cut off less"
                    )
        self._check_overhang(container)
        self._check_cuts(container)

    def _check_overhang(self, container: tuple[float, float, float]) -> None:
        if self.overhang is None:
            return
        if any(2 * length >= side for length, side in zip(self.overhang, container, strict=False)):
            raise ParameterError(
                f"constraints.overhang={list(self.overhang)} m leaves no deck: the container of "
                f"{container[0]:g} x {container[1]:g} m includes the overhang on both sides; give "
                "a smaller overhang"
            )
        if self.door not in (None, "top"):
            raise ParameterError(
                f"constraints.door={self.door!r}: a pallet with overhang has no door; leave out "
                "door or overhang"
            )
        if self.walls:
            raise ParameterError(
                f"constraints.wall_clearance={self.walls:g} m: a pallet with overhang has no "
                "walls; give wall_clearance=0"
            )

    def _check_cuts(self, container: tuple[float, float, float]) -> None:
        for edge, *lengths in self.cut:
            where, first = f"constraints.cut: {edge}", self.cut[0][0]
            sides = [container["xyz".index(axis)] for axis in edge[1::2]]
            if any(length >= side for length, side in zip(lengths, sides, strict=True)):
                raise ParameterError(f"{where} takes a whole side of the container; cut off less")
            if edge[1::2] != first[1::2]:
                raise ParameterError(f"{where} is not parallel to {first}; keep one of them")
            if {"rear": "+x", "side": "+y"}.get(self.door or "", "+z") in (edge[:2], edge[2:]):
                door = self.door or "top"
                raise ParameterError(f"{where} blocks the door {door!r}; choose another door")
        for (one, *lengths), (other, *others) in combinations(self.cut, 2):
            pairs = zip(one[::2], other[::2], lengths, others, one[1::2], strict=True)
            if not any(
                a != b and length + more <= container["xyz".index(axis)] + CLEARANCE_SLACK
                for a, b, length, more, axis in pairs
            ):
                raise ParameterError(f"constraints.cut: {one} and {other} overlap; cut off less")


def _beyond_cut(
    box: Box, edge: str, lengths: Sequence[float], container: tuple[float, float, float]
) -> float:
    """Return how far a box reaches beyond the plane of a cut edge, as a share of the cut.

    A corner at the distances ``u`` and ``v`` from the two walls is beyond the plane if
    ``u / a + v / b < 1``, where ``a`` and ``b`` are the lengths cut off.
    """
    share = 1.0
    for wall, length in zip((edge[:2], edge[2:]), lengths, strict=True):
        axis = "xyz".index(wall[1])
        far = container[axis] - (box[axis] + box[3 + axis])
        share -= (box[axis] if wall[0] == "-" else far) / length
    return share


_NONE = Constraints()
"""The constraints of a task that states none.

The instance is created once, because a compiler cannot trace the checks of a new instance.
"""


def is_whole(length: float, cell: float) -> bool:
    """Return whether a length is a whole number of cells, within :data:`CELL_MARGIN`."""
    return abs(length / cell - round(length / cell)) <= CELL_MARGIN


def level_of(height: float, cell: float) -> float:
    """Return a height in metres, rounded to whole cells if :func:`is_whole`."""
    return round(height / cell) * cell if is_whole(height, cell) else height


def read_kilograms(name: str, weight: Any) -> float:
    """Return a weight; raise ParameterError unless it is in 0..MAX_WEIGHT."""
    kilograms: float = read(name, weight, Annotated[float, WEIGHT])
    return kilograms


def weight_in_mg(kilograms: float) -> int:
    """Return a weight in whole milligrams, rounded down.

    Weights are rounded down and limits up. Otherwise three boxes of 10 lb would be 1 mg too heavy
    for a limit of 30 lb.
    """
    return math.floor(kilograms * UNITS_PER_KG + _FLOAT_ERROR)


def limit_in_mg(kilograms: float) -> int:
    """Return a limit of weight in whole milligrams, rounded up; see :func:`weight_in_mg`."""
    return math.ceil(kilograms * UNITS_PER_KG - _FLOAT_ERROR)
