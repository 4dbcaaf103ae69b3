"""Evaluation: every held-out instance once, the same for all, with honest intervals."""

from collections.abc import Callable

import pytest
import torch
from tests.agents.conftest import FakeAgent

from agents import heuristics
from agents.estimate import Estimate
from agents.training.evaluate import evaluate, paired_difference
from agents.training.process import StoppedError
from packing_env import PackingEnv

Make = Callable[..., PackingEnv]
HELD_OUT = {"split": "test", "draw": "sequential"}


def test_rows_at_a_time_do_not_matter(tiny: Make) -> None:
    found = {}
    for rows in (1, 4, 10):
        env = tiny(rows, **HELD_OUT)
        found[rows] = evaluate(env, heuristics.build("lowest_z", env), 10, keep=3)
        assert len(found[rows]) == 10
        assert len(found[rows].packings(env)) == 3
    for metric, values in found[10].metrics.items():
        assert torch.equal(values, found[1].metrics[metric]), metric
        assert torch.equal(values, found[4].metrics[metric]), metric


def test_it_equals_an_episode_played_by_hand(tiny: Make) -> None:
    env = tiny(3, **HELD_OUT)
    policy = heuristics.build("first_fit", env)
    found = evaluate(env, policy)
    assert torch.equal(found.metrics["items_packed"], env.state["items_packed"].double())
    env.set_seed(0, static_seed=True)
    seen = env.reset()
    assert torch.equal(env.state["item_id"], env.instances.item_id[:3])
    total = torch.zeros(3, 1)
    for _ in range(env.params.num_items):
        taken = env.step(policy(seen))
        total += taken["next", "reward"]
        seen = env.step_mdp(taken)
    assert seen["done"].all()
    for name in ("utilization", "compactness", "pyramidality", "stability"):
        assert torch.equal(found.metrics[name], seen["metrics", name][:, 0].double())
    assert torch.allclose(found.metrics["return"], total[:, 0].double(), atol=1e-6)


def test_it_is_repeatable_and_leaves_the_generator_alone(tiny: Make) -> None:
    env = tiny(4, **HELD_OUT)
    policy = heuristics.build("random_legal", env)
    before = torch.get_rng_state()
    first, second = (evaluate(env, policy, 8) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first.metrics["utilization"], second.metrics["utilization"])
    other = evaluate(env, policy, 8, seed=1)
    assert not torch.equal(first.metrics["compactness"], other.metrics["compactness"])


def test_a_trained_policy_does_not_explore_and_stays_in_training_mode(tiny: Make) -> None:
    env = tiny(4, **HELD_OUT)
    agent = FakeAgent(env)
    agent.policy.train()
    assert float(agent.policy.epsilon) == 1.0
    first, second = (evaluate(env, agent.policy, seed=seed) for seed in range(2))
    assert torch.equal(first.metrics["utilization"], second.metrics["utilization"])
    assert agent.policy.training


def test_impossible_requests_are_refused(tiny: Make) -> None:
    env = tiny(2, **HELD_OUT)
    policy = heuristics.build("first_fit", env)
    with pytest.raises(ValueError, match="25 instances cannot be evaluated; 24 are held out"):
        evaluate(env, policy, 25)
    with pytest.raises(ValueError, match="draw='sequential'"):
        evaluate(tiny(2), policy)
    with pytest.raises(StoppedError):
        evaluate(env, policy, should_stop=lambda: True)


def test_pairs_are_compared_instance_by_instance(tiny: Make) -> None:
    env = tiny(8, **HELD_OUT)
    low = evaluate(env, heuristics.build("lowest_z", env))
    random = evaluate(env, heuristics.build("random_legal", env))
    difference = paired_difference(low, random, "compactness")
    expected = low.metrics["compactness"] - random.metrics["compactness"]
    assert difference.mean == pytest.approx(expected.mean().item())
    assert difference.half_width == pytest.approx(Estimate.of(expected).half_width)
    assert paired_difference(low, low).mean == 0
    with pytest.raises(ValueError, match="cannot be paired"):
        paired_difference(low, evaluate(env, heuristics.build("lowest_z", env), 4))
