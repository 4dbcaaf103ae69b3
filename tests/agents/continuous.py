"""Small tasks, networks and batches of the continuous mode."""

from functools import partial
from typing import Any

import torch
from tensordict import TensorDictBase
from tests.agents import learning
from tests.tiny import tiny_env
from torch import Tensor

from agents.networks import ContinuousActorCritic
from agents.policies.continuous import ContinuousPolicy
from agents.policies.policy_wrapper import EpsilonSchedule
from packing_env import PackingEnv

NETWORK = partial(ContinuousActorCritic, channels=8, width=32, heads=2, precision="fp32")


def small_env(num_envs: Any = 8, **params: Any) -> PackingEnv:
    """A lattice of 8 x 7, three orientations."""
    return tiny_env(num_envs, num_items=4, **{"action_mode": "continuous", **params})


def sampled(env: PackingEnv, size: int = 64) -> TensorDictBase:
    """Three-step transitions, some of them of finished rows."""
    torch.manual_seed(0)
    policy = ContinuousPolicy(
        NETWORK(env).actor(), action_spec=env.action_spec, epsilon=EpsilonSchedule(0.5, 0.5, 0)
    )
    return learning.sampled(env, policy, 0.95, size=size)


def make_agent(cls: type, env: PackingEnv, **options: Any) -> Any:
    """An agent whose targets are away from its online networks."""
    torch.manual_seed(1)
    agent = cls(env, network=NETWORK, **options)
    with torch.no_grad():
        for name, target in target_parameters(agent).items():
            if "weight" in name:
                target.add_(0.1 * torch.randn(target.shape))
    return agent


def target_parameters(agent: Any) -> dict[str, Tensor]:
    """The tensors that follow online parameters, by name."""
    followed = {f"target_{name}" for name, _ in agent.objective.named_parameters()}
    return {name: value for name, value in agent.objective.named_buffers() if name in followed}
