"""Independent uniform draws of playable catalogue rows."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Bool, Float
from torch import Tensor

from packing_env.core.random import below
from packing_env.generators.base import ROWS, Generator, Request, full_length
from packing_env.items import Catalogue
from packing_env.types import Instances


@dataclass(frozen=True)
class Uniform(Generator):
    """Catalogue rows (item and scale) drawn uniformly among those that fit."""

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """Draw ``[P, N]`` rows independently; every instance is N items long."""
        rows = request.playable.nonzero().squeeze(1)
        words = request.words(ROWS, request.num_items)
        return full_length(rows[below(words[0], len(rows))])

    def law(self, playable: Bool[Tensor, " M"], catalogue: Catalogue) -> Float[Tensor, " M"]:
        """Return equal probabilities of the rows that fit."""
        return playable.double() / playable.sum()
