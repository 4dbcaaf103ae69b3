"""Warm start: an agent imitates a heuristic before it learns by itself.

Behaviour cloning (Pomerleau, Neural Computation 1991) by maximum likelihood. An agent that has a
policy over actions gives the heuristic's action its own probability. Action values give it that of
a softmax over the legal ones at a low temperature, as in policy distillation (Rusu et al., ICLR
2016, the NLL loss): the values stay of the size of returns, and the greedy action is the imitated
one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.base import Agent
from agents.algorithms.optimization import GatedAdam
from agents.objectives.multi_head_ppo import Scores
from agents.policies.policy_wrapper import PolicyWrapper
from agents.policies.sampling import at, masked_log_softmax
from agents.replay import DeviceReplay
from agents.replay.compact import further_keys, maps_read
from agents.training.rollout import DeviceCollector
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

_JUDGED = 256
"""Decisions on which policy and heuristic are compared afterwards."""


@runtime_checkable
class JudgesActions(Protocol):
    """A policy that gives actions probabilities."""

    def evaluate(self, tensordict: TensorDictBase, action: Tensor) -> Scores:
        """Scores of ``action`` in the states of ``tensordict``."""


@runtime_checkable
class HasTargets(Protocol):
    """An agent with target networks."""

    def copy_to_targets(self) -> None:
        """Make them equal to the online ones."""


@dataclass(frozen=True)
class WarmStart:
    """How to imitate.

    Attributes:
        frames: Decisions of the heuristic to learn from, summed over the environment's rows. They
            come before those of training and are not counted there.
        updates: Gradient steps.
        batch_size: Decisions per step.
        lr: Adam's learning rate.
        temperature: Of the softmax over action values, in units of the return: about the gap that
            shall be between the imitated action's value and the others'.
    """

    frames: int = 8192
    updates: int = 500
    batch_size: int = 64
    lr: float = 1e-3
    temperature: float = 0.05

    def __post_init__(self) -> None:
        for name in ("frames", "updates", "batch_size", "lr", "temperature"):
            if not getattr(self, name) > 0:
                raise ParameterError(f"warm_start.{name}={getattr(self, name)} must be positive")


def log_likelihood(
    policy: TensorDictModuleBase, batch: TensorDictBase, temperature: float
) -> Float[Tensor, " B"]:
    """Log-probability that the policy gives to ``action`` in the states of ``batch``."""
    action = batch.get("action")
    if isinstance(policy, JudgesActions):
        return policy.evaluate(batch, action).log_prob.sum(-1)
    value = policy.action_values(batch)
    return at(masked_log_softmax(value / temperature, batch.get(policy.mask_key)), action)


def check_imitates(agent: Agent, env: PackingEnv) -> None:
    """Refuse an agent that :func:`log_likelihood` has no answer for."""
    policy, mode = agent.policy, env.params.action_mode
    of_values = isinstance(policy, PolicyWrapper) and mode in ("placement", "candidate")
    if not (of_values or isinstance(policy, JudgesActions)):
        raise ParameterError(
            f"warm_start: {type(agent).__name__} in action_mode={mode} cannot imitate; agents with "
            f"action values can in placement and candidate, and those with probabilities; set "
            f"warm_start.heuristic=null"
        )


def warm_start(
    agent: Agent,
    env: PackingEnv,
    heuristic: TensorDictModuleBase,
    options: WarmStart,
    *,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """Let a heuristic play on the environment and the agent's policy learn its decisions.

    What the heuristic saw is kept as the replay keeps it. Target networks, where there are some,
    become equal to the online ones.

    Args:
        agent: Its policy scores actions, or gives them probabilities.
        env: Where the heuristic plays; training goes on from a reset.
        heuristic: Writes ``action``.
        options: How.
        should_stop: Asked after every decision and step.

    Returns:
        ``loss`` of the last steps, and of :func:`agreement` on states that came later, not learned
        from: ``agreement`` and ``chance``.

    Raises:
        ParameterError: The agent cannot imitate, or what was seen does not fit into memory.
    """
    check_imitates(agent, env)
    rows = env.batch_size.numel()
    steps = math.ceil(options.frames / rows)
    needed, further = maps_read(agent.policy, env), further_keys(agent.policy, env)
    seen = DeviceReplay(env, steps * rows, rebuild=needed, keep=further)
    collector = DeviceCollector(env, heuristic)
    for _ in range(steps):
        seen.extend(collector.step())
        if should_stop():
            break
    loss = _imitate(agent, seen, options, should_stop)
    if isinstance(agent, HasTargets):
        agent.copy_to_targets()
    return {"loss": float(loss), **agreement(agent.policy, collector, math.ceil(_JUDGED / rows))}


def _imitate(
    agent: Agent, seen: DeviceReplay, options: WarmStart, should_stop: Callable[[], bool]
) -> Tensor:
    """The gradient steps; the mean loss of the last tenth."""
    weights = [weight for weight in agent.policy.parameters() if weight.requires_grad]
    optimizer = GatedAdam(weights, lr=options.lr)
    last = []
    for update in range(options.updates):
        batch = seen.sample(options.batch_size)
        loss = -log_likelihood(agent.policy, batch, options.temperature).mean()
        optimizer.step(loss)
        if update >= 0.9 * options.updates - 1:
            last.append(loss.detach())
        if should_stop():
            break
    return torch.stack(last).mean() if last else torch.tensor(math.nan)


@torch.no_grad()
def agreement(
    policy: TensorDictModuleBase, collector: DeviceCollector, steps: int
) -> dict[str, float]:
    """How often a policy would do what the collector's policy does.

    Args:
        policy: It is asked, without exploration, and not followed.
        collector: Goes on from where it is.
        steps: Decisions of every row to compare.

    Returns:
        ``agreement``, the share of equal decisions, and ``chance``, that of a random legal choice.
    """
    equal, chance = [], []
    for _ in range(steps):
        transition = collector.step()
        root = transition.exclude("next", "action")
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            action = policy(root).get("action")
        same = action == transition.get("action")
        equal.append(
            same.flatten(transition.dim()).all(-1) if same.dim() > transition.dim() else same
        )
        chance.append(1 / transition.get("action_mask").sum(-1).double())
    return {
        "agreement": float(torch.stack(equal).double().mean()),
        "chance": float(torch.stack(chance).mean()),
    }


def from_config(
    options: Mapping[str, Any],
    agent: Agent,
    env: PackingEnv,
    should_stop: Callable[[], bool] = lambda: False,
) -> str | None:
    """What ``warm_start`` of a configuration asks for; a line that says how it went."""
    from agents.config.build import build_heuristics

    how = dict(options)
    name = how.pop("heuristic")
    if name is None:
        return None
    heuristic = build_heuristics([name], env)[name]
    found = warm_start(agent, env, heuristic, WarmStart(**how), should_stop=should_stop)
    return (
        f"warm start: the policy does what {name} does in {found['agreement']:.0%} of new states "
        f"(a random legal choice: {found['chance']:.1%})"
    )
