"""Generators that draw items from the catalogue, each in one of its sizes that fit."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from packing_env.core.random import below
from packing_env.generators.base import ROWS, Generator, Request, full_length
from packing_env.items import Catalogue
from packing_env.types import Instances


@dataclass(frozen=True)
class CatalogueMix(Generator):
    """Items drawn uniformly by name, each in a random size that fits (scale augmentation)."""

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """Draw ``[P, N]`` rows independently; every instance has N items."""
        variants = self._variants(request.playable, catalogue)
        widest = max(len(rows) for rows in variants)
        table = torch.tensor([rows + rows[:1] * (widest - len(rows)) for rows in variants])
        count = torch.tensor([len(rows) for rows in variants])
        words = request.words(ROWS, request.num_items)
        item = below(words[0], len(count))
        return full_length(table[item, below(words[1], count[item])])

    def law(self, playable: Bool[Tensor, " M"], catalogue: Catalogue) -> Float[Tensor, " M"]:
        """Return equal probabilities of all items, each divided among the item's sizes that fit."""
        variants = self._variants(playable, catalogue)
        law = torch.zeros(len(playable), dtype=torch.float64)
        for rows in variants:
            law[rows] = 1.0 / (len(variants) * len(rows))
        return law

    def _variants(self, playable: Bool[Tensor, " M"], catalogue: Catalogue) -> list[list[int]]:
        rows: dict[str, list[int]] = {}
        for row in playable.nonzero().squeeze(1).tolist():
            rows.setdefault(catalogue.names[row], []).append(row)
        return list(rows.values())


@dataclass(frozen=True)
class Uniform(CatalogueMix):
    """Catalogue rows (item and scale) drawn uniformly among those that fit."""

    def _variants(self, playable: Bool[Tensor, " M"], catalogue: Catalogue) -> list[list[int]]:
        return playable.nonzero().tolist()
