"""A tiny task that is built in milliseconds, and an agent that learns nothing of use."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

import packing_env
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from packing_env import PackingEnv

TINY = {
    "items": {"source": "cuboids", "extents": [[0.02, 0.02, 0.02], [0.04, 0.02, 0.02]]},
    "container": (0.08, 0.08, 0.06),
    "cell": 0.02,
    "num_items": 6,
    "pool_size": 24,
}
TINY_OVERRIDES = [
    "items=example_cuboids", "items.extents=[[0.02,0.02,0.02],[0.04,0.02,0.02]]",
    "env.container=[0.08,0.08,0.06]", "env.cell=0.02", "env.num_items=6", "env.num_envs=4",
    "env.pool_size=24",
]  # fmt: skip
TINY_RUN = [
    *TINY_OVERRIDES, "trainer.warmup=16", "trainer.update_every=16", "trainer.log_every=32",
    "agent.batch_size=4", "network.channels=4", "replay.capacity=200", "curve=null",
]  # fmt: skip
"""A run of the command ``train`` that takes a second."""


class HeightNetwork(nn.Module):
    """One weight per action, and one for the highest cell."""

    in_keys = (("observation", "heightmap"), "action_mask")
    out_keys = ("action_value",)

    def __init__(self, env: PackingEnv) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0, 1, env.mode.num_actions))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        peak = tensordict.get(("observation", "heightmap")).flatten(-2).amax(-1)
        return tensordict.set("action_value", self.weight - peak[..., None])


class FakeAgent:
    """An agent that satisfies the protocol; an update only counts."""

    action_modes = ("placement",)

    def __init__(self, env: PackingEnv, lr: float = 0.1, fail_at: int | None = None) -> None:
        self.policy = PolicyWrapper(HeightNetwork(env), epsilon=EpsilonSchedule(1.0, 0.0, 100))
        self.batch_size = 4
        self.fail_at = fail_at
        self.updates = 0
        self.frames: list[int] = []
        self.optimizer = torch.optim.SGD(self.policy.parameters(), lr=lr)

    def set_frames(self, frames: int) -> None:
        self.frames.append(frames)
        self.policy.set_frames(frames)

    def update(self, batch: TensorDictBase) -> dict[str, Tensor]:
        self.updates += 1
        loss = self.policy.network.weight.square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        if self.updates == self.fail_at:
            return {"loss": loss.detach() * torch.nan}
        return {"loss": loss.detach()}

    def state_dict(self) -> dict[str, Any]:
        return {"policy": self.policy.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.policy.load_state_dict(state["policy"])
        self.optimizer.load_state_dict(state["optimizer"])


class FakeReplay:
    """Keeps the last transition."""

    def __init__(self) -> None:
        self.transitions: list[TensorDictBase] = []

    def __len__(self) -> int:
        return sum(t.numel() for t in self.transitions)

    def extend(self, transitions: TensorDictBase) -> None:
        self.transitions.append(transitions)

    def sample(self, batch_size: int) -> TensorDictBase:
        return self.transitions[-1]

    def update_priority(self, index: Tensor, priority: Tensor) -> None:
        self.priorities = priority

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        assert state == {}


@pytest.fixture
def tiny() -> Callable[..., PackingEnv]:
    def make(num_envs: Any = 4, **overrides: Any) -> PackingEnv:
        return packing_env.make_env("irregular", num_envs=num_envs, **{**TINY, **overrides})

    return make
