"""What a packing plan claims, as arrays, and what is said about a claim that does not hold."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from packing_env.reference.raster import MARGIN
from packing_env.reference.solids import Solid

LID_TOLERANCE = 1e-6
"""Metres; part of the definition of a legal placement."""
RELATIVE = 1e-6
"""Ratios, volumes and rotations this close are equal."""

STABILITY_RULES = {
    "maps": ("area_corners", "area_corners_code", "center_hull", "com_hull", "none"),
    "boxes": ("area_corners", "area_corners_code", "center_hull", "com_hull", "none",
              "stacking_tree"),
}  # fmt: skip
"""Per geometry, the rules that the reference can judge a placement by."""


@dataclass(frozen=True, eq=False)
class ItemClaim:
    """What a plan says about one item.

    Attributes:
        order: Its number, 0 for the first that was packed.
        name: What it is called.
        solid: What it is; ``p_world = rotation @ p_solid + translation``.
        rotation: ``[3, 3]``.
        translation: ``[3]`` metres.
        corner: ``(x, y)`` of its window, in cells (in units where the plan's geometry is boxes).
        z: Metres of its lowest point.
        support_ratio: Share of its footprint that is supported.
        volume: m^3.
        quaternion: ``(w, x, y, z)``, the rotation said again, or ``None``.
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

    @property
    def points(self) -> np.ndarray:
        """``[V, 3]`` its vertices where it stands, metres."""
        return self.solid.vertices @ self.rotation.T + self.translation

    @property
    def is_upright_cuboid(self) -> bool:
        """Whether it is a cuboid whose sides are parallel to the container's."""
        entries = np.abs(self.rotation)
        upright = np.minimum(entries, np.abs(entries - 1.0)).max() < 1e-9
        return self.solid.extent is not None and bool(upright)

    def is_of_whole_cells(self, cell: float) -> bool:
        """Whether it is such a cuboid, with sides of whole cells."""
        if not self.is_upright_cuboid:
            return False
        sides = (self.points.max(0) - self.points.min(0)) / cell
        return bool(np.abs(sides - np.round(sides)).max() < MARGIN)

    def wrong(self, claim: str, claimed: str, found: str) -> Violation:
        """A violation by this item."""
        return Violation(self.order, self.name, claim, claimed, found)


@dataclass(frozen=True, eq=False)
class PlanClaim:
    """What a plan says about a container.

    Attributes:
        container: ``(X, Y, H)`` metres.
        cell: Side of a heightmap cell, metres.
        stability: Name of the rule that every placement satisfies.
        contact_tol: Gap up to which a cell supports, metres.
        items: In the order of packing.
        num_items: Items of the instance.
        utilization: Packed volume over the container's, or ``None``.
        geometry: ``"maps"`` or ``"boxes"``.
        unit: Length of an integer step where the geometry is boxes, metres; ``None``: the cell.
    """

    container: tuple[float, float, float]
    cell: float
    stability: str
    contact_tol: float
    items: tuple[ItemClaim, ...]
    num_items: int
    utilization: float | None = None
    geometry: str = "maps"
    unit: float | None = None

    @property
    def pitch(self) -> float:
        """Metres per step of an item's ``corner``."""
        return self.unit if self.geometry == "boxes" and self.unit is not None else self.cell

    @property
    def slack(self) -> float:
        """Heights this close are equal, metres: four roundings of a float32 as high as the lid.

        A rest height is a rounded difference of a rounded sum and a rounded map, and the map may
        be one rounding off the reference's.
        """
        return 4.0 * float(np.spacing(np.float32(self.container[2])))


@dataclass(frozen=True)
class Violation:
    """A claim that does not hold.

    Attributes:
        item: Number of the item, ``None`` for a claim about the whole plan.
        name: Of the item, or of the key.
        claim: Which claim: ``overlap``, ``floating``, ``z``, ...
        claimed: What the plan says.
        found: What is the case.
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
        violation: The first in packing order, or ``None``: every claim holds.
        items: How many items were found to stand as claimed.
        utilization: Of those, recomputed.
        height: Highest point of the container's contents, metres.
        not_checked: What was not checked, with the reason; empty as a rule.
    """

    violation: Violation | None
    items: int
    utilization: float
    height: float
    not_checked: tuple[str, ...] = field(default=())

    @property
    def holds(self) -> bool:
        """Whether no claim was found to be wrong."""
        return self.violation is None

    def to_json(self) -> dict[str, Any]:
        """As JSON knows it."""
        told = {**asdict(self), "holds": self.holds, "not_checked": list(self.not_checked)}
        if self.violation is not None:
            told["violation"]["message"] = str(self.violation)
        return told


def metres(*lengths: float) -> str:
    """Lengths as a message says them."""
    return " x ".join(number(length) for length in lengths) + " m"


def number(length: float) -> str:
    """A length to 1e-7, or in short where that would be a long row of digits."""
    return f"{length:.7f}" if abs(length) < 1e6 else f"{length:.4g}"
