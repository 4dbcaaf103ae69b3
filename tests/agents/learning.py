"""Networks away from their first values, and transitions of play for their updates."""

from typing import Any

import torch
from tensordict import TensorDictBase
from torch import nn

from agents.replay import DeviceReplay
from agents.training.rollout import DeviceCollector
from packing_env import PackingEnv


def shaken(module: Any, share: float = 0.1) -> Any:
    """Move weights away from their first values, which are near zero in last layers."""
    parameters = module.parameters() if isinstance(module, nn.Module) else module
    with torch.no_grad():
        for weight in parameters:
            weight.add_(share * torch.randn_like(weight))
    return module


def sampled(
    env: PackingEnv, policy: nn.Module, gamma: float, *, steps: int = 30, size: int = 64
) -> TensorDictBase:
    """Three-step transitions, some of them of finished rows."""
    torch.manual_seed(0)
    replay = DeviceReplay(env, 512, n_steps=3, gamma=gamma)
    collector = DeviceCollector(env, policy)
    for _ in range(steps):
        replay.extend(collector.step())
    batch = replay.sample(size)
    assert 0 < batch["next", "terminated"].sum() < size
    assert batch["steps_to_next_obs"].unique().numel() > 1
    return batch
