"""Actions of several heads are one distribution over placements; unused heads add nothing."""

from functools import partial

import pytest
import torch
from tensordict import TensorDictBase
from tests.agents.learning import shaken
from tests.tiny import play, tiny_env
from torch import Tensor

from agents.algorithms.ppo import ActorCriticPolicy
from agents.networks import CandidateActorCritic, MultiHeadActorCritic, PlacementActorCritic
from agents.objectives import MultiHeadPPOLoss
from agents.policies.heads import action_heads
from packing_env import PackingEnv

NETWORKS = {
    "placement": partial(PlacementActorCritic, channels=8),
    "candidate": partial(CandidateActorCritic, width=16),
    "multi_head": partial(MultiHeadActorCritic, width=16, channels=4),
}


def task(mode: str = "multi_head", num_envs=6, **params) -> PackingEnv:
    shape = {"items": {"grid": (5, 4), "height": 0.06}, "num_visible": 2, **params}
    return tiny_env(num_envs, action_mode=mode, num_candidates=7, **shape)


def policy_of(env: PackingEnv, precision: str = "fp32") -> ActorCriticPolicy:
    """A policy that is far from its start, where all options are about as likely."""
    torch.manual_seed(1)
    network = NETWORKS[env.params.action_mode](env, precision=precision)
    shaken(network, 0.3)
    return ActorCriticPolicy(network, action_heads(env))


def states(env: PackingEnv, count: int = 4) -> TensorDictBase:
    return play(env, count).reshape(-1)


def all_actions(env: PackingEnv) -> Tensor:
    return torch.cartesian_prod(*(torch.arange(size) for size in env.mode.shape))


def test_the_joint_probability_sums_to_one_over_all_placements() -> None:
    env = task()
    policy, seen = policy_of(env), states(env)
    actions = all_actions(env)
    assert len(actions) == env.mode.num_actions
    spread = False
    for row in seen.unbind(0):
        with torch.no_grad():
            found = policy.evaluate(row.expand(len(actions)), actions)
        probability = found.log_prob.double().sum(-1).exp()
        legal = row["action_mask"]
        assert probability[legal].sum().item() == pytest.approx(1.0, abs=1e-5)
        assert probability[~legal].max() < 1e-6
        spread = spread or probability[legal].max() > 5 * probability[legal].min()
    assert spread  # it is not the uniform distribution that sums to one


def test_actions_are_legal_and_drawn_as_their_probabilities_say() -> None:
    env = task(num_envs=1)
    policy, root = policy_of(env), env.reset()
    torch.manual_seed(0)
    drawn = policy(root.expand(20_000, 1).reshape(-1).exclude("action"))["action"]
    sizes = env.mode.shape
    index = torch.zeros_like(drawn[:, 0])
    for head, size in enumerate(sizes):
        index = index * size + drawn[:, head]
    legal = root["action_mask"][0]
    assert legal[index].all()
    count = torch.bincount(index, minlength=len(legal))[legal].double()
    with torch.no_grad():
        found = policy.evaluate(root.expand(len(legal), 1).reshape(-1), all_actions(env))
    expected = 20_000 * found.log_prob.double().sum(-1).exp()[legal]
    often = expected > 5
    chi2 = float(((count - expected).square() / expected)[often].sum())
    degrees = int(often.sum())
    assert degrees > 10
    assert chi2 < degrees + 4 * (2 * degrees) ** 0.5


def loss_batch(env: PackingEnv, policy: ActorCriticPolicy) -> TensorDictBase:
    torch.manual_seed(0)
    batch = policy(states(env).exclude("action"))
    batch.set("advantage", torch.randn(len(batch), 1))
    batch.set("value_target", torch.randn(len(batch), 1))
    return batch.detach()


def gradients(policy: ActorCriticPolicy, loss: Tensor) -> dict[str, Tensor]:
    named = list(policy.network.named_parameters())
    found = torch.autograd.grad(loss, [p for _, p in named], allow_unused=True)
    pairs = zip(named, found, strict=True)
    return {name: torch.zeros_like(p) if g is None else g for (name, p), g in pairs}


def test_a_head_without_a_choice_gets_no_policy_gradient() -> None:
    env = task(num_visible=1)  # one item: the first head has one option
    policy = policy_of(env)
    batch = loss_batch(env, policy)
    assert torch.equal(batch["action_log_prob"][:, 0], torch.zeros(len(batch)))
    # leave one column of places: x has one option too, in every row
    sizes = env.mode.shape
    mask = batch["action_mask"].view(-1, *sizes).clone()
    x = batch["action"][:, 2]
    mask &= (torch.arange(sizes[2]) == x[:, None])[:, None, None, :, None]
    batch.set("action_mask", mask.flatten(1))
    found = MultiHeadPPOLoss(policy)(batch)
    grad = gradients(policy, found["loss_objective"] + found["loss_entropy"])
    for name in ("item.weight", "item.bias", "x.weight", "x.bias"):
        assert grad[name].abs().max() == 0, name
    for name in ("orientation.weight", "y.weight", "stem.weight"):
        assert grad[name].abs().max() > 0, name


def test_the_value_does_not_depend_on_the_heads() -> None:
    env = task()
    policy, seen = policy_of(env), states(env)
    actions = all_actions(env)
    values = {
        policy.evaluate(seen[:1], actions[place][None]).value.item()
        for place in range(0, len(actions), 17)
    }
    assert values == {policy.value(seen[:1]).item()}
    found = MultiHeadPPOLoss(policy)(loss_batch(env, policy))
    grad = gradients(policy, found["loss_critic"])
    assert grad["out.0.weight"].abs().max() > 0
    for name in ("item.weight", "orientation.weight", "x.weight", "y.weight", "stem.weight"):
        assert grad[name].abs().max() == 0, name


def test_a_row_without_candidates_gives_no_nan() -> None:
    env = task("candidate")
    policy, seen = policy_of(env), states(env).exclude("action")
    seen["observation", "candidates"].zero_()
    seen["action_mask"].zero_()
    played = policy(seen)
    for key in ("action_log_prob", "state_value"):
        assert played[key].isfinite().all()
    found = policy.evaluate(played, played["action"])
    (found.log_prob.sum() + found.entropy.sum() + found.value.sum()).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in policy.parameters())
