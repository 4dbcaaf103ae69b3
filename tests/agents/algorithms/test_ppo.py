"""PPO: the paper's objective, targets that see true last states, and gates on the device."""

from collections import Counter
from functools import partial

import pytest
import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictModule, ProbabilisticTensorDictSequential
from tensordict.nn import TensorDictModule as Module
from tests.agents.algorithms.test_multi_head import NETWORKS
from tests.agents.algorithms.test_multi_head import task as any_length
from tests.agents.learning import Table, shaken
from torch import Tensor
from torchrl.modules import MaskedCategorical
from torchrl.objectives import ClipPPOLoss

from agents.algorithms.ppo import PPO, ActorCriticPolicy
from agents.objectives import MultiHeadPPOLoss
from agents.objectives.gae import generalised_advantage
from agents.policies.heads import Heads
from agents.replay import Rollout
from agents.training.rollout import DeviceCollector
from packing_env import PackingEnv

HORIZON = 8


def task(mode: str = "multi_head", num_envs: int = 4, **params) -> PackingEnv:
    return any_length(mode, num_envs, **{"max_steps": 3, **params})


def make(env: PackingEnv, **options) -> PPO:
    torch.manual_seed(1)
    network = partial(NETWORKS[env.params.action_mode], precision="fp32")
    agent = PPO(env, network=network, **{"batch_size": 8, "epochs": 2, **options})
    shaken(agent.policy, 0.2)  # at the start, all options are about as likely
    return agent


def play(env: PackingEnv, agent: PPO) -> tuple[TensorDictBase, TensorDictBase]:
    """A rollout, as the buffer keeps it and whole."""
    torch.manual_seed(2)
    rollout, collector = Rollout(env, HORIZON), DeviceCollector(env, agent.policy)
    whole = []
    while not rollout.full:
        whole.append(collector.step())
        rollout.extend(whole[-1])
    return rollout.take(), torch.stack(whole, 1)


def weights(agent: PPO) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in agent.policy.parameters()]


# ---------------------------------------------------------------------- the objective


def table(rows: int = 40, actions: int = 6) -> tuple[Table, TensorDict]:
    """A network and a batch that an older policy gathered."""
    network = Table((actions,), rows)
    stream = torch.Generator().manual_seed(1)
    mask = torch.rand(rows, actions, generator=stream) < 0.6
    mask[:, 2] = True
    mask[:5] = torch.arange(actions) == 2  # no choice here
    action = torch.where(mask, torch.rand(rows, actions, generator=stream), -1.0).argmax(-1)
    old = network.table[0].detach() + 0.4 * torch.randn(rows, actions, generator=stream)
    old = old.masked_fill(~mask, -torch.inf).log_softmax(-1).gather(1, action[:, None])
    batch = {
        "row": torch.arange(rows),
        "action_mask": mask,
        "action": action,
        "action_log_prob": old,
        "state_value": torch.randn(rows, 1, generator=stream),
        "advantage": torch.randn(rows, 1, generator=stream),
        "value_target": torch.randn(rows, 1, generator=stream),
    }
    return network, TensorDict(batch, [rows])


@pytest.mark.parametrize("normalize", [True, False])
def test_with_one_head_it_is_the_objective_of_torchrl(normalize: bool) -> None:
    network, batch = table()
    policy = ActorCriticPolicy(network, Heads((6,)))
    ours = MultiHeadPPOLoss(policy, normalize_advantage=normalize, entropy_coeff=0.0)
    found = ours(batch)
    actor = ProbabilisticTensorDictSequential(
        Module(lambda row: network.table[0][row], in_keys=["row"], out_keys=["logits"]),
        ProbabilisticTensorDictModule(
            in_keys={"logits": "logits", "mask": "action_mask"},
            out_keys=["action"],
            distribution_class=MaskedCategorical,
        ),
    )
    critic = Module(
        lambda row: network.state_value[row][:, None], in_keys=["row"], out_keys=["state_value"]
    )
    theirs = ClipPPOLoss(
        actor,
        critic,
        clip_epsilon=0.2,
        entropy_bonus=False,
        critic_coeff=0.25,  # of the squared error, ours of half of it
        loss_critic_type="l2",
        normalize_advantage=False,
        functional=False,
    )
    flat = batch.clone()
    flat["action_log_prob"] = flat["action_log_prob"].squeeze(-1)
    if normalize:
        advantage = flat["advantage"]
        flat["advantage"] = (advantage - advantage.mean()) / advantage.std(correction=0)
    expected = theirs(flat)
    for name in ("loss_objective", "loss_critic", "clip_fraction"):
        torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=1e-6)
    assert found["clip_fraction"] > 0.1
    got, want = (
        torch.autograd.grad(
            loss["loss_objective"] + loss["loss_critic"], list(network.parameters())
        )
        for loss in (found, expected)
    )
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-7)
    scores = got[1]  # after those of V
    assert torch.equal(scores[:5], torch.zeros(5, 6))  # rows without a choice


