"""Results of `pack`: filled containers, and left-over parts with reasons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from packing_env.plan import Packing
from packing_env.planner.reading.parts import Part
from packing_env.planner.reasons import INTERRUPTED


@dataclass(frozen=True)
class LeftOver:
    """Parts that were not packed.

    Attributes:
        name: Name of the part.
        quantity: Number of pieces.
        reason: Why they were not packed.
    """

    name: str
    quantity: int
    reason: str


def left_over(
    parts: Sequence[Part], counts: Sequence[int], reason: Callable[[int], str] | None
) -> tuple[LeftOver, ...]:
    """Return the parts with left-over pieces; ``reason`` takes the index of a part.

    Ctrl-C ends the search for reasons.
    """
    texts = {}
    with suppress(KeyboardInterrupt):
        for number, count in enumerate(counts):
            texts[number] = reason(number) if reason and count else ""
    return tuple(
        LeftOver(part.label, count, texts.get(number, INTERRUPTED))
        for number, (part, count) in enumerate(zip(parts, counts, strict=True))
        if count
    )


@dataclass(frozen=True, eq=False)
class Plan:
    """An order of parts in containers.

    Attributes:
        containers: The packed containers.
        left: The parts that are in no container.
        unit: Unit of the container as the user stated it.
        tried: Packings that the search compared.
        seconds: Time that the search took.
        bound: Volume that no plan with this number of containers exceeds, m^3; None if unknown.
        value_bound: Sum of values that no plan with this number of containers exceeds; None if the
            parts have no values.
        copies: Number of packed copies, if the order was packed as often as it fits.
        cost: Cost of the containers; None if a size states no cost.
        least: Number of containers below which no plan packs all parts; None if unknown.
        least_cost: Cost below which no plan packs all parts; None if unknown.
        interrupted: True if Ctrl-C ended the search.
    """

    containers: tuple[Packing, ...]
    left: tuple[LeftOver, ...]
    unit: str
    tried: int
    seconds: float
    bound: float | None = None
    value_bound: float | None = None
    copies: int | None = None
    cost: float | None = None
    least: int | None = None
    least_cost: float | None = None
    interrupted: bool = False

    @property
    def num_packed(self) -> int:
        """Number of packed pieces."""
        return sum(len(packing.items) for packing in self.containers)

    @property
    def num_left(self) -> int:
        """Number of pieces that were not packed."""
        return sum(part.quantity for part in self.left)

    @property
    def utilization(self) -> float:
        """Packed volume as a share of the volume of all containers."""
        volume = sum(item.volume for packing in self.containers for item in packing.items)
        return volume / self.capacity if self.containers else 0.0

    @property
    def capacity(self) -> float:
        """Volume of all containers, m^3."""
        return sum(packing.capacity for packing in self.containers)
