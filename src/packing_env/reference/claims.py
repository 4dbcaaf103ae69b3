"""The claims of a packing plan as arrays, and the report on a wrong claim."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from packing_env.reference import boxes, stability
from packing_env.reference.raster import MARGIN
from packing_env.reference.solids import Solid, is_one_closed_shell, measure

RELATIVE = 1e-6
"""Two ratios, volumes or rotations that differ by less than this are equal."""

STABILITY_RULES = {
    "maps": (*stability.RULES, *boxes.ON_CELLS),
    "boxes": (*boxes.RULES, *stability.MARGINS),
    "solids": ("none",),
}
"""Stability rules that the reference implements, by geometry."""


@dataclass(frozen=True, eq=False)
class ItemClaim:
    """The claims of a plan about one item.

    Attributes:
        order: Index in the order of packing, from 0.
        name: Name of the item.
        solid: Its geometry in its own frame; ``p_world = rotation @ p_solid + translation``.
        rotation: ``[3, 3]``.
        translation: ``[3]`` metres.
        corner: Lower corner ``(x, y)`` of its window, in cells (in units if the plan's geometry is
            boxes).
        z: Height of its lowest point, metres.
        support_ratio: Share of its footprint that is supported; NaN if the plan claims none.
        volume: m^3.
        quaternion: The same rotation as ``(w, x, y, z)``, or ``None``.
        handling: Attributes that constraints read, in kilograms, and ``faces`` that may be up; for
            boxes also ``layers``, ``on_like``, ``like`` and ``together``.
        z_grid: Height of its lowest point on the heightmap, metres. This and the following values
            belong to settled items.
        gap: Distance to the solids below, metres.
        contacts: ``[C, 3]`` contact points, metres: the corners of their hull.
        balanced: True if its centre of mass is above that hull.
        number: Its number in the file, from 0, if the file is not in the order of packing.
        leaves: In a nest, the direction such as ``"+x"`` in which it moves straight out once all
            later items are out; ``None`` if it has no such way.
    """

    order: int
    name: str
    solid: Solid
    rotation: np.ndarray
    translation: np.ndarray
    corner: tuple[int, int]
    z: float
    support_ratio: float
    volume: float
    quaternion: np.ndarray | None = None
    handling: Mapping[str, Any] = field(default_factory=dict)
    z_grid: float | None = None
    gap: float | None = None
    contacts: np.ndarray | None = None
    balanced: bool | None = None
    number: int | None = None
    leaves: str | None = None

    @property
    def label(self) -> str:
        """Its number and its name, for messages."""
        return f"item {self.order if self.number is None else self.number} ({self.name})"

    def on_grid(self) -> ItemClaim:
        """Return the item in its place on the heightmap."""
        if self.z_grid is None:
            return self
        up = np.array([0.0, 0.0, self.z_grid - self.z])
        return replace(self, z=self.z_grid, translation=self.translation + up)

    @property
    def points(self) -> np.ndarray:
        """``[V, 3]`` vertices in the container, metres."""
        return self.solid.vertices @ self.rotation.T + self.translation

    @property
    def is_upright(self) -> bool:
        """True if the axes of its frame are parallel to the container's."""
        entries = np.abs(self.rotation)
        return bool(np.minimum(entries, np.abs(entries - 1.0)).max() < 1e-9)

    @property
    def is_upright_cuboid(self) -> bool:
        """True for a cuboid, not from a file, whose sides are parallel to the container's."""
        return self.solid.extent is not None and self.is_upright

    def is_of_whole_cells(self, cell: float) -> bool:
        """Test if the item is an upright cuboid with sides of whole cells."""
        if not self.is_upright_cuboid:
            return False
        sides = (self.points.max(0) - self.points.min(0)) / cell
        return bool(np.abs(sides - np.round(sides)).max() < MARGIN)

    def wrong(self, claim: str, claimed: str, found: str) -> Violation:
        """Build the violation of a claim about this item."""
        number = self.order if self.number is None else self.number
        return Violation(number, self.name, claim, claimed, found)

    def wrong_volume(self, most: float, around: str, notes: list[str]) -> Iterator[Violation]:
        """Yield a wrong volume; unless the surface is one closed shell, check an upper bound.

        Args:
            most: The upper bound, m^3: the volume of a body around the solid.
            around: The name of this body, for messages.
            notes: List that receives what could not be checked.
        """
        claimed = f"{self.volume:.6g} m^3"
        volume, _ = measure(self.solid)
        if abs(volume - self.volume) <= RELATIVE * abs(volume):
            return
        if is_one_closed_shell(self.solid.faces):
            yield self.wrong("volume", claimed, f"{volume:.6g} m^3 in its surface")
            return
        if not 0 < self.volume <= most * (1 + RELATIVE):
            yield self.wrong("volume", claimed, f"at most {most:.6g} m^3 in its {around}")
        notes.append(
            f"volume of {self.name}, {claimed} (its surface is not one closed shell, so only this "
            f"was checked: it does not exceed the volume of its {around})"
        )

    def outside(self, axis: int, most: float, low: float, high: float, note: str = "") -> Violation:
        """Build the violation that this item leaves the container along an axis, in metres."""
        claimed = f"{'xyz'[axis]} within 0 .. {metres(most)}{note}"
        return self.wrong("outside", claimed, f"{number(low)} .. {metres(high)}")

    def overlaps(self, other: ItemClaim, lengths: Iterable[float]) -> Violation:
        """Build the violation that this item overlaps another in a box with sides ``lengths``."""
        shared = f"{metres(*lengths)} shared with {other.label}"
        return self.wrong("overlap", "no overlap", shared)


