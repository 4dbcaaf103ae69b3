"""TorchRL's own collector, replay buffer and trainer run on the environment as it is."""

from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModule, TensorDictSequential
from tests.tiny import tiny_env
from torch import Tensor, nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import EnvBase, ExplorationType, set_exploration_type
from torchrl.modules import EGreedyModule, QValueModule
from torchrl.objectives import DQNLoss, SoftUpdate

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


@pytest.mark.parametrize("autoreset", AUTORESETS)
def test_replay_buffer_and_loss(autoreset: str) -> None:
    """Whole observations through a replay buffer into TorchRL's DQN loss; the loss is finite."""
    env = tiny_env(4, shell={"autoreset": autoreset})
    network = q_network(env)
    buffer = ReplayBuffer(storage=LazyTensorStorage(200), batch_size=32)
    root, policy = env.reset(), exploring(env, network)
    for _ in range(30):
        with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
            root = policy(root)
        step, root = env.step_and_maybe_reset(root)
        buffer.extend(step)
    assert len(buffer) == 120
    loss_module = DQNLoss(network, action_space="categorical", double_dqn=True, delay_value=True)
    loss_module.make_value_estimator(gamma=0.99)
    updater = SoftUpdate(loss_module, eps=0.99)
    optimizer = torch.optim.Adam(loss_module.parameters(), lr=1e-3)
    for _ in range(5):
        sample = buffer.sample()
        assert sample["next", "done"].shape == (32, 1)
        loss = loss_module(sample)["loss"]
        assert loss.isfinite()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updater.step()
