"""Packed items of a state: their attributes, the load that they may still bear, their record.

The record is what the constraints of a task need to know of a state beside the heights, in entries
that an observation can hold, so that legality can be computed from stored observations:

| entry | shape, dtype | meaning |
|---|---|---|
| ``packed_id`` | ``[B, N]`` int64 | catalogue rows of the packed items, by order; 0 where none |
| ``packed_at`` | ``[B, 3 N]`` int64 | orientation, x, y of each; 0 where none |
| ``packed_count`` | ``[B, 1]`` int64 | how many there are |
| ``owner`` | ``[B, X, Y]`` float32 | as in :mod:`packing_env.core.constraints` |
| ``under`` | ``[B, N * N]`` bool | as there |

The last two exist where the constraints need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.types import Catalogue, PackingParams, State


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


def record(state: State, params: PackingParams) -> dict[str, Tensor]:
    """Return the record of a state; nothing of it is shared with the state."""
    if not params.constraints:
        return {}
    position, placed = state["placement"][:, :, 0], state["placement"][:, :, 1:]
    order = torch.arange(position.shape[1], device=position.device)
    there = order < state["items_packed"][:, None]
    found = {
        "packed_id": torch.where(there, state["item_id"].gather(1, position), 0),
        "packed_at": torch.where(there[..., None], placed, 0).flatten(1),
        "packed_count": state["items_packed"][:, None].clone(),
    }
    if params.constraints.needs_owners:
        found["owner"] = state["owner"].clone()
    if params.constraints.max_load:
        found["under"] = state["under"].flatten(1).clone()
    return found


def state_of(heights: Float[Tensor, "B X Y"], recorded: Mapping[str, Tensor]) -> State:
    """Return what the constraints read of a state, from its heights in metres and its record."""
    item_id, count = recorded["packed_id"], recorded["packed_count"].squeeze(-1)
    size = item_id.shape[1]
    order = torch.arange(size, device=item_id.device).expand_as(item_id)
    placed = recorded["packed_at"].unflatten(1, (size, 3))
    found: State = {
        "heightmap": heights,
        "item_id": item_id,
        "placement": torch.cat((order[..., None], placed), -1),
        "items_packed": count,
        "step": count,
    }
    if "owner" in recorded:
        found["owner"] = recorded["owner"]
    if "under" in recorded:
        found["under"] = recorded["under"].unflatten(1, (size, size))
    return found
