"""Whole episodes packed as low as possible, which need no map of all placements."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import metrics, rewards, transition
from packing_env.core.lowest import LowestPlacement
from packing_env.core.orientation import decode_placement, num_orientations
from packing_env.engine import heights as maps_step
from packing_env.types import Instances, State


class LowestPacker:
    """Puts every item down at its lowest legal placement, until each row's episode has ended.

    The episodes are those that the heuristic of that order plays in an environment: rules, rewards
    and the end of an episode are :func:`packing_env.core.transition`'s. Only what may be
    done next is found by the search. Where it can, a compiled operation carries the decisions out,
    to the same bits.

    Args:
        lowest: The search, which knows the task and the items.
    """

    def __init__(self, lowest: LowestPlacement) -> None:
        self.lowest = lowest
        self._step: maps_step.MapsStep | None = None
        if lowest.searches and maps_step.applies(lowest.catalogue, lowest.params):
            nothing = torch.zeros(1, lowest.params.num_items, dtype=torch.int64)
            shown = lowest.catalogue["orientation_mask"]
            pool = Instances(nothing, nothing[:, 0])  # no episode begins here
            self._step = maps_step.MapsStep(
                lowest.params, lowest.catalogue, pool, shown, in_turn=False
            )

    def __call__(self, state: State) -> State:
        """The ends of episodes that are at any point, as in ``env.state``, which stays as it is."""
        index = self.lowest.find(state).index
        state = {
            key: value.clone(memory_format=torch.contiguous_format) for key, value in state.items()
        }
        # a row in which nothing can be done has ended, as the environment would have said
        state["terminated"] |= index[:, 0] < 0
        if self._step is None:
            return self._by_rules(state, index)
        return self._in_place(self._step, state, index)

    def _by_rules(self, state: State, index: Int[Tensor, "B 1"]) -> State:
        """Decision by decision through the rules' own functions."""
        turns, params = num_orientations(self.lowest.catalogue), self.lowest.params
        while not bool(transition.is_done(state).all()):
            placement = decode_placement(index[:, 0], turns, params)
            after, outcome = transition.decide(state, placement, self.lowest.catalogue, params)
            index = self.lowest.find(after).index
            state = transition.finish(state, after, outcome.legal, index[:, 0] >= 0, params)
        return state

    def _in_place(self, step: maps_step.MapsStep, state: State, index: Int[Tensor, "B 1"]) -> State:
        """The same by the compiled operation, but for rewards and the end."""
        params, batch = self.lowest.params, len(index)
        ahead = step.room_ahead(batch, index.device, surfaces=False)
        asked, live = torch.empty(2, batch, dtype=torch.bool).unbind()
        numbers = torch.empty(2, len(metrics.NAMES), batch, dtype=torch.float64)
        outcome = {"asked": asked, "live": live, "before": numbers[0], "after": numbers[1]}
        before = metrics.measure(state, params)
        while not bool(transition.is_done(state).all()):
            under = metrics.sum_of_heights(state["heightmap"])
            kernels.advance_maps(step.task, state, index, ahead, under, outcome)
            after = metrics.measure(state, params)
            terms = rewards.weighted_terms(params.reward, before, after, asked)
            state["reward_sum"] += torch.where(live[:, None], terms, 0.0)
            index, before = self.lowest.find(state).index, after
            packed = state["items_packed"] >= state["num_items"]
            state["terminated"] |= live & ((index[:, 0] < 0) | packed)
            state["truncated"] |= live & (state["step"] >= params.step_limit)
        return state
