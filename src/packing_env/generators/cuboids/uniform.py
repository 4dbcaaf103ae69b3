"""Cuboids with uniform whole-number sides: the RS data sets of the online packing papers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from packing_env.core.random import below
from packing_env.generators.base import ROWS, Cuboids, Request, full_length
from packing_env.generators.cuboids.source import CuboidSource, all_extents
from packing_env.items import Catalogue
from packing_env.types import Instances, ParameterError
from packing_env.values import Count, check


@dataclass(frozen=True)
class UniformCuboids(CuboidSource):
    """Cuboids with independent sides, drawn uniformly from ``low, low + step, ... high``.

    In a 10 x 10 x 10 container, sides 1 to 5 give the data set RS with 125 types (Zhao et al., ICLR
    2022, and Xiong et al., RA-L 2024), and sides 2 to 5 give RS with 64 types (Zhao et al., AAAI
    2021). On cells of 1 cm, sides of 3, 6, ... 15 give the data set Cube (Zhao et al., TOG 2023).
    For every seed, the catalogue holds every extent once, x slowest.

    Attributes:
        low: Shortest side, in pitches (cells; units in geometry ``"boxes"``).
        high: Longest side.
        step: Difference between two sides.
    """

    low: Count = 1
    high: Count = 5
    step: Count = 1

    def __post_init__(self) -> None:
        check(self, "generator.")
        if self.high < self.low:
            raise ParameterError(
                f"generator.high={self.high} is less than low={self.low}; use {self.low} or more"
            )
        if beyond := (self.high - self.low) % self.step:
            raise ParameterError(
                f"generator.high={self.high} is not a side in steps of {self.step} from "
                f"low={self.low}; use {self.high - beyond} or {self.high - beyond + self.step}"
            )

    def make(self, request: Request) -> tuple[Cuboids, Instances]:
        """Return all extents; instances have N items."""
        sides = range(self.low, self.high + 1, self.step)
        cuboids = all_extents(sides, request.pitch)
        words = request.words(ROWS, request.num_items)
        return cuboids, full_length(below(words[0], len(cuboids.extents)))

    def law(self, playable: Bool[Tensor, " M"], catalogue: Catalogue) -> Float[Tensor, " M"]:
        """Return equal probabilities of all extents."""
        return torch.full((len(catalogue),), 1.0 / len(catalogue), dtype=torch.float64)