def test_the_ratio_is_that_of_the_whole_action() -> None:
    env = task()
    agent = make(env)
    compact, _ = play(env, agent)
    batch = agent._whole(agent._with_targets(compact).reshape(-1))
    stream = torch.Generator().manual_seed(0)
    shift = 0.3 * torch.randn(batch["action_log_prob"].shape, generator=stream)
    batch["action_log_prob"] = batch["action_log_prob"] + shift
    found = MultiHeadPPOLoss(agent.policy, normalize_advantage=False)(batch)
    advantage, ratio = batch["advantage"], (-shift).exp().prod(-1, keepdim=True)
    gain = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    torch.testing.assert_close(found["loss_objective"], -gain, rtol=1e-4, atol=1e-6)


# ---------------------------------------------------------------------- the update


@pytest.mark.parametrize("mode", NETWORKS)
def test_before_the_first_step_the_ratio_is_one(mode: str) -> None:
    env = task(mode)
    agent = make(env, epochs=1, batch_size=4 * HORIZON)
    compact, _ = play(env, agent)
    found = agent.update(compact)
    assert found["gradient_steps"] == 1
    assert found["clip_fraction"] == 0
    assert found["kl_approx"].abs() < 1e-9
    assert found["loss_objective"].abs() < 1e-5  # centred advantages, all with ratio 1


@pytest.mark.parametrize("mode", NETWORKS)
def test_targets_bootstrap_from_the_true_last_state(mode: str) -> None:
    env = task(mode, items={"grid": (5, 4), "height": 0.045}, max_steps=4)
    agent = make(env)
    compact, whole = play(env, agent)
    following = whole["next"]
    alone = (following["truncated"] & ~following["terminated"]).squeeze(-1)
    assert alone[:, :-1].any()  # truncated in mid-rollout
    assert (following["terminated"].squeeze(-1)).any()
    with torch.no_grad():
        reached = agent.policy.value(following.reshape(-1)).view(4, HORIZON)
        begun = agent.policy.value(whole.reshape(-1)).view(4, HORIZON)
    done = following["done"].squeeze(-1)
    assert not torch.allclose(reached[:, :-1][done[:, :-1]], begun[:, 1:][done[:, :-1]])
    reward, terminated = (following[key].squeeze(-1) for key in ("reward", "terminated"))
    expected = generalised_advantage(
        reward, begun, reached, done, terminated, gamma=agent.gamma, lam=agent.lam
    )
    found = agent._with_targets(compact)
    torch.testing.assert_close(found["advantage"].squeeze(-1), expected, rtol=1e-4, atol=2e-6)
    torch.testing.assert_close(
        found["value_target"].squeeze(-1), expected + begun, rtol=1e-4, atol=2e-6
    )


def test_it_stops_at_the_divergence() -> None:
    env = task()
    free, bound = (make(env, epochs=4, lr=0.05, target_kl=kl) for kl in (None, 1e-3))
    compact, _ = play(env, free)
    torch.manual_seed(3)
    assert free.update(compact)["gradient_steps"] == 16
    torch.manual_seed(3)
    found = bound.update(compact)
    taken = int(found["gradient_steps"])
    assert 1 <= taken < 16
    assert found["skipped"] == 0
    # exactly the steps before: the same number of steps without a limit ends at the same weights
    other = make(env, epochs=4, lr=0.05, target_kl=None)
    torch.manual_seed(3)
    step, count = other.optimizer.step, Counter()

    def limited(loss: Tensor, *, where: Tensor, below: object) -> dict[str, Tensor]:
        count["steps"] += 1
        return step(loss, where=where & (count["steps"] <= taken))

    other.optimizer.step = limited
    other.update(compact)
    assert all(torch.equal(a, b) for a, b in zip(weights(bound), weights(other), strict=True))
