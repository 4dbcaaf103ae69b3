"""Adapters of policies for search: proposals, decisions and, if available, values of states."""

from __future__ import annotations

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents.heuristics import Heuristic
from agents.policies.afterstate import AfterstatePolicy
from agents.policies.policy_wrapper import PolicyWrapper
from packing_env import Afterstates, PackingEnv
from packing_env.types import ParameterError


class Decision(NamedTuple):
    """A policy's decision in each row.

    Attributes:
        action: ``[R]`` action of each row.
        value: ``[R]`` expected return from now on, including the reward of this decision; None if
            the policy has no value.
    """

    action: Int[Tensor, " R"]
    value: Float[Tensor, " R"] | None


class Proposals(NamedTuple):
    """The most promising actions of each row, best first.

    Attributes:
        action: ``[R, K]``, padded with -1.
        value: ``[R, K]`` expected return from now on, including the reward of the decision, -inf
            for padding. If the policy has no value, only the order has a meaning.
    """

    action: Int[Tensor, "R K"]
    value: Float[Tensor, "R K"]


class AfterstateScorer:
    """Values of afterstates, computed only for existing candidates.

    Args:
        policy: Policy that computes the values; it proposes from all its candidates.
        num_candidates: Number of candidates from which it decides (:meth:`act`); None means all.
    """

    has_value = True

    def __init__(self, policy: AfterstatePolicy, num_candidates: int | None = None) -> None:
        self.policy, self.in_keys = policy, policy.in_keys
        self.few = policy.afterstates
        if num_candidates is not None:
            self.few = self.few.limited_to(num_candidates)

    def propose(self, root: TensorDict, count: int, few: bool = False) -> Proposals:
        """Return the candidates of largest value."""
        candidate, value = self._candidates(root, self.few if few else self.policy.afterstates)
        return _best(candidate, value / self.policy.scale, count)

    def act(self, root: TensorDict) -> Decision:
        """Return the best candidate, and its value."""
        candidate, value = self._candidates(root, self.few)
        best, where = value.max(1)
        action = candidate.gather(1, where[:, None]).squeeze(1)
        return Decision(action.clamp(min=0), best / self.policy.scale)

    def _candidates(
        self, root: TensorDict, afterstates: Afterstates
    ) -> tuple[Int[Tensor, "R K"], Float[Tensor, "R K"]]:
        candidate, maps, context, reward = self.policy.candidates(root, afterstates)
        there = candidate >= 0
        value = torch.full_like(reward, -torch.inf)
        value[there] = reward[there] + self.policy.value(maps[there], context[there])
        return candidate, value


class ActionValueScorer:
    """A network of action values."""

    has_value = True

    def __init__(self, policy: PolicyWrapper) -> None:
        self.policy, self.in_keys = policy, policy.in_keys

    def propose(self, root: TensorDict, count: int, few: bool = False) -> Proposals:
        """Return the legal actions of largest value."""
        mask, value = root.get(self.policy.mask_key), self.policy.action_values(root)
        places = torch.arange(mask.shape[1], device=mask.device)
        return _best(torch.where(mask, places, -1), torch.where(mask, value, -torch.inf), count)

    def act(self, root: TensorDict) -> Decision:
        """Return the best legal action, and its value."""
        decided = self.policy(root)
        value = decided.get(self.policy.chosen_key).squeeze(-1)
        return Decision(decided.get(self.policy.action_key), value)


class HeuristicScorer:
    """A heuristic; it proposes its own choice, then candidates of :class:`packing_env.Afterstates`.

    Args:
        policy: The rule.
        env: Its environment.
    """

    has_value = False

    def __init__(self, policy: Heuristic, env: PackingEnv) -> None:
        if env.params.action_mode != "placement":
            raise ParameterError(
                "search on a heuristic needs action_mode='placement', not "
                f"{env.params.action_mode!r}; networks of action values can be searched in both "
                "modes"
            )
        self.policy = policy
        self.afterstates = Afterstates(env)
        self.in_keys = list(dict.fromkeys([*policy.in_keys, *self.afterstates.in_keys]))

    def propose(self, root: TensorDict, count: int, few: bool = False) -> Proposals:
        """Return the heuristic's choice, then other candidates; only the order of values counts."""
        own = self.act(root).action[:, None]
        others = self.afterstates(root.select(*self.afterstates.in_keys)).get("candidate")
        rank = torch.arange(others.shape[1], 0, -1, device=others.device)
        rank = torch.where((others < 0) | (others == own), -torch.inf, rank.double())
        rest = _best(others, rank, count - 1)
        first = torch.full_like(own, others.shape[1] + 1, dtype=rank.dtype)
        return Proposals(torch.cat((own, rest.action), 1), torch.cat((first, rest.value), 1))

    def act(self, root: TensorDict) -> Decision:
        """Return the heuristic's choice."""
        return Decision(self.policy(root.select(*self.policy.in_keys)).get("action"), None)


Scorer = AfterstateScorer | ActionValueScorer | HeuristicScorer
"""The interface of a policy in search.

``has_value`` says whether decisions have values, and ``in_keys`` names the entries that they read.
``act(root)`` returns a :class:`Decision`. ``propose(root, count)`` returns the best actions as
:class:`Proposals`. A policy with candidates compares all of them or, with ``few=True``, only
``num_candidates``.
"""


def scorer_of(
    policy: TensorDictModuleBase, env: PackingEnv, num_candidates: int | None = None
) -> Scorer:
    """Return the adapter of a policy for search.

    Args:
        policy: A heuristic, a value of afterstates or a network of action values.
        env: Its environment.
        num_candidates: Number of candidates from which a value of afterstates chooses; None means
            all.

    Raises:
        ParameterError: The policy is of another kind, or has no candidates.
    """
    if isinstance(policy, AfterstatePolicy):
        return AfterstateScorer(policy, num_candidates)
    if num_candidates is not None:
        raise ParameterError(
            f"num_candidates={num_candidates}: {type(policy).__name__} has no candidates; use "
            "num_candidates=null"
        )
    if isinstance(policy, PolicyWrapper) and policy.mask_key is not None:
        return ActionValueScorer(policy)
    if isinstance(policy, Heuristic):
        return HeuristicScorer(policy, env)
    raise ParameterError(
        f"search takes heuristics, values of afterstates and networks of action values, not "
        f"{type(policy).__name__}"
    )


def _best(action: Int[Tensor, "R K"], value: Float[Tensor, "R K"], count: int) -> Proposals:
    """Return the actions of largest value; those of value -inf become padding."""
    most = min(count, action.shape[1])
    best, where = value.topk(most, dim=1)
    chosen = torch.where(best == -torch.inf, -1, action.gather(1, where))
    padding = (0, count - most)
    return Proposals(
        torch.nn.functional.pad(chosen, padding, value=-1),
        torch.nn.functional.pad(best, padding, value=-torch.inf),
    )
