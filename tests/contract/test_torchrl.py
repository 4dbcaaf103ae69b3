"""TorchRL's own collector, replay buffer and trainer run on the environment as it is."""

from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule, TensorDictSequential
from tests.tiny import tiny_env
from torch import Tensor, nn
from torchrl.collectors import Collector
from torchrl.envs import EnvBase
from torchrl.modules import EGreedyModule, QValueModule

from packing_env.types import AUTORESETS


class SmallQ(nn.Module):
    """Scores of all placements from the heightmap and the rest heights."""

    def __init__(self, cells: int, actions: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(cells + actions, 32), nn.ReLU(), nn.Linear(32, actions)
        )

    def forward(self, heightmap: Tensor, drop_height: Tensor) -> Tensor:
        return self.layers(torch.cat((heightmap.flatten(-2), drop_height.flatten(-4)), -1))


def q_network(env: EnvBase) -> TensorDictSequential:
    x, y = env.observation_spec["observation", "heightmap"].shape[-2:]
    actions = env.observation_spec["action_mask"].shape[-1]
    net = TensorDictModule(
        SmallQ(x * y, actions),
        in_keys=[("observation", "heightmap"), ("observation", "drop_height")],
        out_keys=["action_value"],
    )
    chooser = QValueModule(action_space="categorical", action_mask_key="action_mask")
    return TensorDictSequential(net, chooser)


def exploring(env: EnvBase, network: TensorDictSequential) -> TensorDictSequential:
    greedy = EGreedyModule(
        env.action_spec, eps_init=0.5, eps_end=0.1, annealing_num_steps=100,
        action_mask_key="action_mask",
    )  # fmt: skip
    return TensorDictSequential(network, greedy)


def check_batch(batch: TensorDictBase, env: EnvBase) -> None:
    """``[B, T]`` transitions: legal actions, continuous rows, no NaN."""
    assert batch["action_mask"].gather(-1, batch["action"][..., None]).all()
    going_on = ~batch["next", "done"][:, :-1].squeeze(-1)
    for key in (("observation", "heightmap"), "action_mask"):
        nested = key if isinstance(key, tuple) else (key,)
        following, here = batch[("next", *nested)][:, :-1], batch[key][:, 1:]
        assert torch.equal(following[going_on], here[going_on])
    for key, value in batch.items(True, True):
        assert value.isfinite().all(), key
    assert env.batch_size.numel() == batch.shape[0]


@pytest.mark.parametrize("options", [{}, {"track_traj_ids": False}])
@pytest.mark.parametrize("autoreset", AUTORESETS)
def test_collector(autoreset: str, options: dict[str, Any]) -> None:
    env = tiny_env(4, shell={"autoreset": autoreset})
    collector = Collector(
        env,
        exploring(env, q_network(env)),
        frames_per_batch=40,
        total_frames=120,
        auto_register_policy_transforms=False,
        **options,
    )
    finished = 0
    for batch in collector:
        assert batch.shape == (4, 10)
        check_batch(batch, env)
        finished += int(batch["next", "done"].sum())
        if not options:
            ids = batch["collector", "traj_ids"]
            ended = batch["next", "done"][:, :-1].squeeze(-1)
            assert torch.equal(ids[:, 1:] != ids[:, :-1], ended)
    assert finished > 4
    collector.shutdown()
