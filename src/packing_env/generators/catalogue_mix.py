"""Draws of an item, then of its size: items are equally likely, however many sizes fit."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from packing_env.core.random import below
from packing_env.generators.base import Generator, Request, full_length
from packing_env.generators.uniform import draw_words
from packing_env.items import Catalogue
from packing_env.types import Instances


@dataclass(frozen=True)
class CatalogueMix(Generator):
    """Items drawn by name, then one of their scale variants that fit (scale augmentation)."""

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """Draw ``[P, N]`` rows independently; every instance is N items long."""
        variants: dict[str, list[int]] = {}
        for row in request.playable.nonzero().squeeze(1).tolist():
            variants.setdefault(catalogue.names[row], []).append(row)
        widest = max(len(rows) for rows in variants.values())
        table = torch.tensor([rows + rows[:1] * (widest - len(rows)) for rows in variants.values()])
        count = torch.tensor([len(rows) for rows in variants.values()])
        which, size = draw_words(request)
        item = below(which, len(count))
        return full_length(table[item, below(size, count[item])])
