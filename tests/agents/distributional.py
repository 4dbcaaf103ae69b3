"""Small agents that learn distributions, with batches for them, in both modes that they act in."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

import torch
from tensordict import TensorDictBase
from tests.agents.training.test_trainer import reads
from tests.tiny import tiny_env
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.networks import CandidateScores, ScoreMaps
from agents.replay import DeviceReplay
from agents.training.rollout import DeviceCollector
from packing_env import PackingEnv

NETWORKS = {
    "placement": partial(ScoreMaps, channels=8, precision="fp32"),
    "candidate": partial(CandidateScores, width=16, attention_heads=2, precision="fp32"),
}
MODES = list(NETWORKS)


def small_env(mode: str, num_envs: Any = 8, **params: Any) -> PackingEnv:
    """Two visible items on a lattice of 8 x 7, or up to 16 candidates."""
    corners = {"num_candidates": 16, "candidate_generator": "corner_points"}
    listed = corners if mode == "candidate" else {}
    return tiny_env(num_envs, num_items=4, num_visible=2, action_mode=mode, **listed, **params)


def make_agent(cls: type, env: PackingEnv, **options: Any) -> Any:
    """An agent away from its start, its target away from its online network."""
    torch.manual_seed(1)
    agent = cls(env, network=NETWORKS[env.params.action_mode], **options)
    with torch.no_grad():
        for parameter in agent.network.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        for value in agent.objective.target_value_network_params.values(True, True):
            if value.numel() > 1:  # each by its own amount; buffers are set right again below
                value.data.add_(0.1 * torch.randn_like(value))
        buffers = dict(agent.network.named_buffers())
        for name, value in buffers.items():
            agent.objective.target_value_network_params[tuple(name.split("."))].copy_(value)
    return agent


def sampled(agent: Any, env: PackingEnv, size: int = 64) -> TensorDictBase:
    """Three-step transitions, some of them of finished rows."""
    torch.manual_seed(0)
    replay = DeviceReplay(env, 512, n_steps=3, gamma=agent.gamma)
    collector = DeviceCollector(env, agent.policy)
    for _ in range(30):
        replay.extend(collector.step())
    batch = replay.sample(size)
    assert batch["next", "terminated"].any()
    assert not batch["next", "terminated"].all()
    assert batch["steps_to_next_obs"].unique().numel() > 1
    return batch


def assert_acts_row_by_row(agent: Any, env: PackingEnv) -> None:
    """As in a batch ``[2, 3]``, which is what ``env`` has."""
    root = env.step_and_maybe_reset(env.rand_action(env.reset()))[1]
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        value = agent.policy.action_values(root)
        action = agent.policy(root.clone(False))["action"]
        for i, j in itertools.product(range(2), range(3)):
            row = root[i : i + 1, j : j + 1]
            one = agent.policy.action_values(row)[0, 0]
            torch.testing.assert_close(one, value[i, j], rtol=0, atol=1e-6)
            # equal items may have equal values: the same value, if not the same index
            best = agent.policy(row)["action"][0, 0]
            torch.testing.assert_close(one[best], one[action[i, j]], rtol=0, atol=1e-6)


def assert_reads_nothing(agent: Any, batch: TensorDictBase) -> None:
    """Neither the loss, its gradient, the target's update nor the policy."""
    agent.update(batch)
    loss = agent.objective
    assert not reads(lambda: loss(batch)["loss"].backward(), 1)
    assert not reads(agent.targets.step, 1)
    assert not reads(lambda: agent.policy(batch.clone(False)), 1)
    parameters = list(agent.network.parameters())
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        fake = batch.apply(mode.from_tensor)
        found = loss(fake)["loss"]
        assert fake["td_error"].shape == (len(batch),)
        gradients = torch.autograd.grad(found, parameters, allow_unused=True)
        assert all(isinstance(gradient, FakeTensor) for gradient in gradients)
        assert isinstance(agent.policy(fake)["action"], FakeTensor)


def assert_saves_all(cls: type, agent: Any, env: PackingEnv, batch: TensorDictBase) -> None:
    """What is loaded learns on as what was saved."""
    agent.update(batch)
    other = make_agent(cls, env)
    other.load_state_dict(agent.state_dict())
    losses = []
    for each in (agent, other):
        torch.manual_seed(3)
        losses.append([each.update(batch)["loss"] for _ in range(2)])
    assert losses[0] == losses[1]
    for a, b in zip(agent.network.parameters(), other.network.parameters(), strict=True):
        assert torch.equal(a, b)
