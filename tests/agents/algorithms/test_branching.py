"""Branching double Q: heads share a target, and those without a choice have no say."""

from __future__ import annotations

from collections import Counter
from functools import partial

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tests.agents.training.test_trainer import reads
from tests.tiny import play, tiny_env
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn import functional
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.algorithms.branching import Branching, BranchingPolicy, judge
from agents.networks import MultiHeadActorCritic
from agents.networks.actor_critic import run
from agents.policies.heads import PlacementHeads
from agents.policies.policy_wrapper import EpsilonSchedule
from agents.replay import DeviceReplay
from agents.training.rollout import DeviceCollector
from packing_env import PackingEnv

SIZES = (2, 2, 3, 2)
SCORES = ("item", "orientation", "x", "y")


class Table(nn.Module):
    """Scores of each head by the number of the state and the choices before; V by the state."""

    autocast = False
    in_keys = ("row",)

    def __init__(self, rows: int = 5, seed: int = 0) -> None:
        super().__init__()
        stream = torch.Generator().manual_seed(seed)
        shapes = [SIZES[: head + 1] for head in range(len(SIZES))]
        self.table = nn.ParameterList(torch.randn(rows, *s, generator=stream) for s in shapes)
        self.state_value = nn.Parameter(torch.randn(rows, generator=stream))

    def encode(self, seen: TensorDictBase) -> Tensor:
        return seen["row"]

    def scores(self, encoding: Tensor, chosen: Tensor) -> Tensor:
        return self.table[chosen.shape[1]][(encoding, *chosen.unbind(1))]

    def value(self, encoding: Tensor) -> Tensor:
        return self.state_value[encoding]


def random_mask(rows: int, seed: int = 0) -> Tensor:
    stream = torch.Generator().manual_seed(seed)
    mask = torch.rand(rows, 24, generator=stream) < 0.4
    mask[:, 5] = True
    mask[0] = torch.arange(24) == 5  # one placement: no head has a choice
    return mask


def options(legal: Tensor, prefix: tuple[int, ...]) -> list[int]:
    """Values of the next head that some legal placement completes."""
    left = legal.view(SIZES)[prefix]
    return [v for v in range(left.shape[0]) if left[v].any()]


def plain(network: Table, row: int, legal: Tensor, action: list[int] | None = None):
    """Choices, their values, and which of them were free, one by one."""
    prefix: tuple[int, ...] = ()
    values, free = [], []
    for head in range(4):
        scores = network.table[head].detach()[(row, *prefix)]
        known = options(legal, prefix)
        pick = max(known, key=lambda v, s=scores: s[v].item()) if action is None else action[head]
        centre = scores[known].mean() if known else 0.0
        values.append((network.state_value[row] + scores[pick] - centre).item())
        free.append(len(known) > 1)
        prefix = (*prefix, pick)
    return list(prefix), values, free


def mean_of_free(values: list[float], free: list[bool]) -> float:
    kept = [v for v, f in zip(values, free, strict=True) if f] or values
    return sum(kept) / len(kept)


def agent_of(online: Table, target: Table, **options) -> Branching:
    """An agent whose networks are tables; the environment only gives the heads' sizes."""
    made = iter([online])
    env = tiny_env(2, action_mode="multi_head")
    agent = Branching(env, network=lambda env: next(made), **options)
    agent.heads = agent.policy.heads = PlacementHeads(SIZES)
    agent.target = target
    agent.target_parameters = list(target.parameters())
    return agent


def transitions(rows: int = 5) -> TensorDict:
    stream = torch.Generator().manual_seed(7)
    mask = random_mask(rows, 1)
    index = torch.where(mask, torch.rand(rows, 24, generator=stream), -1.0).argmax(1)
    return TensorDict(
        {
            "row": torch.arange(rows),
            "action_mask": mask,
            "action": torch.stack(torch.unravel_index(index, SIZES), -1),
            "steps_to_next_obs": torch.tensor([[3], [1], [2], [3], [2]]),
            "next": {
                "row": torch.arange(rows).flip(0),
                "action_mask": torch.ones(rows, 24, dtype=torch.bool),
                "legal_mask": random_mask(rows, 2),
                "reward": torch.randn(rows, 1, generator=stream),
                "terminated": torch.tensor([[False], [True], [False], [False], [False]]),
            },
        },
        [rows],
    )


