"""The lowest legal placement of a state, where possible without a map of all placements.

Planners use this, and so do policies that need no map. The order is that of the heuristic
``lowest_z`` (:func:`packing_env.core.scores.lowest_z` and its ties). The result equals the one
computed from :func:`packing_env.core.feasibility.placement_maps` bit for bit, except for the sign
of a zero.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import feasibility, preference, scores
from packing_env.core.observation import drop_heights
from packing_env.core.orientation import (
    Placement,
    decode_placement,
    num_orientations,
    visible_items,
)
from packing_env.types import Catalogue, PackingParams, ParameterError, State

_LOGGER = logging.getLogger("packing_env.core")


@dataclass(frozen=True)
class Found:
    """The lowest legal placement of each row.

    Attributes:
        index: ``[B]`` (``core.orientation.encode_placement``); -1 if no placement is legal.
        z: ``[B]`` its rest height, metres; +inf if no placement is legal.
        examined: ``[B, 3]`` counts of the search (:func:`packing_env.kernels.lowest_placements`);
            None if maps were computed for all rows.
    """

    index: Int[Tensor, " B"]
    z: Float[Tensor, " B"]
    examined: Int[Tensor, "B 3"] | None


class LowestPlacement:
    """Search for the lowest legal placement of a state.

    If the compiled search (:mod:`packing_env.kernels.search`) is available and supports the rule,
    it examines only a few placements exactly. Otherwise, and in rows where the search gives up,
    maps of all placements are computed. A log line says which of the two is used. The search runs
    on a CPU; the host reads whether it gave up in a row.

    Args:
        catalogue: The items; the constructor builds the tables for the search once.
        params: The task, in geometry ``"maps"``; its action mode does not matter.

    Attributes:
        searches: Whether the compiled search is used.

    Raises:
        ParameterError: The geometry has no heightmaps.
    """

    def __init__(self, catalogue: Catalogue, params: PackingParams) -> None:
        if params.geometry != "maps":
            raise ParameterError(
                f"the lowest placements of a lattice need geometry='maps', not {params.geometry!r}"
            )
        self.catalogue, self.params = catalogue, params
        device = catalogue["peak"].device.type
        # The search supports the stability of single items on heights, and no other rule.
        known = params.stability in kernels.SEARCHED_RULES and catalogue["bottom"].numel() > 0
        known = known and not (params.constraints.needs_maps or preference.active(params))
        known = known and params.candidate_range == "container"
        self.searches = known and kernels.is_compiled_for(device)
        if self.searches:
            self._search = _search(params)
            self._items = kernels.search_items(catalogue, self._search)
        path = "pooled bounds, without maps" if self.searches else "full maps"
        _LOGGER.info("lowest placements: from %s", path)

    def __call__(self, state: State) -> Placement:
        """Return the best placement of each row; it is not ``valid`` if no placement is legal."""
        index = self.find(state).index
        return decode_placement(index, num_orientations(self.catalogue), self.params)

    def find(self, state: State) -> Found:
        """Find the best placement of each row, finished rows included."""
        item_id, there = visible_items(state, self.params.num_visible)
        return self.among(state, item_id, there)

    def among(self, state: State, item_id: Int[Tensor, "B L"], there: Bool[Tensor, "B L"]) -> Found:
        """Find the best placement of the items marked by ``there``."""
        if not self.searches:
            return self.from_maps(state, item_id, there)
        index, z, examined = kernels.lowest_placements(
            state["heightmap"], item_id, there, self._items, self._search
        )
        # Compute maps for rows in which the search gave up; it runs only on a CPU.
        rows = torch.from_numpy(examined[:, 2].numpy().nonzero()[0])
        if len(rows):
            these = {key: value[rows] for key, value in state.items()}
            mapped = self.from_maps(these, item_id[rows], there[rows])
            index[rows], z[rows] = mapped.index, mapped.z
        return Found(index, z, examined)

    def from_maps(
        self, state: State, item_id: Tensor, there: Tensor, allowed: Tensor | None = None
    ) -> Found:
        """Find the same as :meth:`among`, from full maps; of the ``allowed`` placements only."""
        maps = feasibility.legal_maps(state, item_id, there, self.catalogue, self.params)
        pitches = drop_heights(maps, self.params).double()
        pitches = pitches * (self.params.height / self.params.pitch)
        legal = maps.legal if allowed is None else maps.legal & allowed
        index = scores.best_of_lattice(scores.HEIGHT_WEIGHT * pitches, legal)
        z = maps.z.flatten(1).gather(1, index.clamp(min=0)[:, None])[:, 0]
        return Found(index, torch.where(index >= 0, z, torch.inf), None)


def _search(params: PackingParams) -> kernels.Search:
    # The score as the search needs it: heights in pitches, their weight, and ties.
    weights = (scores.HEIGHT_WEIGHT, float(scores.TIES_PER_UNIT))
    scale = (params.height, params.height / params.pitch, *weights)
    return kernels.Search(
        grid=params.grid,
        stride=params.grid_step,
        rule=params.stability,
        lid=params.lid,
        tolerance=params.tolerance,
        scale=scale,
    )
