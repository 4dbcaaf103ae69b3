"""Cuboids with sides drawn from an interval: the continuous setting of Zhao et al., ICLR 2022."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch

from packing_env.core.random import below
from packing_env.generators.base import SIDES, Cuboids, GeneratorError, Request, full_length
from packing_env.generators.cuboids.source import CuboidSource
from packing_env.types import Instances, ParameterError
from packing_env.values import Option, Positive, check

MAX_MAPPED = 5_000
"""Largest number of cuboids for which heightmaps are made; each takes milliseconds."""


@dataclass(frozen=True)
class ContinuousCuboids(CuboidSource):
    """Cuboids with sides from U(low, high), as rounded shares of the container's shortest side.

    The program of Zhao et al. (PCT, ``pct_envs/PctContinuous0/bin3D.py``) draws all sides from
    U(0.1, 0.5), rounded to 3 decimals, in its setting 2. In settings 1 and 3, where items keep
    their z axis upright, it draws z from {0.1, 0.2, 0.3, 0.4, 0.5} (``heights``). Both there and
    here, rounding gives the ends of the interval half the probability of the other values.

    Every position of every instance has its own cuboid, so the catalogue has ``pool_size *
    num_items`` rows. Geometry ``"boxes"`` is designed for this.

    Attributes:
        low: Shortest side, as a share of the container's shortest side.
        high: Longest side.
        decimals: Shares are whole multiples of ``10 ** -decimals``.
        heights: Values of the z side, as shares, all equally likely; ``None`` means that z is drawn
            like x and y.
    """

    low: Positive = 0.1
    high: Positive = 0.5
    decimals: Annotated[int, Option(at_least=0, at_most=6)] = 3
    heights: Annotated[tuple[Positive, ...], Option(filled=True)] | None = None

    catalogue_of_seed = True

    def __post_init__(self) -> None:
        check(self, "generator.")
        if self._steps("high", self.high) < self._steps("low", self.low):
            raise ParameterError(
                f"generator.high={self.high} is less than low={self.low}; use {self.low} or more"
            )
        for share in self.heights or ():
            self._steps("heights", share)

    def _steps(self, name: str, share: float) -> int:
        scaled = share * float(10**self.decimals)
        if round(scaled) < 1 or abs(scaled - round(scaled)) > 1e-6:
            raise ParameterError(
                f"generator.{name}={share} has more than decimals={self.decimals} decimal places"
            )
        return round(scaled)

    def make(self, request: Request) -> tuple[Cuboids, Instances]:
        """Draw the cuboids; row ``p * N + n`` is item n of instance p."""
        size, num_items = request.num_instances, request.num_items
        if request.geometry == "maps" and size * num_items > MAX_MAPPED:
            raise GeneratorError(
                f"continuous_cuboids draws a new cuboid at every position: pool_size={size} times "
                f"num_items={num_items} is more than {MAX_MAPPED} cuboids with heightmaps; use "
                "geometry='boxes', or a smaller pool_size"
            )
        words = request.words(SIDES, request.num_items)
        low = self._steps("low", self.low)
        span = self._steps("high", self.high) - low
        # Compute the step nearest to low + span * u, where u = word / 2**32.
        sides = [((low << 32) + span * word + (1 << 31)) >> 32 for word in words[:3]]
        if self.heights is not None:
            heights = torch.tensor([self._steps("heights", share) for share in self.heights])
            sides[2] = heights[below(words[3], len(heights))]
        steps = torch.stack(sides, -1).flatten(0, 1)
        extents = steps.double() / 10**self.decimals * min(request.container)
        rows = torch.arange(len(extents)).view(request.num_instances, request.num_items)
        return Cuboids(extents), full_length(rows)
