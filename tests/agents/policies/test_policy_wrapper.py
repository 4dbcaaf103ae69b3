"""PolicyWrapper: legal, uniform, per element, and closed form; the entropy of masked choices."""

import math

import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule
from torch import nn

from agents.policies import sampling
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from packing_env.types import ParameterError


def wrapper(epsilon=None) -> PolicyWrapper:
    """Return a policy whose action values are in the observation."""
    network = TensorDictModule(
        nn.Identity(), in_keys=[("observation", "value")], out_keys=["action_value"]
    )
    return PolicyWrapper(network, epsilon=epsilon)


def batch(shape: tuple[int, ...], actions: int = 11, seed: int = 0) -> TensorDict:
    stream = torch.Generator().manual_seed(seed)
    mask = torch.rand(*shape, actions, generator=stream) < 0.4
    mask[..., 3] = True
    value = torch.randn(*shape, actions, generator=stream)
    return TensorDict({"observation": {"value": value}, "action_mask": mask}, shape)


ALWAYS = EpsilonSchedule(1.0, 1.0, 0)


@pytest.mark.parametrize("shape", [(5,), (3, 4), (2, 3, 2)])
def test_greedy_is_the_best_legal_action_of_every_element(shape):
    td = batch(shape)
    out = wrapper(ALWAYS).eval()(td.clone())
    flat = td.reshape(-1)
    best = [
        max((v, i) for i, (v, m) in enumerate(zip(value.tolist(), mask.tolist(), strict=True)) if m)
        for value, mask in zip(flat["observation", "value"], flat["action_mask"], strict=True)
    ]
    assert out["action"].dtype == torch.int64
    assert out["action"].reshape(-1).tolist() == [index for _, index in best]
    assert out["chosen_action_value"].shape == (*shape, 1)
    assert out["chosen_action_value"].reshape(-1).tolist() == [value for value, _ in best]
    assert "action_value" not in out


@pytest.mark.parametrize("epsilon", [None, ALWAYS])
def test_a_network_of_another_number_of_actions_is_named(epsilon):
    given = batch((4,)).update({"action_mask": torch.ones(4, 12, dtype=torch.bool)})
    with pytest.raises(ParameterError, match=r"TensorDictModule .*\[4, 11\].*\[4, 12\]"):
        wrapper(epsilon)(given)


def test_draws_are_per_element_and_at_the_given_rates():
    torch.manual_seed(0)
    rates = torch.tensor([0.0, 0.1, 0.5, 1.0])
    policy = wrapper(EpsilonSchedule(rates, rates))
    shape = (4, 5_000)
    mask = torch.ones(*shape, 10, dtype=torch.bool)
    value = torch.zeros(*shape, 10)
    value[..., 0] = 1
    td = TensorDict({"observation": {"value": value}, "action_mask": mask}, shape)
    moved = (policy(td)["action"] != 0).double().mean(1)
    expected = rates.double() * 0.9
    assert torch.all((moved - expected).abs() <= 4 * (expected * (1 - expected) / 5_000).sqrt())


def test_schedule_is_linear_in_frames_and_closed_form():
    policy = wrapper(EpsilonSchedule(1.0, 0.1, 1_000))
    seen = []
    for frames in (0, 250, 500, 1_000, 10**9):
        policy.set_frames(frames)
        seen.append(float(policy.epsilon))
    assert seen == pytest.approx([1.0, 0.775, 0.55, 0.1, 0.1])
    policy.set_frames(250)
    other = wrapper(EpsilonSchedule(1.0, 0.1, 1_000))
    other.load_state_dict(policy.state_dict())
    assert float(other.epsilon) == pytest.approx(0.775)
    rows = wrapper(EpsilonSchedule(torch.tensor([1.0, 0.4]), torch.tensor([0.0, 0.2]), 100))
    rows.set_frames(50)
    assert rows.epsilon.tolist() == pytest.approx([0.5, 0.3])


def test_entropy_is_that_of_the_legal_entries() -> None:
    stream = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(20, 6, generator=stream)
    mask = torch.rand(20, 6, generator=stream) < 0.3
    mask[torch.arange(20), torch.randint(6, (20,), generator=stream)] = True
    log_prob = sampling.masked_log_softmax(logits, mask)
    for row, legal, share in zip(
        logits, mask, sampling.normalised_entropy(log_prob, mask), strict=True
    ):
        expected = torch.distributions.Categorical(logits=row[legal]).entropy()
        uniform = math.log(max(2, int(legal.sum())))
        torch.testing.assert_close(share * uniform, expected, rtol=1e-5, atol=1e-6)
    flat = sampling.masked_log_softmax(torch.zeros_like(logits), mask)
    normal = sampling.normalised_entropy(flat, mask)
    torch.testing.assert_close(normal, (mask.sum(1) > 1).float())
    assert (sampling.normalised_entropy(log_prob, mask) <= 1).all()
