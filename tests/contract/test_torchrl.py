"""TorchRL's own collector, replay buffer and trainer run on the environment as it is."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule, TensorDictSequential
from tests.tiny import tiny_env
from torch import Tensor, nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, ReplayBuffer
from torchrl.envs import EnvBase, ExplorationType, RewardSum, TransformedEnv, set_exploration_type
from torchrl.modules import EGreedyModule, QValueModule
from torchrl.objectives import DQNLoss, SoftUpdate
from torchrl.trainers.algorithms import DQNTrainer

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


def test_random_collection_is_legal() -> None:
    """``init_random_frames`` draws from the environment, which knows its mask."""
    env = tiny_env(4)
    collector = Collector(
        env,
        q_network(env),
        frames_per_batch=40,
        total_frames=80,
        init_random_frames=80,
        auto_register_policy_transforms=False,
    )
    for batch in collector:
        check_batch(batch, env)
        assert len(batch["action"].unique()) > 10
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


def test_a_stored_transition_is_the_one_played() -> None:
    env = tiny_env(3)
    buffer = ReplayBuffer(storage=LazyTensorStorage(30))
    root, played = env.reset(), []
    for _ in range(10):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        played.append(step.clone())
        buffer.extend(step)
    stored, expected = buffer[:], torch.cat(played)
    for key, value in expected.items(True, True):
        assert torch.equal(stored[key], value), key


@pytest.mark.parametrize("seed", [None, 3])
def test_dqn_trainer(seed: int | None) -> None:
    """A small Q-network, torchrl's trainer, which may seed what runs, and nothing in between."""
    torch.manual_seed(0)
    env = TransformedEnv(tiny_env(4), RewardSum(in_keys=["reward"], out_keys=["reward_sum"]))
    network = q_network(env)
    policy = exploring(env, network)
    collector = Collector(
        env,
        policy,
        frames_per_batch=40,
        total_frames=240,
        auto_register_policy_transforms=True,
    )
    loss_module = DQNLoss(network, action_space="categorical", delay_value=True)
    loss_module.make_value_estimator(gamma=0.99)
    before = TensorDict.from_module(network).clone()
    trainer = DQNTrainer(
        collector=collector,
        total_frames=240,
        frame_skip=1,
        optim_steps_per_batch=2,
        loss_module=loss_module,
        optimizer=torch.optim.Adam(loss_module.parameters(), lr=1e-3),
        replay_buffer=ReplayBuffer(storage=LazyTensorStorage(500), batch_size=32),
        target_net_updater=SoftUpdate(loss_module, eps=0.99),
        greedy_module=policy[-1],
        progress_bar=False,
        log_interval=40,
        seed=seed,
    )
    trainer.train()
    assert trainer.collected_frames == 240
    after = TensorDict.from_module(network)
    changed = [k for k, v in before.items(True, True) if not torch.equal(v, after[k])]
    assert changed
    assert all(value.isfinite().all() for value in after.values(True, True))
    collector.shutdown()
