"""Policies as search uses them: proposals, decisions, and the value of a state if there is one."""

from __future__ import annotations

from typing import NamedTuple, Protocol

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
        action: ``[R]``.
        value: ``[R]`` return expected from here on, the decision's reward included; None if the
            policy has no value.
    """

    action: Int[Tensor, " R"]
    value: Float[Tensor, " R"] | None


class Scorer(Protocol):
    """A policy as search uses it.

    Attributes:
        has_value: Whether decisions have values.
        in_keys: Entries that it reads.
    """

    has_value: bool
    in_keys: list[str | tuple[str, ...]]

    def propose(self, root: TensorDict, count: int) -> Int[Tensor, "R {count}"]:
        """Return the ``count`` most promising actions, best first, -1 after the last."""

    def act(self, root: TensorDict) -> Decision:
        """Return what the policy does."""


class AfterstateScorer:
    """Values of afterstates; those of candidates alone, not of the places that they leave empty.

    Args:
        policy: Has the values, and proposes from all its candidates.
        num_candidates: Candidates that it decides among; None for all.
    """

    has_value = True

    def __init__(self, policy: AfterstatePolicy, num_candidates: int | None = None) -> None:
        self.policy, self.in_keys = policy, policy.in_keys
        self.few = policy.afterstates
        if num_candidates is not None:
            self.few = self.few.limited_to(num_candidates)

    def propose(self, root: TensorDict, count: int) -> Int[Tensor, "R {count}"]:
        """Return the candidates of largest value."""
        return _best(*self._candidates(root, self.policy.afterstates), count)

    def act(self, root: TensorDict) -> Decision:
        """Return the best candidate, and its value."""
        candidate, value = self._candidates(root, self.few)
        best, where = value.max(1)
        action = candidate.gather(1, where[:, None]).squeeze(1)
        return Decision(action.clamp(min=0), best / self.policy.scale)

    def _candidates(
        self, root: TensorDict, afterstates: Afterstates
    ) -> tuple[Int[Tensor, "R K"], Float[Tensor, "R K"]]:
        """Return the candidates and their values, -inf after the last."""
        policy = self.policy
        heightmap, item_id, offered, mask, packed = (root.get(key) for key in self.in_keys)
        candidate, maps, _ = afterstates.compute(heightmap, item_id, offered, mask)
        slot = afterstates.slots(candidate.clamp(min=0), offered)
        context = policy.outlook.waiting(item_id, packed.squeeze(-1), slot)
        there = candidate >= 0
        reward = policy.outlook.rewards(item_id).gather(1, slot)
        value = torch.full_like(reward, -torch.inf)
        value[there] = reward[there] + policy.value(maps[there], context[there])
        return candidate, value


class ActionValueScorer:
    """A network of action values."""

    has_value = True

    def __init__(self, policy: PolicyWrapper) -> None:
        self.policy, self.in_keys = policy, policy.in_keys

    def propose(self, root: TensorDict, count: int) -> Int[Tensor, "R {count}"]:
        """Return the legal actions of largest value."""
        mask, value = root.get(self.policy.mask_key), self.policy.action_values(root)
        places = torch.arange(mask.shape[1], device=mask.device)
        return _best(torch.where(mask, places, -1), torch.where(mask, value, -torch.inf), count)

    def act(self, root: TensorDict) -> Decision:
        """Return the best legal action, and its value."""
        found = self.policy(root)
        value = found.get(self.policy.chosen_key).squeeze(-1)
        return Decision(found.get(self.policy.action_key), value)


class HeuristicScorer:
    """A rule: it proposes its own choice, then the candidates of :class:`packing_env.Afterstates`.

    Args:
        policy: The rule.
        env: Its environment.
    """

    has_value = False

    def __init__(self, policy: Heuristic, env: PackingEnv) -> None:
        if env.params.action_mode != "placement":
            raise ParameterError(
                f"search on a heuristic needs action_mode='placement', not "
                f"{env.params.action_mode!r}; networks of action values are searched in both"
            )
        self.policy = policy
        self.afterstates = Afterstates(env)
        keys = [*policy.in_keys, *self.afterstates.in_keys]
        self.in_keys = list(dict.fromkeys(keys))

    def propose(self, root: TensorDict, count: int) -> Int[Tensor, "R {count}"]:
        """Return the rule's choice, then other candidates."""
        own = self.act(root).action[:, None]
        others = self.afterstates(root.select(*self.afterstates.in_keys)).get("candidate")
        rank = torch.arange(others.shape[1], 0, -1, device=others.device)
        rank = torch.where((others < 0) | (others == own), -torch.inf, rank.double())
        return torch.cat((own, _best(others, rank, count - 1)), 1)

    def act(self, root: TensorDict) -> Decision:
        """Return the rule's choice."""
        return Decision(self.policy(root.select(*self.policy.in_keys)).get("action"), None)


def scorer_of(
    policy: TensorDictModuleBase, env: PackingEnv, num_candidates: int | None = None
) -> Scorer:
    """Return a policy as search uses it; a value of afterstates decides among some candidates.

    Raises:
        ParameterError: Search does not know policies of this kind, or it has no candidates.
    """
    if isinstance(policy, AfterstatePolicy):
        return AfterstateScorer(policy, num_candidates)
    if num_candidates is not None:
        raise ParameterError(
            f"num_candidates={num_candidates}: {type(policy).__name__} is no value of afterstates "
            "and has no candidates; use num_candidates=null"
        )
    if isinstance(policy, PolicyWrapper) and policy.mask_key is not None:
        return ActionValueScorer(policy)
    if isinstance(policy, Heuristic):
        return HeuristicScorer(policy, env)
    raise ParameterError(
        f"search takes heuristics, values of afterstates and networks of action values, not "
        f"{type(policy).__name__}"
    )


def _best(
    action: Int[Tensor, "R K"], rank: Float[Tensor, "R K"], count: int
) -> Int[Tensor, "R {count}"]:
    """Return the actions of largest rank, -1 for those of rank -inf and after the last."""
    kept = min(count, action.shape[1])
    best, where = rank.topk(kept, dim=1)
    chosen = torch.where(best == -torch.inf, -1, action.gather(1, where))
    return torch.nn.functional.pad(chosen, (0, count - kept), value=-1)
