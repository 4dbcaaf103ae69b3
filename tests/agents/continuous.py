"""Small tasks, networks and batches of the continuous mode; and a toy that needs no container."""

from functools import partial
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule
from tests.agents import learning
from tests.tiny import tiny_env
from torch import Tensor, nn

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


class Toy:
    """Perceptrons of an observation that says nothing; in place of ``ContinuousActorCritic``."""

    def __init__(self, env: PackingEnv, width: int = 32) -> None:
        self.width = width

    def _perceptron(self, inputs: int, outputs: int) -> nn.Module:
        width = self.width
        return nn.Sequential(nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, outputs))

    def actor(self, *, stochastic: bool = False) -> TensorDictModule:
        network = self._perceptron(1, 6 if stochastic else 3)
        return TensorDictModule(
            _Squash(network, stochastic),
            in_keys=["observation"],
            out_keys=["loc", "scale"] if stochastic else ["action"],
        )

    def critic(self) -> TensorDictModule:
        network = self._perceptron(4, 1)
        return TensorDictModule(
            _Join(network), in_keys=["observation", "action"], out_keys=["state_action_value"]
        )


class _Squash(nn.Module):
    """An action, or a distribution's location and scale."""

    def __init__(self, network: nn.Module, stochastic: bool) -> None:
        super().__init__()
        self.network, self.stochastic = network, stochastic

    def forward(self, *seen: Tensor) -> Any:
        found = self.network(torch.cat(seen, -1))
        if not self.stochastic:
            return torch.tanh(found)
        loc, scale = found.chunk(2, -1)
        return loc, (0.5 * scale - 1).exp()


class _Join(nn.Module):
    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, *seen: Tensor) -> Tensor:
        return self.network(torch.cat(seen, -1))


def toy_batch(reward: Any, size: int = 256) -> TensorDictBase:
    """One-step episodes at uniform actions; ``reward(action)`` gives ``[B]``."""
    action = 2 * torch.rand(size, 3) - 1
    nothing, done = torch.zeros(size, 1), torch.ones(size, 1, dtype=torch.bool)
    return TensorDict(
        {
            "observation": nothing,
            "action": action,
            "executed_action": action,
            "steps_to_next_obs": torch.ones(size, 1, dtype=torch.int64),
            "next": {
                "observation": nothing,
                "reward": reward(action)[:, None],
                "done": done,
                "terminated": done,
            },
        },
        [size],
    )
