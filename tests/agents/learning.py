"""Networks with shaken weights, and played transitions for their updates."""

from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

from agents.replay import DeviceReplay
from agents.training.rollout import DeviceCollector
from packing_env import PackingEnv


def shaken(module: Any, share: float = 0.1) -> Any:
    """Add noise to weights, because last layers start near zero."""
    parameters = module.parameters() if isinstance(module, nn.Module) else module
    with torch.no_grad():
        for weight in parameters:
            weight.add_(share * torch.randn_like(weight))
    return module


def sampled(
    env: PackingEnv, policy: nn.Module, gamma: float, *, steps: int = 30, size: int = 64
) -> TensorDictBase:
    """Return three-step transitions, some of them from finished rows."""
    torch.manual_seed(0)
    replay = DeviceReplay(env, 512, n_steps=3, gamma=gamma)
    collector = DeviceCollector(env, policy)
    for _ in range(steps):
        replay.extend(collector.step())
    batch = replay.sample(size)
    assert 0 < batch["next", "terminated"].sum() < size
    assert batch["steps_to_next_obs"].unique().numel() > 1
    return batch


class Table(nn.Module):
    """A table of each head's scores by row and earlier choices, and of V by row."""

    autocast = False
    in_keys = ("row",)

    def __init__(self, sizes: tuple[int, ...], rows: int = 5, seed: int = 0) -> None:
        super().__init__()
        stream = torch.Generator().manual_seed(seed)
        shapes = [sizes[: head + 1] for head in range(len(sizes))]
        self.table = nn.ParameterList(torch.randn(rows, *s, generator=stream) for s in shapes)
        self.state_value = nn.Parameter(torch.randn(rows, generator=stream))

    def encode(self, seen: TensorDictBase) -> Tensor:
        return seen["row"]

    def scores(self, encoding: Tensor, chosen: Tensor) -> Tensor:
        return self.table[chosen.shape[1]][(encoding, *chosen.unbind(1))]

    def value(self, encoding: Tensor) -> Tensor:
        return self.state_value[encoding]
