"""Results of `pack`: filled containers, and what is left over and why."""

from __future__ import annotations

from dataclasses import dataclass

from packing_env.plan import Packing


@dataclass(frozen=True)
class LeftOver:
    """Parts that were not packed.

    Attributes:
        name: The part.
        quantity: How many.
        reason: Why.
    """

    name: str
    quantity: int
    reason: str


@dataclass(frozen=True, eq=False)
class Plan:
    """An order of parts in containers.

    Attributes:
        containers: The packed containers.
        left: The parts that are in none of them.
        unit: The unit that the container was given in.
        tried: Packings that the search compared.
        seconds: Time that it took.
        bound: Volume that no plan with this number of containers exceeds, m^3; None: not known.
        copies: Copies of the order that were packed, if it was to be packed as often as it fits.
        cost: Of the containers; None if a size states none.
        least: Number of containers below which no plan packs all parts; None: not known.
        least_cost: Cost below which no plan packs all parts; None: not known.
    """

    containers: tuple[Packing, ...]
    left: tuple[LeftOver, ...]
    unit: str
    tried: int
    seconds: float
    bound: float | None = None
    copies: int | None = None
    cost: float | None = None
    least: int | None = None
    least_cost: float | None = None

    @property
    def num_packed(self) -> int:
        """Packed parts, each counted."""
        return sum(len(packing.items) for packing in self.containers)

    @property
    def num_left(self) -> int:
        """Parts that were not packed."""
        return sum(part.quantity for part in self.left)

    @property
    def utilization(self) -> float:
        """Packed volume as a share of that of all containers."""
        volume = sum(item.volume for packing in self.containers for item in packing.items)
        return volume / self.capacity if self.containers else 0.0

    @property
    def capacity(self) -> float:
        """Volume of all containers, m^3."""
        return sum(packing.capacity for packing in self.containers)
