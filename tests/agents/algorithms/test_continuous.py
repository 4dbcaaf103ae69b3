"""Networks and policy of the continuous mode: their inputs, exploration and stored entries."""

import math

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from tests.agents.continuous import NETWORK, sampled, small_env
from torch import nn
from torchrl.data import Bounded
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.policies.continuous import ContinuousPolicy, NoiseSchedule, TanhGaussian

RANDOM, DETERMINISTIC = ExplorationType.RANDOM, ExplorationType.DETERMINISTIC


# ---------------------------------------------------------------------- networks


@pytest.fixture(scope="module", params=[1, 2], ids=["one item", "two items"])
def env(request):
    return small_env(num_visible=request.param)


@pytest.fixture(scope="module")
def batch(env):
    return sampled(env)


def legal_placements(batch, index):
    """Lattice indices (x, y, orientation, item) of the legal placements of a row."""
    legal = batch["observation", "drop_height"][index] < 1
    return legal.nonzero()[:, [2, 3, 1, 0]].tolist()


def test_a_critic_sees_the_rest_height_of_the_placement_itself(env, batch):
    critic = NETWORK(env).critic()
    view = critic.encoder([batch[key] for key in critic.encoder.in_keys])
    seen = critic.look(view, batch["executed_action"][:, None])[:, 0]
    ground, rest, legal = seen[:, :3].unbind(1)  # of reach 1
    _, items, turns, xs, ys = batch["observation", "drop_height"].shape
    at = batch["executed_action"]
    place = [((at[:, i] + 1) * n / 2).long() for i, n in enumerate((xs, ys, turns))]
    slot = ((at[:, 3] + 1) * items / 2).long() if items > 1 else torch.zeros_like(place[0])
    rows = torch.arange(len(batch))
    expected = batch["observation", "drop_height"][rows, slot, place[2], place[0], place[1]]
    torch.testing.assert_close(rest, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(legal, torch.ones_like(legal), rtol=0, atol=1e-4)
    expected = batch["observation", "heightmap"][rows, place[0], place[1]]
    torch.testing.assert_close(ground, expected, rtol=1e-4, atol=1e-5)


def test_the_value_has_a_gradient_for_every_component(env, batch):
    critic = NETWORK(env).critic()
    action = (0.9 * batch["executed_action"]).requires_grad_()
    value = critic(batch.copy().set("action", action))["state_action_value"]
    (gradient,) = torch.autograd.grad(value.sum(), action)
    assert (gradient.abs().amax(0) > 0).all()


def test_an_actor_points_at_legal_placements(env, batch):
    actor = NETWORK(env).actor()
    with torch.no_grad():
        actor.move.weight.zero_()
    action = actor(batch.copy())["action"]
    _, items, turns, xs, ys = batch["observation", "drop_height"].shape
    for index in range(len(batch)):
        at = zip(action[index].tolist(), (xs, ys, turns, items), strict=False)
        place = [int((a + 1) * n / 2) for a, n in at]
        assert ([*place, 0])[:4] in legal_placements(batch, index)
    gradient = torch.autograd.grad(action.sum(), list(actor.query.parameters()))
    assert all(g.abs().max() > 0 for g in gradient)


# ---------------------------------------------------------------------- the squashed Gaussian


def by_hand(before: float, loc: float, scale: float) -> float:
    """Log-density of tanh(before) by the change of variables; cosh without its overflow."""
    gauss = -((before - loc) ** 2) / (2 * scale**2) - math.log(scale * math.sqrt(2 * math.pi))
    cosh = abs(before) + math.log1p(math.exp(-2 * abs(before))) - math.log(2)
    return gauss + 2 * cosh  # the slope of tanh is 1 / cosh^2


@pytest.mark.parametrize("loc", [0.0, 1.0, -8.0, 20.0, -40.0, 100.0])
def test_draws_are_scored_by_the_change_of_variables(loc):
    made = TanhGaussian(torch.full((64, 2), loc), torch.tensor([0.5, 2.0]).expand(64, 2))
    torch.manual_seed(3)
    noise = torch.randn(64, 2)
    torch.manual_seed(3)
    action, score = made.rsample_and_log_prob()
    before = loc + torch.tensor([0.5, 2.0]) * noise
    torch.testing.assert_close(action, torch.tanh(before))
    expected = [
        by_hand(u.item(), loc, 0.5) + by_hand(v.item(), loc, 2.0) for u, v in before.double()
    ]
    torch.testing.assert_close(score, torch.tensor(expected), rtol=1e-4, atol=1e-3)


def test_scores_and_gradients_stay_finite_far_out():
    loc = torch.tensor([[50.0, -200.0, 0.0]], requires_grad=True)
    made = TanhGaussian(loc, torch.ones(1, 3))
    action, score = made.rsample_and_log_prob()
    (gradient,) = torch.autograd.grad(score.sum() + action.sum(), loc)
    assert gradient.isfinite().all()
    torch.testing.assert_close(gradient[0, :2], torch.tensor([2.0, -2.0]))  # of 2 log cosh
    assert made.log_prob(torch.ones(1, 3)).isfinite().all()
    assert torch.equal(made.mode, torch.tanh(loc))


# ---------------------------------------------------------------------- the policy


def given(**options) -> ContinuousPolicy:
    network = TensorDictModule(nn.Identity(), in_keys=["value"], out_keys=["action"])
    return ContinuousPolicy(network, action_spec=Bounded(-1, 1, (1,)), **options)


def points(*shape: int) -> TensorDict:
    return TensorDict({"value": torch.zeros(*shape, 3)}, shape)


def acted(policy, td, mode=RANDOM) -> torch.Tensor:
    with set_exploration_type(mode):
        return policy(td.clone())["action"]


@pytest.mark.parametrize("shape", [(4000,), (40, 100)])
def test_noise_is_gaussian_drawn_per_component_and_kept_inside(shape):
    torch.manual_seed(0)
    action = acted(given(noise=NoiseSchedule(0.2, 0.2, 0)), points(*shape)).flatten(0, -2)
    assert action.std(0).tolist() == pytest.approx([0.2] * 3, rel=0.05)
    assert action.mean(0).tolist() == pytest.approx([0.0] * 3, abs=0.02)
    assert torch.corrcoef(action.T).fill_diagonal_(0).abs().max() < 0.06
    wide = acted(given(noise=NoiseSchedule(5.0, 5.0, 0)), points(*shape))
    assert wide.abs().max() == 1.0
