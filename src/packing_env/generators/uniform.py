"""Every playable row of the catalogue, equally likely, independently."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from packing_env.core.random import below
from packing_env.generators.base import Draw, Generator, Request
from packing_env.items import Catalogue
from packing_env.types import Instances

ROWS = 1
"""Purpose of the words that choose catalogue rows (:meth:`Draw.words`)."""


def draw_words(draw: Draw) -> tuple[Int[Tensor, "P N"], Int[Tensor, "P N"]]:
    """Two independent 32-bit words per instance and position, from the request's stream."""
    first, second, _, _ = draw.words(ROWS, draw.num_items)
    return first, second


@dataclass(frozen=True)
class Uniform(Generator):
    """Draws catalogue rows (item and scale) uniformly among those that fit."""

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """``[P, N]`` independent draws; every instance is N items long."""
        rows = request.playable.nonzero().squeeze(1)
        word, _ = draw_words(request)
        length = torch.full((request.num_instances,), request.num_items)
        return Instances(rows[below(word, len(rows))], length)
