"""Manager and worker: stages, turns, targets, legality, and that nothing is read back."""

import math
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tests.agents.learning import sampled, shaken
from tests.agents.networks.test_hierarchical_networks import env_of, small
from torch import Tensor, nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.hierarchical import Hierarchical
from packing_env import PackingEnv

STAGE1 = 100


def agent_of(env: PackingEnv, **options: Any) -> Hierarchical:
    torch.manual_seed(1)
    chosen = {"network": small, "stage1_frames": STAGE1, "epsilon_frames": 50, **options}
    agent = Hierarchical(env, **chosen)
    shaken(agent.networks)
    shaken(agent.target)
    return agent


@pytest.fixture(scope="module")
def env() -> PackingEnv:
    return env_of(8)


@pytest.fixture(scope="module")
def batch(env: PackingEnv) -> TensorDictBase:
    agent = agent_of(env)
    return sampled(env, agent.policy, agent.gamma, steps=24, size=32)


def weights(module: nn.Module) -> list[Tensor]:
    return [weight.detach().clone() for weight in module.parameters()]


def moved(before: list[Tensor], module: nn.Module) -> bool:
    return any(not torch.equal(a, b) for a, b in zip(before, module.parameters(), strict=True))


# ---------------------------------------------------------------------- stages and turns


def test_the_stage_follows_the_frames_in_closed_form(env):
    agent = agent_of(env, lr=1e-3, lr_joint=1e-4, epsilon_start=0.8, epsilon_end=0.1)

    def seen(frames: int) -> tuple[int, set[float], float, float]:
        agent.set_frames(frames)
        rates = {o.optimizer.param_groups[0]["lr"] for o in agent.optimizers.values()}
        levels = (agent.policy.worker, agent.policy.manager)
        return agent.stage, rates, *(round(float(level.epsilon), 4) for level in levels)

    assert seen(0) == (1, {1e-3}, 0.8, 0.8)
    assert seen(25) == (1, {1e-3}, 0.45, 0.8)
    assert seen(STAGE1 - 1) == (1, {1e-3}, 0.1, 0.8)
    assert seen(STAGE1) == (2, {1e-4}, 0.1, 0.8)
    assert seen(STAGE1 + 25) == (2, {1e-4}, 0.1, 0.45)
    assert seen(10**9) == (2, {1e-4}, 0.1, 0.1)
    assert seen(25) == (1, {1e-3}, 0.45, 0.8)


def test_in_stage_1_the_largest_box_goes_first(env):
    agent = agent_of(env)
    root = env.reset()
    root["manager", "action_mask"][0] = torch.tensor([True, False, True])
    extent = env.catalogue.extent
    for mode in (ExplorationType.RANDOM, ExplorationType.DETERMINISTIC):
        with set_exploration_type(mode):
            chosen = agent.policy(root.clone())["manager", "action"]
        for row in range(len(root)):
            item_id = root["observation", "item_id"][row].tolist()
            legal = root["manager", "action_mask"][row].tolist()
            size = [
                extent[i].prod().item() if ok else -1 for i, ok in zip(item_id, legal, strict=True)
            ]
            assert size[chosen[row]] == max(size)


def test_the_manager_learns_in_every_fourth_update_of_stage_2(env, batch):
    agent = agent_of(env, manager_every=4)
    turns = []
    for update in range(14):
        agent.set_frames(0 if update < 3 else STAGE1)
        before = {name: weights(net) for name, net in agent.networks.named_children()}
        target = {name: weights(net) for name, net in agent.target.named_children()}
        told = agent.update(batch)
        assert moved(before["worker"], agent.networks.worker)
        assert moved(target["worker"], agent.target.worker)
        turns.append(moved(before["manager"], agent.networks.manager))
        assert turns[-1] == moved(target["manager"], agent.target.manager)
        assert turns[-1] == ("manager_loss" in told)
        assert all(math.isfinite(value) for value in told.values())
    assert turns == [False] * 3 + [True, False, False, False] * 2 + [True, False, False]


# ---------------------------------------------------------------------- targets, by hand


class Table(TensorDictModuleBase):
    """A network that is a table of values: by catalogue row, and for the worker by placement."""

    def __init__(self, level: str, values: Tensor) -> None:
        super().__init__()
        self.level = level
        self.in_keys = [("observation", "item_id"), ("manager", "action")]
        self.out_keys = [(level, "action_value")]
        self.values = nn.Parameter(values)

    def item(self, tensordict: TensorDictBase) -> Tensor:
        item_id = tensordict["observation", "item_id"].clamp(min=0)
        return item_id.gather(1, tensordict["manager", "action"][:, None]).squeeze(1)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        if self.level == "manager":
            found = self.values[tensordict["observation", "item_id"].clamp(min=0)]
        else:
            found = self.values[self.item(tensordict)]
        return tensordict.set(self.out_keys[0], found)

    def value_of(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        return self.values[self.item(tensordict), action]

    def refresh(self) -> None:
        """Nothing is cached."""


class Tables(nn.Module):
    def __init__(self, env: PackingEnv) -> None:
        super().__init__()
        rows = len(env.catalogue)
        places = env.action_spec["worker", "action"].n
        self.manager = Table("manager", torch.randn(rows))
        self.worker = Table("worker", torch.randn(rows, places))
        self.manager.in_keys = self.manager.in_keys[:1]


def smooth(error: float) -> float:
    return 0.5 * error**2 if abs(error) < 1 else abs(error) - 0.5


@pytest.mark.parametrize("stage", [1, 2])
def test_losses_equal_those_by_hand(env, batch, stage):
    agent = agent_of(env, network=Tables, gamma=0.9)
    agent.set_frames(STAGE1 * (stage - 1))
    online, target = agent.networks, agent.target
    following = agent.following(batch)
    found = {"worker": agent.worker_loss(batch, following)[0]}
    if stage == 2:
        found["manager"] = agent.manager_loss(batch, following)[0]
    extent = env.catalogue.extent.prod(1)
    for row in range(len(batch)):
        state = batch[row]
        after = state["next"]
        ids = after["observation", "item_id"].tolist()
        allowed = [s for s, ok in enumerate(after["manager", "legal_mask"].tolist()) if ok]
        worth = extent if stage == 1 else online.manager.values
        slot = max(allowed, key=lambda s: worth[ids[s]].item())
        here = after.clone().set(("manager", "action"), torch.tensor(slot))
        legal = agent.policy.maps(here[None])["worker", "action_mask"][0].nonzero().squeeze(1)
        scores = online.worker.values[ids[slot]]
        place = max(legal.tolist(), key=lambda p: scores[p].item())
        future = {
            "worker": target.worker.values[ids[slot], place],
            "manager": target.manager.values[ids[slot]],
        }
        picked = state["observation", "item_id"][state["manager", "action"]]
        value = {
            "worker": online.worker.values[picked, state["worker", "action"]],
            "manager": online.manager.values[picked],
        }
        discount = 0.9 ** state["steps_to_next_obs"].item() * (not after["terminated"].item())
        for level, losses in found.items():
            wanted = after["reward"].item() + discount * future[level].item()
            expected = smooth(value[level].item() - wanted)
            assert losses[row].item() == pytest.approx(expected, rel=1e-4, abs=1e-5)