def test_greedy_choices_and_values_equal_a_plain_search() -> None:
    network, mask = Table(), random_mask(5)
    found = judge(network, PlacementHeads(SIZES), TensorDict({"row": torch.arange(5)}, [5]), mask)
    for row in range(5):
        chosen, values, free = plain(network, row, mask[row])
        assert found.chosen[row].tolist() == chosen
        assert mask[row].view(SIZES)[tuple(chosen)]
        assert found.value[row].tolist() == pytest.approx(values, abs=1e-5)
        weights = [float(f) / sum(free) for f in free] if any(free) else [0.25] * 4
        assert found.weight[row].tolist() == pytest.approx(weights)
    # without any choice, every head says V
    assert found.value[0].tolist() == pytest.approx([network.state_value[0].item()] * 4, abs=1e-6)


@pytest.mark.parametrize("double", [True, False])
def test_loss_equals_a_plain_one(double: bool) -> None:
    online, target = Table(seed=0), Table(seed=1)
    agent = agent_of(online, target, double=double, gamma=0.9)
    batch = transitions()
    losses, values = agent.loss(batch)
    mask, action = batch["action_mask"], batch["action"]
    weight = judge(online, agent.heads, batch, mask, action).weight
    legal = batch["next", "legal_mask"]
    for row in range(5):
        after = batch["next", "row"][row].item()
        best, _, _ = plain(online if double else target, after, legal[row])
        _, ahead, free = plain(target, after, legal[row], best)
        future = 0.0 if batch["next", "terminated"][row] else mean_of_free(ahead, free)
        y = batch["next", "reward"][row].item()
        y += 0.9 ** batch["steps_to_next_obs"][row].item() * future
        action = batch["action"][row].tolist()
        _, own, free = plain(online, row, batch["action_mask"][row], action)
        assert values[row].item() == pytest.approx(mean_of_free(own, free), abs=1e-5)
        errors = [abs(y - value) for value in own]
        each = [
            functional.smooth_l1_loss(torch.tensor(e), torch.tensor(0.0)).item() for e in errors
        ]
        assert losses[row].item() == pytest.approx(mean_of_free(each, free), abs=1e-5)
        counted = [e for e, f in zip(errors, free, strict=True) if f] or errors
        assert batch["td_error"][row].item() == pytest.approx(sum(counted), abs=1e-5)
    assert not any(parameter.grad is not None for parameter in target.parameters())
    # a head without a choice teaches nothing: its scores get no gradient
    losses.sum().backward()
    for head in range(4):
        for row in range(5):
            if not weight[row, head]:
                assert not online.table[head].grad[row].any()


def test_finished_rows_bootstrap_under_the_rules_own_mask() -> None:
    agent = agent_of(Table(seed=0), Table(seed=1))
    batch = transitions()
    before, _ = agent.loss(batch)
    batch["next", "action_mask"] = random_mask(5, 9)
    assert torch.equal(agent.loss(batch)[0], before)
    batch["next", "legal_mask"] = random_mask(5, 9)
    after, _ = agent.loss(batch)
    assert after[1] == before[1]  # terminated: no future
    assert not torch.equal(after, before)


def test_bfloat16_is_for_the_network_alone() -> None:
    env = tiny_env(8, num_items=4, action_mode="multi_head", items={"grid": (5, 4)})
    network = MultiHeadActorCritic(env, width=16, channels=4, precision="bf16")
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(torch.randn_like(parameter))
        seen = play(env, 3).reshape(-1)
        found = judge(network, PlacementHeads(env.mode.shape), seen, seen["action_mask"])
        state = run(network, network.value, run(network, network.encode, seen))
    assert state.dtype == torch.bfloat16
    assert found.value.dtype == torch.float32
    # one item: that head has no choice, and its value is V, which a rounded mean would not give
    torch.testing.assert_close(found.value[:, 0], state.float(), rtol=0, atol=1e-6)


@pytest.fixture(scope="module")
def sampled() -> tuple[TensorDictBase, PackingEnv]:
    torch.manual_seed(0)
    env = tiny_env(8, num_items=4, num_visible=2, action_mode="multi_head", items={"grid": (5, 4)})
    agent = real_agent(env)
    replay = DeviceReplay(env, 256, n_steps=3, gamma=agent.gamma)
    collector = DeviceCollector(env, agent.policy)
    for _ in range(30):
        replay.extend(collector.step())
    return replay.sample(32), env


def real_agent(env: PackingEnv, **options) -> Branching:
    torch.manual_seed(1)
    network = partial(MultiHeadActorCritic, width=16, channels=4, precision="fp32")
    return Branching(env, network=network, **options)


