"""Packed items of a state: their attributes, the load they can still bear, and their record.

The record is a set of observations. It holds everything in a state, except the heights, that
constraints read. So legality can be computed from stored observations:

| entry | shape, dtype | meaning |
|---|---|---|
| ``packed_id`` | ``[B, N]`` int64 | catalogue rows of the packed items, by order; 0 where none |
| ``packed_at`` | ``[B, 3 N]`` int64 | orientation, x, y of each; 0 where none |
| ``packed_count`` | ``[B, 1]`` int64 | how many there are |
| ``owner`` | ``[B, X, Y]`` float32 | as in :mod:`packing_env.core.constraints` |
| ``under`` | ``[B, N * N]`` bool | as there |

The last two entries exist only if the constraints need them.
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
    """The packed items of each row, in packing order; padding is never barred.

    Attributes:
        there: ``[B, N]`` True for items that exist.
        item_id: ``[B, N]`` their catalogue rows.
        catalogue: The items.
    """

    there: Bool[Tensor, "B N"]
    item_id: Int[Tensor, "B N"]
    catalogue: Catalogue

    def __getitem__(self, name: str) -> Tensor:
        """Return an attribute of the items, ``[B, N]``."""
        return self.catalogue[name][self.item_id]


def packed_items(state: State, catalogue: Catalogue) -> Packed:
    """Return the packed items of a state."""
    return Packed(_are_there(state), _rows_of(state), catalogue)


def _are_there(state: State) -> Bool[Tensor, "B N"]:
    order = torch.arange(state["item_id"].shape[1], device=state["step"].device)
    return order < state["items_packed"][:, None]


def _rows_of(state: State) -> Int[Tensor, "B N"]:
    """Return catalogue rows by the order of packing."""
    return state["item_id"].gather(1, state["placement"][:, :, 0])


def spare_load(state: State, packed: Packed) -> Int[Tensor, "B N"]:
    """Return the load in milligrams that each packed item can still bear.

    It is the minimum over the item and all items under it.
    """
    # 1. The maximum load of each item, minus its present load.
    weight = torch.where(packed.there, packed["weight"], 0)
    borne = (state["under"] * weight[:, :, None]).sum(1)
    spare = torch.where(packed.there, packed["max_load"] - borne, torch.iinfo(torch.int64).max)
    # 2. Then the minimum over all items under it.
    below = torch.where(state["under"], spare[:, None], torch.iinfo(torch.int64).max)
    return torch.minimum(spare, below.amin(2))


def record(state: State, params: PackingParams) -> dict[str, Tensor]:
    """Return the record of a state; it shares no memory with the state."""
    if not params.constraints:
        return {}
    # Entries of missing items are 0, so equal containers have equal records.
    there = _are_there(state)
    entries = {
        "packed_id": torch.where(there, _rows_of(state), 0),
        "packed_at": torch.where(there[..., None], state["placement"][:, :, 1:], 0).flatten(1),
        "packed_count": state["items_packed"][:, None].clone(),
    }
    if params.constraints.needs_owners:
        entries["owner"] = state["owner"].clone()
    if params.constraints.max_load:
        entries["under"] = state["under"].flatten(1).clone()
    return entries


def state_of(heights: Float[Tensor, "B X Y"], recorded: Mapping[str, Tensor]) -> State:
    """Return the state's entries that constraints read, from heights in metres and a record."""
    # Items are numbered in packing order; their positions in the instance are not needed here.
    item_id, count = recorded["packed_id"], recorded["packed_count"].squeeze(-1)
    size = item_id.shape[1]
    order = torch.arange(size, device=item_id.device).expand_as(item_id)
    placed = recorded["packed_at"].unflatten(1, (size, 3))
    state: State = {
        "heightmap": heights,
        "item_id": item_id,
        "placement": torch.cat((order[..., None], placed), -1),
        "items_packed": count,
        "step": count,
    }
    if "owner" in recorded:
        state["owner"] = recorded["owner"]
    if "under" in recorded:
        state["under"] = recorded["under"].unflatten(1, (size, size))
    return state
