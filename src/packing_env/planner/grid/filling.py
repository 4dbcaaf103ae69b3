"""Containers that a search fills: reduced states with only the entries that the next place needs.

A full step (:func:`packing_env.core.transition.decide`) also computes metrics, which takes several
times as long as the search for the place. Here a part is put at a legal place, and only the
heightmap, the placements and the packed volume are updated. :meth:`Filling.replay` repeats the same
placements in full steps for the plan.

| key | shape, dtype | meaning |
|---|---|---|
| ``heightmap`` | ``[B, X, Y]`` float32 | metres |
| ``item_id`` | ``[B, N]`` int64 | catalogue rows, in the order of packing |
| ``placement`` | ``[B, N, 4]`` int64 | order, orientation, x, y, as in a full state |
| ``items_packed`` | ``[B]`` int64 | number of packed items |
| ``volume`` | ``[B]`` float64 | packed volume, m^3 |
| ``z`` | ``[B, N]`` float32 | rest height of each item, metres |
| ``step`` | ``[B]`` int64 | always 0; constraints read only its device |

The state also has the entries of the constraints (:mod:`packing_env.core.constraints`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core import constraints, feasibility, transition
from packing_env.core import heightmap as hm
from packing_env.core.ground import Landing
from packing_env.core.lowest import LowestPlacement
from packing_env.core.orientation import Placement, decode_placement
from packing_env.types import Catalogue, PackingParams, State


class Filling:
    """Operations on the containers of a search.

    Args:
        items: The parts, one orientation per row.
        params: The task; ``num_items`` bounds the items of a container.
        rules: The stability rule of each row of ``items``; each is at least as strict as the
            task's.
    """

    def __init__(self, items: Catalogue, params: PackingParams, rules: Sequence[str]) -> None:
        self._items, self.params = items, params
        self._lowest = [
            (
                torch.tensor([each == rule for each in rules]),
                LowestPlacement(items, params.evolve(stability=rule)),
            )
            for rule in dict.fromkeys(rules)
        ]
        # The compiled search gives up in some rows and computes their maps. Compile the kernels of
        # the maps now, not during a search, whose time is limited.
        first = torch.zeros(1, 1, dtype=torch.int64)
        for _, lowest in self._lowest:
            lowest.from_maps(self.empty(1), first, first == 0)

    def empty(self, count: int) -> State:
        """Return empty containers."""
        capacity = self.params.num_items
        zeros = torch.zeros(count, dtype=torch.int64)
        return {
            "heightmap": torch.zeros(count, *self.params.grid),
            "item_id": torch.zeros(count, capacity, dtype=torch.int64),
            "placement": torch.zeros(count, capacity, 4, dtype=torch.int64),
            "items_packed": zeros,
            "volume": zeros.double(),
            "z": torch.zeros(count, capacity),
            "step": zeros,
            **constraints.begin(count, self.params, zeros.device),
        }

    def put(
        self,
        state: State,
        item_id: Int[Tensor, "B L"],
        there: Bool[Tensor, "B L"],
        in_rows: bool = False,
    ) -> tuple[State, Bool[Tensor, " B"]]:
        """Put the marked item with the lowest legal place into each container.

        ``there`` marks items of ``item_id``. The marked items of a container are the poses of one
        part, so they share a stability rule. With ``in_rows``, only the places count at which equal
        items stand side by side, in rows along x and y.

        Returns:
            The containers, and a mask of the containers that had a place.
        """
        index, z = self._find(state, item_id, there, in_rows)
        carried = index >= 0
        index, places = index.clamp(min=0), math.prod(self.params.lattice)
        placement = decode_placement(index % places, 1, self.params)
        chosen = item_id.gather(1, index.div(places, rounding_mode="floor")[:, None])
        return self._lay(state, Landing(chosen.squeeze(1), placement, z, carried)), carried

    def again(self, state: State) -> State:
        """Return a container with the items of another one, each in the same place."""
        again, there = self.empty(1), torch.ones(1, dtype=torch.bool)
        for order in range(int(state["items_packed"])):
            row, z = state["item_id"][:, order], state["z"][:, order]
            again = self._lay(again, Landing(row, _placement(state, order), z, there))
        return again

    def _lay(self, state: State, item: Landing) -> State:
        """Add an item in its place to the containers that are marked."""
        count, row, z, carried = state["items_packed"], item.item_id, item.z, item.carried
        placement = item.placement
        top = z[:, None, None] + self._items["top"][row, 0]
        rise = torch.where(carried[:, None, None], top, -torch.inf)
        record = torch.stack((count, placement.orientation, placement.x, placement.y), -1)
        place = count[:, None].clamp(max=self.params.num_items - 1)
        after = dict(state)
        if self.params.constraints:
            after |= constraints.commit(state, item, self._items, self.params)
        after["heightmap"] = hm.raise_window(state["heightmap"], placement.x, placement.y, rise)
        # In rows without a place, these entries lie behind the last item and are never read.
        after["item_id"] = state["item_id"].scatter(1, place, row[:, None])
        after["z"] = state["z"].scatter(1, place, z[:, None])
        after["placement"] = state["placement"].scatter(
            1, place[..., None].expand(-1, -1, 4), record[:, None]
        )
        after["items_packed"] = count + carried
        after["volume"] = state["volume"] + torch.where(carried, self._items["volume"][row], 0.0)
        return after

    def _find(
        self,
        state: State,
        item_id: Int[Tensor, "B L"],
        there: Bool[Tensor, "B L"],
        in_rows: bool,
    ) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
        """Return the lowest legal place in each container and its rest height; -1 for no place."""
        index = torch.full((len(item_id),), -1)
        z = torch.full((len(item_id),), torch.inf)
        for held, search in self._lowest:
            these = there & held[item_id]
            if bool(these.any()):
                if in_rows:
                    lowest = search.from_maps(state, item_id, these, self._rows(item_id))
                else:
                    lowest = search.among(state, item_id, these)
                mine = these.any(1)
                index = torch.where(mine, lowest.index, index)
                z = torch.where(mine, lowest.z, z)
        return index, z

    def _rows(self, item_id: Int[Tensor, "B L"]) -> Bool[Tensor, "B L R Xs Ys"]:
        """Return the places that are whole steps from the wall; a step is an item and its gap."""
        rules = self.params.constraints
        wall, gap = (
            constraints.cells_of(length or 0.0, self.params)
            for length in (rules.walls, rules.clearance)
        )
        step = self._items["size"][item_id].clamp(min=1) + gap
        along = []
        for axis, count in enumerate(self.params.lattice):
            beyond = torch.arange(count) * self.params.grid_step - wall
            along.append((beyond >= 0) & (beyond % step[..., axis, None] == 0))
        return along[0][..., :, None] & along[1][..., None, :]

    def replay(self, state: State) -> State:
        """Repeat the placements of one container in full steps; return the full state."""
        zeros = torch.zeros(1, dtype=torch.int64)
        numbers = (zeros + self.params.num_items, zeros, zeros, zeros)
        full = transition.begin(state["item_id"], *numbers, self.params)
        for order in range(int(state["items_packed"])):
            placement = _placement(state, order)
            full["queue"] = torch.full_like(full["queue"], order)
            legal = feasibility.judge(full, placement, self._items, self.params)
            if not bool(legal):
                raise RuntimeError(f"the search put part {order} where a full step refuses it")
            full, _ = transition.decide(full, placement, legal, self._items, self.params)
        return full


def _placement(state: State, order: int) -> Placement:
    """Return the placement of a packed item, with the item as the first one of the queue."""
    first, orientation, x, y = state["placement"][:, order].unbind(1)
    first = torch.zeros_like(first)
    return Placement(first, orientation, x, y, first == 0)