@dataclass(frozen=True, eq=False)
class PlanClaim:
    """The claims of a plan about a container.

    Attributes:
        container: ``(X, Y, H)`` metres; in geometry maps, X and Y need not be whole cells.
        cell: Side of a heightmap cell, metres.
        stability: Stability rule that every placement satisfies.
        contact_tol: Largest distance at which a cell supports, metres.
        items: Packed items in the order of packing.
        num_items: Number of items in the instance, packed or not.
        utilization: Packed volume divided by the container's volume, or ``None``.
        geometry: ``"maps"``, ``"boxes"`` or ``"solids"``, a nest.
        unit: Metres per integer step if the geometry is boxes; ``None`` means the cell.
        constraints: The constraints of the task, as in
            ``packing_env.constraints.Constraints.to_json``.
    """

    container: tuple[float, float, float]
    cell: float
    stability: str
    contact_tol: float = field(default=0.0, kw_only=True)
    items: tuple[ItemClaim, ...]
    num_items: int
    utilization: float | None = None
    geometry: str = "maps"
    unit: float | None = None
    constraints: Mapping[str, Any] = field(default_factory=dict)

    @property
    def pitch(self) -> float:
        """Metres per step of an item's ``corner``."""
        return self.unit if self.geometry == "boxes" and self.unit is not None else self.cell

    @property
    def floor(self) -> tuple[float, float]:
        """Cells along X and Y; rounded to whole numbers if they differ by less than the margin."""
        cells = (length / self.cell for length in self.container[:2])
        x, y = (round(n) if abs(n - round(n)) <= MARGIN else n for n in cells)
        return x, y

    @property
    def grid(self) -> tuple[int, int]:
        """Whole cells along X and Y; a strip of less than a cell may remain at the far walls."""
        x, y = self.floor
        return math.floor(x), math.floor(y)

    @property
    def capacity(self) -> float:
        """Volume of the container without the edges that are cut off, m^3."""
        volume = math.prod(self.container)
        whole = volume
        for edge, *lengths in self.constraints.get("cut", ()):
            sides = [self.container["xyz".index(axis)] for axis in edge[1::2]]
            volume -= whole * math.prod(lengths) / math.prod(sides) / 2
        return volume

    @property
    def slack(self) -> float:
        """Tolerance of heights, metres: four rounding errors of a float32 as high as the lid.

        A rest height is the rounded difference of a rounded sum and a rounded map, and the map may
        differ from the reference's map by one rounding error.
        """
        return 4.0 * float(np.spacing(np.float32(self.container[2])))


@dataclass(frozen=True)
class Violation:
    """A claim that is wrong.

    Attributes:
        item: Number of the item in the file, ``None`` for a claim about the whole plan.
        name: Name of the item or of the key.
        claim: Kind of claim: ``overlap``, ``floating``, ``z``, ...
        claimed: The value in the plan.
        found: The value that the reference computes.
    """

    item: int | None
    name: str
    claim: str
    claimed: str
    found: str

    def __str__(self) -> str:
        who = "the plan" if self.item is None else f"item {self.item} ({self.name})"
        return f"{who}: {self.claim}: claimed {self.claimed}; found {self.found}"


@dataclass(frozen=True)
class Report:
    """The result of a check.

    Attributes:
        violation: The first violation in packing order; ``None`` if every claim is right.
        items: Number of items whose claims are right.
        utilization: Utilization of these items, recomputed.
        height: Highest point of the container's contents, metres.
        not_checked: Claims that were not checked, with the reason; usually empty.
        settled: Number of settled items: as solids, they touch a solid below.
        balanced: Number of settled items whose centre of mass is above their contacts.
        interlocked: Number of items of a nest that have no straight way out; ``None`` for other
            plans.
    """

    violation: Violation | None
    items: int
    utilization: float
    height: float
    not_checked: tuple[str, ...] = field(default=())
    settled: int = 0
    balanced: int = 0
    interlocked: int | None = None

    @property
    def holds(self) -> bool:
        """True if no claim is violated."""
        return self.violation is None

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON types."""
        report = {**asdict(self), "holds": self.holds, "not_checked": list(self.not_checked)}
        if self.violation is not None:
            report["violation"]["message"] = str(self.violation)
        return report


_SHOWN: ContextVar[tuple[str, float]] = ContextVar("_SHOWN", default=("m", 1.0))


@contextmanager
def lengths_in(unit: str, size: float) -> Iterator[None]:
    """Show lengths in messages of the block in a unit of ``size`` metres."""
    token = _SHOWN.set((unit, size))
    try:
        yield
    finally:
        _SHOWN.reset(token)


def metres(*lengths: float) -> str:
    """Format lengths, in metres, for a message."""
    return f"{' x '.join(number(length) for length in lengths)} {_SHOWN.get()[0]}".rstrip()


def number(length: float) -> str:
    """Format a length to 1e-7 m, or to four digits where it is 1e6 m or more."""
    unit, size = _SHOWN.get()
    if unit != "m":
        return f"{length / size + 0.0:.9g}"
    return f"{length:.7f}" if abs(length) < 1e6 else f"{length:.4g}"
