"""Independent uniform draws of playable catalogue rows."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core.random import below
from packing_env.generators.base import Draw, Generator, Request, full_length
from packing_env.items import Catalogue
from packing_env.types import Instances

ROWS = 1
"""Purpose of the words that choose catalogue rows (:meth:`Draw.words`)."""


def draw_words(draw: Draw) -> tuple[Int[Tensor, "P N"], Int[Tensor, "P N"]]:
    """Draw two independent 32-bit words per instance and position, from the request's stream."""
    first, second, _, _ = draw.words(ROWS, draw.num_items)
    return first, second


@dataclass(frozen=True)
class Uniform(Generator):
    """Catalogue rows (item and scale) drawn uniformly among those that fit."""

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """Draw ``[P, N]`` rows independently; every instance is N items long."""
        rows = request.playable.nonzero().squeeze(1)
        word, _ = draw_words(request)
        return full_length(rows[below(word, len(rows))])

    def law(self, playable: Bool[Tensor, " M"], catalogue: Catalogue) -> Float[Tensor, " M"]:
        """Return equal probabilities of the rows that fit."""
        return playable.double() / playable.sum()
