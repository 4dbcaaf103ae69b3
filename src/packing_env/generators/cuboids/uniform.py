"""Sides drawn uniformly from whole numbers: the RS data sets of the online packing literature."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from packing_env.core.random import below
from packing_env.generators.base import Cuboids
from packing_env.generators.cuboids.source import CuboidSource, Order, all_extents
from packing_env.generators.uniform import draw_words
from packing_env.types import Instances, check_integer


@dataclass(frozen=True)
class UniformCuboids(CuboidSource):
    """Each side of each item is a whole number ``low .. high``, all equally likely, independently.

    In a 10 x 10 x 10 container, sides 1 to 5 are RS with 125 types (Zhao et al., ICLR 2022, and
    Xiong et al., RA-L 2024), sides 2 to 5 are RS with 64 types (Zhao et al., AAAI 2021). The
    catalogue holds every extent once, x slowest, whatever the seed.

    Attributes:
        low: Shortest side, in pitches (cells; units in geometry ``"boxes"``).
        high: Longest side.
    """

    low: int = 1
    high: int = 5

    def __post_init__(self) -> None:
        check_integer("generator.high", self.high, check_integer("generator.low", self.low, 1))

    def make(self, order: Order) -> tuple[Cuboids, Instances]:
        """All extents; instances are N items long."""
        cuboids = all_extents(self.low, self.high, order.pitch)
        rows = below(draw_words(order)[0], len(cuboids.extents))
        return cuboids, Instances(rows, torch.full((len(rows),), order.num_items))
