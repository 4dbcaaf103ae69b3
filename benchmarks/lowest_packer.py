"""Whole episodes packed as low as possible, without maps of all placements."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import metrics, rewards, transition
from packing_env.core.lowest import LowestPlacement
from packing_env.core.orientation import decode_placement, num_orientations
from packing_env.engine.base import Task
from packing_env.engine.operations import Operations, new_outcome, supported_ground
from packing_env.types import Instances, State


class LowestPacker:
    """A packer that puts every item at its lowest legal placement until each episode has ended.

    The episodes equal those of the corresponding heuristic in an environment.
    :mod:`packing_env.core.transition` computes rules, rewards and done flags; only the next
    placement comes from the search. If possible, a compiled operation carries out the decisions,
    with the same bits.

    Args:
        lowest: The search, with the task and the items.
    """

    def __init__(self, lowest: LowestPlacement) -> None:
        self.lowest = lowest
        self._operations: Operations | None = None
        if lowest.searches and supported_ground(lowest.catalogue, lowest.params) == "heights":
            nothing = torch.zeros(1, lowest.params.num_items, dtype=torch.int64)
            pool = Instances(nothing, nothing[:, 0])  # empty, because no episode is started
            task = Task(lowest.params, lowest.catalogue, pool)
            self._operations = Operations(task, lowest.catalogue["orientation_mask"])

    def __call__(self, state: State) -> State:
        """Play episodes from any state to their ends.

        Args:
            state: As in ``env.state``; it is not changed.

        Returns:
            The terminal states.
        """
        index = self.lowest.find(state).index
        state = {
            key: value.clone(memory_format=torch.contiguous_format) for key, value in state.items()
        }
        state["legal"] = state["legal"][:, :0]  # the search finds legal placements without a map
        # As in the environment, a row without a legal placement has ended.
        state["terminated"] |= index < 0
        if self._operations is None:
            return self._by_rules(state, index)
        return self._in_place(self._operations, state, index)

    def _by_rules(self, state: State, index: Int[Tensor, " B"]) -> State:
        items, params = self.lowest.catalogue, self.lowest.params
        while not bool(transition.is_done(state).all()):
            placement = decode_placement(index, num_orientations(items), params)
            legal = placement.valid  # the search proposes legal placements only
            after, _ = transition.decide(state, placement, legal, items, params)
            index = self.lowest.find(after).index
            state = transition.finish(state, after, legal, index >= 0, params)
        return state

    def _in_place(self, operations: Operations, state: State, index: Int[Tensor, " B"]) -> State:
        """Carry out the decisions with the compiled operation, then set rewards and ends."""
        params, batch = self.lowest.params, len(index)
        ahead = operations.ahead(batch, index.device)
        outcome = new_outcome(batch, index.device)
        legal, live = outcome["legal"], outcome["live"]
        before = metrics.measure(state, params)
        while not bool(transition.is_done(state).all()):
            under = metrics.sum_of_heights(state["heightmap"])
            kernels.decide_heights(operations.task, state, index[:, None], ahead, under, outcome)
            after = metrics.measure(state, params)
            terms = rewards.weighted_terms(params.reward, before, after, legal)
            state["reward_sum"] += torch.where(live[:, None], terms, 0.0)
            index, before = self.lowest.find(state).index, after
            packed = state["items_packed"] >= state["num_items"]
            state["terminated"] |= live & ((index < 0) | packed)
            state["truncated"] |= live & (state["step"] >= params.step_limit)
        return state
