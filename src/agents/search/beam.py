"""`Beam`: plans the placements of all known items and carries out the first of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from tensordict import TensorDict
from torch import Tensor

from agents.options import option_groups
from agents.search.policy import Base, SearchPolicy
from agents.search.simulator import Simulator
from packing_env import PackingEnv
from packing_env.types import ParameterError, State
from packing_env.values import Count, check

_AT_ONCE = 128
"""Number of plans that are extended at once; the maps of more candidates would exceed the cache."""


@dataclass(frozen=True)
class BeamSize:
    """Sizes of a beam search.

    Attributes:
        width: Number of plans per row.
        breadth: Number of actions by which each plan is extended.
        depth: Largest number of items in a plan; None means all known items. With plans of twenty
            items, the search finds overestimated states more often than good plans.
        num_candidates: Number of candidates from which a value of afterstates chooses, except for
            the first item of a plan; None means all.
    """

    width: Count = 16
    breadth: Count = 8
    depth: Count | None = 10
    num_candidates: Count | None = None

    def __post_init__(self) -> None:
        check(self)


@dataclass
class _Plans:
    """Plans of several rows.

    Attributes:
        row: ``[P]`` row of each plan.
        first: ``[P]`` first action of each plan, -1 before it is chosen.
        earned: ``[P]`` sum of the rewards so far.
        state: States after the plans.
        root: Observations of these states.
    """

    row: Int[Tensor, " P"]
    first: Int[Tensor, " P"]
    earned: Float[Tensor, " P"]
    state: State
    root: TensorDict

    def __getitem__(self, which: Tensor) -> _Plans:
        state = {key: value[which] for key, value in self.state.items()}
        return _Plans(
            self.row[which], self.first[which], self.earned[which], state, self.root[which]
        )


class Beam(SearchPolicy):
    """A policy that plans ahead over the visible and previewed items.

    Beam search keeps the ``width`` plans of largest value. In each round, the ``breadth`` best
    actions of the base extend each plan by one item. The value of a plan is the sum of its rewards
    and the base's value of the last state. When all known items are planned, the first action of
    the best plan is carried out; the next decision plans again. Hidden items are not drawn, so the
    generator need not be known.

    The base sees only the items that may be chosen now (``num_visible``); plans also contain the
    previewed items. A plan ends when none of its known items fits. It keeps the value of its last
    state if hidden items could still be packed.

    Args:
        env: The environment, with ``action_mode="placement"`` or ``"candidate"``.
        base: The base policy, built for an environment without a preview; it needs a value.
        size: See :class:`BeamSize`; each field is a keyword.

    Raises:
        ParameterError: The base has no value, or no candidates although ``num_candidates`` needs
            them.
    """

    @option_groups
    def __init__(self, env: PackingEnv, base: Base, *, size: BeamSize = BeamSize()) -> None:
        super().__init__(env, Simulator(env, preview=0), base, size.num_candidates)
        self.size = size
        if not self.scorer.has_value:
            raise ParameterError(
                f"beam search compares values of states, but {type(self.base).__name__} has none; "
                "use a trained agent, or agent=search"
            )

    def bound_to(self, env: PackingEnv) -> Beam:
        """Return the same search for another environment."""
        return Beam(env, self._base, size=self.size)

    def choose(self, state: State, root: TensorDict) -> Int[Tensor, " B"]:
        """Plan each row."""
        rows = torch.arange(len(root), device=state["item_id"].device)
        parts = rows.split(max(1, _AT_ONCE // self.size.width))
        return torch.cat(
            [self._plan({key: value[part] for key, value in state.items()}) for part in parts]
        )

    def _plan(self, state: State) -> Int[Tensor, " B"]:
        # 1. Begin with an empty plan per row.
        state, root = self.simulator.adopt(state)
        known = (state["item_id"] >= 0).sum(1)
        ahead = known - state["items_packed"]
        if self.size.depth is not None:
            ahead = ahead.clamp(max=self.size.depth)
        row = torch.arange(len(known), device=known.device)
        plans = _Plans(row, torch.full_like(row, -1), torch.zeros_like(row).double(), state, root)
        chosen = torch.zeros_like(row)
        finished: list[tuple[Tensor, Tensor, Tensor]] = []  # row, first action and value of plans
        breadth = self.size.breadth
        for length in range(1, int(ahead.max()) + 1):
            # 2. Extend each plan, and keep the best of each row.
            proposed = self.scorer.propose(plans.root, breadth, few=length > 1)
            value = (plans.earned[:, None] + proposed.value.double()).flatten()
            row = plans.row.repeat_interleave(breadth)
            best = _best_of_rows(row, value, self.size.width)
            best = best[value[best] > -torch.inf]
            action, value = proposed.action.flatten()[best], value[best]
            plans = plans[best // breadth]
            if length == 1:
                plans.first = action
            # 3. Set aside plans of all known items; go on with the others.
            complete = length >= ahead[plans.row]
            finished.append((plans.row[complete], plans.first[complete], value[complete]))
            plans, action, value = plans[~complete], action[~complete], value[~complete]
            if not len(action):
                break
            played = self.simulator.advance(plans.state, action)
            earned = plans.earned + played.reward
            plans = _Plans(plans.row, plans.first, earned, played.state, played.root)
            # 4. Set aside plans that have ended; if hidden items may follow, use their value.
            done, hidden = played.done, _is_hidden(plans.state, known[plans.row])
            ended = torch.where(hidden, value, earned)
            finished.append((plans.row[done], plans.first[done], ended[done]))
            plans = plans[~done]
            if not len(plans.row):
                break
            # 5. Of plans that lead to the same state, keep one.
            plans = plans[_distinct(plans)]
        # 6. Return the first action of the best plan of each row.
        if finished:
            row, first, value = (torch.cat(each) for each in zip(*finished, strict=True))
            top = _best_of_rows(row, value, 1)
            chosen[row[top]] = first[top]
        return chosen


def _best_of_rows(
    row: Int[Tensor, " P"], value: Float[Tensor, " P"], count: int
) -> Int[Tensor, " Q"]:
    """Return the indices of the ``count`` largest values of each row, ordered by row and value."""
    order = value.argsort(descending=True, stable=True)
    order = order[row[order].argsort(stable=True)]
    ordered = row[order]
    rank = torch.arange(len(row), device=row.device) - torch.searchsorted(ordered, ordered)
    return order[rank < count]


def _is_hidden(state: State, known: Int[Tensor, " P"]) -> Tensor:
    """Return which states have a place in the queue for an item that is not known yet."""
    queue = state["queue"]
    return ((queue >= known[:, None]) & (queue < state["num_items"][:, None])).any(1)


def _distinct(plans: _Plans) -> Int[Tensor, " Q"]:
    """Return the indices of plans with different states; of equal ones, the first."""
    # Random weights make the sums of different states different.
    state, sums = plans.state, plans.row.double()
    generator = torch.Generator().manual_seed(0)
    for key in ("heightmap", "packed"):
        values = state[key].flatten(1).double()
        weights = torch.rand(values.shape[1], generator=generator, dtype=torch.float64)
        sums = sums + values @ weights.to(values.device)
    place = torch.arange(len(sums), device=sums.device)
    groups = torch.unique(torch.stack((plans.row.double(), sums), 1), dim=0, return_inverse=True)[1]
    first = torch.full_like(place, len(place)).scatter_reduce(0, groups, place, "amin")
    return first[first < len(place)].sort().values
