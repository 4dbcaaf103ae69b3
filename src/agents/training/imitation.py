"""Warm start: an agent imitates a heuristic before it learns from its own experience.

Behaviour cloning (Pomerleau, Neural Computation 1991) by maximum likelihood. Policies with
probabilities use their own likelihood. Policies with action values use a softmax over the legal
values at a low temperature, as in policy distillation (Rusu et al., ICLR 2016, the NLL loss). So
the values keep the scale of returns, and the imitated action becomes the greedy action.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.base import Agent
from agents.algorithms.optimization import GatedAdam
from agents.config.build import build_heuristics
from agents.policies.policy_wrapper import PolicyWrapper
from agents.policies.sampling import at, masked_log_softmax
from agents.replay import DeviceReplay
from agents.replay.compact import further_keys, maps_read
from agents.training.rollout import DeviceCollector
from agents.training.schedule import Frames
from packing_env.envs import PackingEnv
from packing_env.values import Count, ParameterError, Positive, check

_JUDGED = 256
"""Number of decisions for the comparison of policy and heuristic after the imitation."""


@dataclass(frozen=True)
class WarmStart:
    """Options of the imitation.

    Attributes:
        frames: Number of the heuristic's decisions to learn from, summed over the environment's
            rows. They do not count as training frames.
        updates: Gradient steps.
        batch_size: Decisions per step.
        lr: Adam's learning rate.
        temperature: Temperature of the softmax over action values, in units of the return. Choose
            it about as large as the desired gap between the value of the imitated action and the
            other values.
    """

    frames: Frames = 8192
    updates: Count = 500
    batch_size: Count = 64
    lr: Positive = 1e-3
    temperature: Positive = 0.05

    def __post_init__(self) -> None:
        check(self, "warm_start.")


def log_likelihood(
    policy: TensorDictModuleBase, batch: TensorDictBase, temperature: float
) -> Float[Tensor, " B"]:
    """Compute the log-probability of ``action`` under the policy in the states of ``batch``."""
    action = batch.get("action")
    if (evaluate := _probabilities(policy)) is not None:
        log_prob: Tensor = evaluate(batch, action).log_prob
        return log_prob.sum(-1)
    value = policy.action_values(batch)
    return at(masked_log_softmax(value / temperature, batch.get(policy.mask_key)), action)


def _probabilities(policy: TensorDictModuleBase) -> Any:
    """Return the method that scores given actions; None if the policy has action values."""
    return getattr(policy, "evaluate", None)


def check_imitates(agent: Agent, env: PackingEnv) -> None:
    """Raise a ParameterError for an agent that :func:`log_likelihood` does not support."""
    policy, mode = agent.policy, env.params.action_mode
    of_values = isinstance(policy, PolicyWrapper) and mode in ("placement", "candidate")
    if not (of_values or _probabilities(policy)):
        raise ParameterError(
            f"warm_start: {type(agent).__name__} in action_mode={mode} cannot imitate; agents "
            "with action values can imitate in placement and candidate, and so can agents with "
            "probabilities in their modes; set warm_start.heuristic=null"
        )


def warm_start(
    agent: Agent,
    env: PackingEnv,
    heuristic: TensorDictModuleBase,
    options: WarmStart,
) -> dict[str, float]:
    """Let a heuristic play in the environment, and train the agent's policy on its decisions.

    Args:
        agent: The agent. Its policy has action values or probabilities. Its networks are copied to
            the target networks, if there are any.
        env: The environment in which the heuristic plays; training starts with a reset.
        heuristic: Writes ``action``.
        options: Sizes and rates.

    Returns:
        ``loss`` of the last steps, and the results of :func:`agreement` on later states, which were
        not used for training.

    Raises:
        ParameterError: The agent cannot imitate, or the transitions do not fit into memory.
    """
    # 1. Store the heuristic's transitions in the same form as the agent's replay.
    check_imitates(agent, env)
    rows = env.batch_size.numel()
    steps = math.ceil(options.frames / rows)
    needed, further = maps_read(agent.policy, env), further_keys(agent.policy, env)
    # The replay recomputes only the observations that the policy reads.
    replay = DeviceReplay(env, steps * rows, rebuild=needed, keep=further)
    collector = DeviceCollector(env, heuristic)
    for _ in range(steps):
        replay.extend(collector.step())
    # 2. Learn from them, and compare policy and heuristic on later states.
    loss = _imitate(agent, replay, options)
    getattr(agent, "copy_to_targets", lambda: None)()
    return {"loss": float(loss), **agreement(agent.policy, collector, math.ceil(_JUDGED / rows))}


def _imitate(agent: Agent, replay: DeviceReplay, options: WarmStart) -> Tensor:
    """Take the gradient steps; return the mean loss of the last tenth of them."""
    # Use another optimizer, because the agent's own must start fresh after the imitation.
    weights = [weight for weight in agent.policy.parameters() if weight.requires_grad]
    optimizer = GatedAdam(weights, lr=options.lr)
    last = []
    for update in range(options.updates):
        batch = replay.sample(options.batch_size)
        loss = -log_likelihood(agent.policy, batch, options.temperature).mean()
        optimizer.step(loss)
        # Losses stay on the device until the end.
        if update >= 0.9 * options.updates - 1:
            last.append(loss.detach())
    return torch.stack(last).mean()


@torch.no_grad()
def agreement(
    policy: TensorDictModuleBase, collector: DeviceCollector, steps: int
) -> dict[str, float]:
    """Measure how often a policy chooses the action of the collector's policy.

    The policy does not explore, and its actions are not carried out: the collector plays ``steps``
    decisions.

    Returns:
        ``agreement``, the share of equal decisions; and ``chance``, the expected share for random
        legal choices.
    """
    equal, chance = [], []
    for _ in range(steps):
        transition = collector.step()
        # Ask the policy for an action in the state in which the heuristic decided.
        root = transition.exclude("next", "action")
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            action = policy(root).get("action")
        # An action of several numbers counts as equal if all its numbers are equal.
        same = action == transition.get("action")
        equal.append(
            same.flatten(transition.dim()).all(-1) if same.dim() > transition.dim() else same
        )
        chance.append(1 / transition.get("action_mask").sum(-1).double())
    return {
        "agreement": float(torch.stack(equal).double().mean()),
        "chance": float(torch.stack(chance).mean()),
    }


def from_config(options: Mapping[str, Any], agent: Agent, env: PackingEnv) -> str | None:
    """Carry out ``warm_start`` of a configuration; return a summary, None without a heuristic."""
    how = dict(options)
    # The remaining entries are fields of WarmStart.
    name, _ = how.pop("heuristic"), how.pop("checkpoint", None)
    if name is None:
        return None
    heuristic = build_heuristics([name], env)[name]
    imitated = warm_start(agent, env, heuristic, WarmStart(**how))
    return (
        f"warm start: the policy agrees with {name} in {imitated['agreement']:.0%} of new states "
        f"(a random legal choice: {imitated['chance']:.1%})"
    )