def test_random_actions_are_uniform_over_the_placements(sampled) -> None:
    _, env = sampled
    policy = real_agent(env, epsilon_end=1.0, epsilon_frames=0).policy
    mask = torch.zeros(env.mode.num_actions, dtype=torch.bool)
    legal = torch.tensor([3, 4, 5, 6, 77, 100])
    mask[legal] = True
    root = play(env, 1)[0, :1].exclude("action").set("action_mask", mask[None])
    torch.manual_seed(0)
    action = policy(root.expand(24_000, 1).reshape(-1))["action"]
    assert env.action_spec[0].is_in(action[0])
    index = torch.zeros_like(action[:, 0])
    for head, size in enumerate(env.mode.shape):
        index = index * size + action[:, head]
    count = torch.bincount(index, minlength=len(mask))
    assert count[legal].sum() == 24_000
    # 5 degrees of freedom, p = 0.001
    assert float((count[legal] - 4_000).square().sum() / 4_000) < 20.5


def test_exploration_and_leading_axes(sampled) -> None:
    _, env = sampled
    policy = real_agent(env, epsilon_end=0.5, epsilon_frames=0).policy
    root = play(env, 10).exclude("action")
    with torch.no_grad():
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            greedy = policy(root.clone())["action"]
            assert torch.equal(policy(root.clone())["action"], greedy)
        assert greedy.shape == (10, 8, 4)
        with set_exploration_type(ExplorationType.RANDOM):
            moved = (policy(root.clone())["action"] != greedy).any(-1).float().mean()
        assert 0.2 < moved < 0.8
        assert torch.equal(policy.eval()(root.clone())["action"], greedy)
    assert isinstance(policy, BranchingPolicy)
    policy.set_frames(100)
    rows = torch.tensor([0.0, 1.0]).repeat(4)  # a rate per row
    each = BranchingPolicy(policy.network, policy.heads, EpsilonSchedule(rows, rows, 0))
    moved = (each(root[0].clone())["action"] != greedy[0]).any(-1)
    assert not moved[::2].any()
    assert moved[1::2].any()


def test_updates_reduce_the_loss_and_move_the_target(sampled) -> None:
    batch, env = sampled
    agent = real_agent(env, lr=3e-3, target_rate=0.05)
    target = [parameter.clone() for parameter in agent.target_parameters]
    reports = [agent.update(batch) for _ in range(30)]
    assert reports[-1]["loss"] < 0.5 * reports[0]["loss"]
    assert batch["td_error"].shape == (32,)
    assert (batch["td_error"] >= 0).all()
    names = [name for name, _ in agent.network.named_parameters()]
    for name, old, new in zip(names, target, agent.target_parameters, strict=True):
        # a constant added to all options of a head is centred away
        constant = name.split(".")[0] in SCORES and name.endswith("bias")
        assert constant or not torch.equal(old, new), name


def test_importance_weights_enter_the_loss(sampled) -> None:
    batch, env = sampled
    losses = []
    for weight in (1.0, 0.0):
        weighed = batch.clone(False).set("priority_weight", torch.full((32,), weight))
        losses.append(real_agent(env).update(weighed)["loss"])
    assert losses[0] == real_agent(env).update(batch.clone(False))["loss"]
    assert losses[1] == 0


def test_state_dict_round_trip(sampled) -> None:
    batch, env = sampled
    agent, other = real_agent(env), real_agent(env)
    agent.update(batch)
    other.load_state_dict(agent.state_dict())
    first, second = agent.update(batch), other.update(batch)
    assert torch.equal(first["loss"], second["loss"])
    for a, b in zip(agent.parameters, other.parameters, strict=True):
        assert torch.equal(a, b)


def test_nothing_is_read(sampled, monkeypatch: pytest.MonkeyPatch) -> None:
    batch, env = sampled
    agent = real_agent(env)
    agent.update(batch)
    # On a CPU, and only there, Adam's kernel reads its own step counters: leave it out.
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self, closure=None: None)
    assert reads(lambda: agent.update(batch), 1) == Counter()
    root = env.reset()
    with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
        assert reads(lambda: agent.policy(root), 1) == Counter()
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        losses, _ = agent.loss(batch.apply(mode.from_tensor))
        grads = torch.autograd.grad(losses.mean(), agent.parameters, allow_unused=True)
        assert any(isinstance(grad, FakeTensor) for grad in grads)
        assert isinstance(agent.policy(root.apply(mode.from_tensor))["action"], FakeTensor)
