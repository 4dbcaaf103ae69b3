"""`Lookahead`: compares the proposals of a policy by simulations from each of them."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Int
from tensordict import TensorDict
from torch import Tensor

from agents.heuristics import HEURISTICS
from agents.options import option_groups
from agents.search.policy import Base, SearchPolicy
from agents.search.scorers import Proposals
from agents.search.simulator import Simulator
from agents.training.evaluate import ROUND_STRIDE
from packing_env import PackingEnv
from packing_env.generators import Futures
from packing_env.types import ParameterError, State
from packing_env.values import Count, Positive, Seed, check

_AT_ONCE = 128
"""Number of copies that are simulated at once; the maps of more candidates would exceed the cache.
"""
_PRIOR = 8
"""Weight of the base's value of a proposal, in play-outs. The variance of a play-out is about this
many times that of the value's error.
"""
_FIRST_RATE = 1000.0
"""Assumed play-outs per second, before any play-out has been timed."""


@dataclass(frozen=True)
class Budget:
    """The number of play-outs per decision, or the time for them.

    Attributes:
        playouts: Play-outs per decision of a row; every round simulates each proposal at least
            once.
        ms: Milliseconds per decision of a row, instead of ``playouts``. The budgets of the rows are
            added up. The number of play-outs is computed from the time of earlier ones, so the
            budget holds on average.
    """

    playouts: Count = 256
    ms: Positive | None = None

    def __post_init__(self) -> None:
        check(self)


@dataclass(frozen=True)
class LookaheadSize:
    """Sizes of a search by play-outs.

    Attributes:
        breadth: Number of proposals to compare.
        depth: Number of decisions of the base before its value is used. None plays to the end.
            It must be None if the base has no value; for a heuristic, it is set to None.
        num_candidates: Number of candidates from which a value of afterstates chooses in play-outs;
            None means all candidates from which it proposes.
    """

    breadth: Count = 4
    depth: Count | None = 2
    num_candidates: Count | None = None

    def __post_init__(self) -> None:
        check(self)


class Lookahead(SearchPolicy):
    """A policy that simulates the most promising actions of another policy and chooses the best.

    Play-outs follow each of ``breadth`` proposals: the base policy makes ``depth`` decisions, then
    its value of the state estimates the rest. All proposals of a row are simulated with the same
    future items. The base's value of a proposal counts as eight play-outs, so that a few noisy
    play-outs do not overrule it. Each round costs the same and halves the number of proposals
    (sequential halving: Karnin et al., ICML 2013). With depth 1 and a value, the play-outs are
    expectimax over stratified samples of items: exact for a uniform distribution of items if the
    number of play-outs per proposal is a multiple of the number of items.

    Hidden items are redrawn (:class:`packing_env.generators.Futures`). The policy acts only in the
    environment for which it was built (:class:`agents.search.policy.SearchPolicy`);
    :meth:`bound_to` builds it for another environment.

    Args:
        env: The environment, with ``action_mode="placement"`` or ``"candidate"``.
        base: The base policy.
        size: See :class:`LookaheadSize`; each field is a keyword.
        budget: See :class:`Budget`; each field is a keyword.
        seed: Seed of the random futures.

    Raises:
        ParameterError: The base has no value, although ``depth`` needs one, or no candidates,
            although ``num_candidates`` needs them; or the distribution of hidden items is unknown.
    """

    @option_groups
    def __init__(
        self,
        env: PackingEnv,
        base: Base,
        *,
        size: LookaheadSize = LookaheadSize(),
        budget: Budget = Budget(),
        seed: Seed = 0,
    ) -> None:
        super().__init__(env, Simulator(env), base, size.num_candidates)
        # A heuristic has no value of a state, so it plays to the end.
        self.size = replace(size, depth=None) if base in HEURISTICS else size
        self.budget, self._seed = budget, seed
        if self.size.depth is not None and not self.scorer.has_value:
            raise ParameterError(
                f"depth={self.size.depth}: {type(self.base).__name__} has no value of a state; use "
                "depth=null"
            )
        hides = env.params.num_slots < env.params.num_items
        self.futures = _futures(env, seed) if hides else None
        self._rate = _FIRST_RATE

    def bound_to(self, env: PackingEnv) -> Lookahead:
        """Return the same search for another environment; its random numbers start again."""
        return Lookahead(env, self._base, size=self.size, budget=self.budget, seed=self._seed)

    def redraw(self, number: int) -> None:
        """Seed the futures of the ``number``-th round, independently of earlier rounds."""
        if self.futures is not None:
            self.futures.generator.manual_seed(self._seed + number * ROUND_STRIDE)

    def choose(self, state: State, root: TensorDict) -> Int[Tensor, " B"]:
        """Compare the proposals of each row by play-outs."""
        deadline = time.perf_counter() + len(root) * (self.budget.ms or 0.0) / 1e3
        return self._compare(state, self.scorer.propose(root, self.size.breadth), deadline)

    def _compare(self, state: State, proposals: Proposals, deadline: float) -> Int[Tensor, " B"]:
        proposed = proposals.action
        rounds = math.ceil(math.log2(proposed.shape[1]))
        total = torch.where(proposed < 0, -torch.inf, 0.0).double()
        if self.scorer.has_value:
            total = _PRIOR * proposals.value.double()
        for rest in range(rounds, 0, -1):
            pairs = proposed.numel()
            if self.budget.ms is None:
                count = self.budget.playouts // (rounds * proposed.shape[1])
            else:
                count = int(self._rate * (deadline - time.perf_counter()) / (rest * pairs))
            total += self.play_outs(state, proposed, max(1, count)).sum(2)
            order = total.argsort(dim=1, descending=True, stable=True)
            order = order[:, : -(-proposed.shape[1] // 2)]
            proposed, total = proposed.gather(1, order), total.gather(1, order)
        return proposed[:, 0].clamp(min=0)

    def play_outs(
        self, state: State, proposed: Int[Tensor, "B K"], count: int
    ) -> Float[Tensor, "B K {count}"]:
        """Compute the returns of all proposals in ``count`` futures of each row."""
        start = time.perf_counter()
        # 1. Sequences of items: the known items, and draws of the hidden ones.
        item_id, (batch, breadth) = state["item_id"], proposed.shape
        sequences = item_id[:, None].expand(-1, count, -1)
        if self.futures is not None:
            sequences = self.futures.draw(item_id, count)
        # 2. Simulate every proposal of every row in each of the row's futures.
        pairs = torch.arange(batch * breadth * count, device=item_id.device)
        row, which, future = pairs // (breadth * count), pairs // count % breadth, pairs % count
        action = proposed[row, which].clamp(min=0)
        returns = []
        for part in pairs.split(_AT_ONCE):
            copies = {key: value[row[part]] for key, value in state.items()}
            copies["item_id"] = sequences[row[part], future[part]]
            returns.append(self._play(copies, action[part]))
        self._rate = len(pairs) / (time.perf_counter() - start)
        return torch.cat(returns).view(batch, breadth, count)

    def _play(self, state: State, action: Int[Tensor, " R"]) -> Float[Tensor, " R"]:
        """Return each copy's sum of rewards from an action on, plus the value at the end."""
        played = self.simulator.advance(state, action)
        total = played.reward.double()
        copies = torch.arange(len(total), device=total.device)
        ahead = self.size.depth or self.simulator.env.params.num_items
        for rest in range(ahead, 0, -1):
            going = (~played.done).nonzero().squeeze(1)
            if not len(going):
                break
            if len(going) < len(copies):
                played, copies = played.select(going), copies[going]
            decision = self.scorer.act(played.root)
            if rest == 1 and decision.value is not None:
                total[copies] += decision.value
                break
            played = self.simulator.advance(played.state, decision.action)
            total[copies] += played.reward
        return total


def _futures(env: PackingEnv, seed: int) -> Futures:
    if env.generator is None:
        raise ParameterError(
            "search redraws hidden items, but this environment does not know from which "
            "generator its instances were drawn; build it with make_env, or pass generator=..."
        )
    return Futures(env.generator, env.catalogue, env.params, seed)
