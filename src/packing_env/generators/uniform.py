"""Every playable row of the catalogue, equally likely, independently."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

from packing_env.core.random import below, philox
from packing_env.generators.base import Generator, Request
from packing_env.items import Catalogue
from packing_env.types import Instances


def draw_words(request: Request) -> tuple[Int[Tensor, "P N"], Int[Tensor, "P N"]]:
    """Two independent 32-bit words per instance and position, from the request's stream."""
    shape = (request.num_instances, request.num_items)
    instance = torch.arange(shape[0])[:, None].expand(shape)
    position = torch.arange(shape[1]).expand(shape)
    seed = torch.full(shape, request.seed)
    # counter word 3 separates these draws from those of the environment's rows
    first, second, _, _ = philox(seed, instance, position, seed * 0 + request.stream, seed * 0 + 1)
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
