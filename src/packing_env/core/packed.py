"""Packed items of a state, their attributes, and the load that they may still bear."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.types import Catalogue, State


@dataclass(frozen=True)
class Packed:
    """The packed items of each row, in order; entries past the last are never barred.

    Attributes:
        there: ``[B, N]`` which exist.
        item_id: ``[B, N]`` their catalogue rows.
        catalogue: The items.
    """

    there: Bool[Tensor, "B N"]
    item_id: Int[Tensor, "B N"]
    catalogue: Catalogue

    def __getitem__(self, name: str) -> Tensor:
        """Return an attribute of them, ``[B, N]``."""
        return self.catalogue[name][self.item_id]


def packed_items(state: State, catalogue: Catalogue) -> Packed:
    """Return the packed items of a state."""
    order = torch.arange(state["item_id"].shape[1], device=state["step"].device)
    there = order < state["items_packed"][:, None]
    position = state["placement"][:, :, 0]
    return Packed(there, state["item_id"].gather(1, position), catalogue)


def spare_load(state: State, catalogue: Catalogue) -> Int[Tensor, "B N"]:
    """Return the milligrams that each packed item may still be loaded with.

    That is the least of what it and all under it may bear.
    """
    packed = packed_items(state, catalogue)
    weight = torch.where(packed.there, packed["weight"], 0)
    borne = (state["under"] * weight[:, :, None]).sum(1)
    spare = torch.where(packed.there, packed["max_load"] - borne, torch.iinfo(torch.int64).max)
    below = torch.where(state["under"], spare[:, None], torch.iinfo(torch.int64).max)
    return torch.minimum(spare, below.amin(2))
