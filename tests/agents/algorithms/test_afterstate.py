"""TD(lambda) on afterstates: targets in a plain loop, choices, other items, learning."""

import math

import pytest
import torch
from tensordict import TensorDict
from tests.tiny import stream
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents import heuristics, load_policy
from agents.algorithms.afterstate import Afterstate
from agents.config.build import build_agent, build_env, build_held_out
from agents.config.compose import compose
from agents.training.evaluate import evaluate, paired_difference
from packing_env import PackingEnv, ParameterError, make_env

ROOT = ("state_value", "afterstate_value", "explored")
NEXT = ("reward", "terminated", "truncated", "done")
OBSERVATION = ["heightmap", "item_id", "drop_height"]


def build(task: str = "cuboid_online", num_envs: int = 4, **options) -> PackingEnv:
    given = {"seed": 0, "pool_size": 64, "observation": OBSERVATION} | options
    return make_env(task, num_envs=num_envs, **given)


def random_rollout(rows: int, length: int) -> TensorDict:
    """Return random values, rewards and ends of episodes."""
    generator = stream()

    def draw(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, 1, generator=generator)

    done = draw(rows, length) < 0.2
    truncated = done & (draw(rows, length) < 0.5)
    following = {"reward": draw(rows, length), "terminated": done & ~truncated}
    following |= {"truncated": truncated, "done": done}
    root = {"state_value": draw(rows, length), "afterstate_value": draw(rows, length)}
    root["explored"] = draw(rows, length) < 0.3
    return TensorDict(root | {"next": following}, [rows, length])


@pytest.mark.parametrize("lam", [0.0, 0.7, 1.0])
def test_targets_equal_a_plain_loop(lam: float) -> None:
    agent = Afterstate(build(), lam=lam, gamma=0.9, scale=3.0)
    rollout = random_rollout(6, 9)
    target, known = agent.targets(rollout)
    value = {key: rollout[key].squeeze(-1).tolist() for key in ROOT}
    after = {key: rollout["next", key].squeeze(-1).tolist() for key in NEXT}
    for row in range(6):
        later = math.nan
        for t in reversed(range(9)):
            if after["terminated"][row][t]:
                wanted, is_known = 0.0, True
            elif after["truncated"][row][t] or t == 8:
                wanted, is_known = value["afterstate_value"][row][t], False
            else:
                best = value["state_value"][row][t + 1]
                traced = 3.0 * after["reward"][row][t + 1] + later
                share = 0.0 if value["explored"][row][t + 1] else lam
                wanted, is_known = 0.9 * ((1 - share) * best + share * traced), True
            assert target[row, t].item() == pytest.approx(wanted, abs=1e-5)
            assert bool(known[row, t]) is is_known
            later = wanted


@pytest.mark.parametrize("task", ["cuboid_buffer", "irregular"])
def test_the_policy_takes_the_best_candidate(task: str) -> None:
    torch.manual_seed(0)
    env = build(task, pool_size=16)
    policy = Afterstate(env, scale=2.0).policy
    torch.nn.init.normal_(policy.value.last.weight)
    root = env.reset()
    with set_exploration_type(ExplorationType.DETERMINISTIC):
        for _ in range(6):
            out = policy(root.clone())
            legal = root["action_mask"].gather(1, out["action"][:, None])
            assert legal.all()
            candidate, value, after = policy.candidate_values(root)
            for row in range(4):
                slot = policy.afterstates.slots(candidate, root["observation", "drop_height"])[row]
                volume = env.catalogue.volume[root["observation", "item_id"][row][slot]]
                share = volume / env.params.container_volume
                wanted = (2.0 * share + after[row]).masked_fill(candidate[row] < 0, -torch.inf)
                assert torch.allclose(value[row].double(), wanted.double(), atol=1e-5)
                assert out["action"][row] == candidate[row, wanted.argmax()]
            assert torch.equal(out["state_value"].squeeze(1), value.amax(1))
            root["action"] = out["action"]
            _, root = env.step_and_maybe_reset(root)


def test_other_visible_items_and_the_count_left_are_inputs() -> None:
    env = build("cuboid_buffer", num_envs=2)
    policy = Afterstate(env).policy
    item_id = torch.tensor([[3, 7, 9, -1, -1], [3, 7, 9, 4, 4]])
    slot, packed = torch.tensor([[0, 1], [0, 4]]), torch.tensor([0.0, 10.0])
    found = policy.outlook.waiting(item_id, packed, slot)
    known = policy.outlook.known
    assert torch.allclose(found[0, 0, 2:], (known[7] + known[9])[1:])
    assert torch.allclose(found[0, 1, 2:], (known[3] + known[9])[1:])
    assert torch.allclose(found[1, 1, 1], torch.tensor(4 / 5))
    assert torch.allclose(found[:, 0, 0], 1 - (packed + 1) / env.params.num_items)


def test_exploration_takes_candidates_and_is_marked() -> None:
    env = build(num_envs=64)
    policy = Afterstate(env, epsilon_start=1.0, epsilon_end=1.0).policy
    root = env.reset()
    with set_exploration_type(ExplorationType.RANDOM):
        out = policy(root.clone())
    assert out["explored"].all()
    assert root["action_mask"].gather(1, out["action"][:, None]).all()
    assert len(out["action"].unique()) > 10


@pytest.mark.parametrize("task", ["cuboid_online", "irregular"])
def test_learning_sees_turned_and_mirrored_cells(task: str) -> None:
    value = Afterstate(build(task, pool_size=8)).policy.value
    parts, size = value.windows.parts, value.turns.shape[1]
    features = torch.rand(8, len(value.scale))
    turned = value._turned(features)
    assert torch.equal(turned[:, :-size], features[:, :-size])
    before, after = (f[:, -size:].unflatten(1, (-1, *parts)) for f in (features, turned))
    assert torch.equal(after[0], before[0])
    assert torch.equal(after[1], before[1].flip(1))
    assert torch.equal(after[2], before[2].flip(2))
    assert torch.equal(after[4], before[4].transpose(1, 2))
    assert torch.equal(after[7], before[7].flip((1, 2)).transpose(1, 2))


def test_a_policy_plays_items_that_it_was_not_trained_on() -> None:
    env = build("irregular", pool_size=8)
    other = build("irregular", pool_size=8, split="test", draw="sequential", scales=[0.8])
    policy = Afterstate(env).policy
    bound = policy.bound_to(other)
    assert bound.value.first.weight is policy.value.first.weight
    assert bound.value.windows.sizes != policy.value.windows.sizes  # those of its own items
    assert not torch.equal(bound.afterstates.top, policy.afterstates.top)
    assert policy.afterstates.top.shape[0] == len(env.catalogue)
    played = evaluate(other, policy)  # binds by itself
    again = evaluate(other, bound)
    assert torch.equal(played.metrics["utilization"], again.metrics["utilization"])


@pytest.mark.parametrize(("low", "high"), [(2, 4), (1, 6)])
def test_weights_of_one_law_of_boxes_pack_another(low: int, high: int) -> None:
    """RS-125 has 15 footprints, sides of 2 to 4 have 6, and sides of 1 to 6 have 21.

    Over 500 streams the weights pack 0.12 and 0.13 more than deepest-bottom-left.
    """
    law = {"name": "uniform_cuboids", "low": low, "high": high}
    env = make_env("cuboid_online", 64, generator=law, split="test", draw="sequential")
    played = evaluate(env, load_policy("pretrained/cuboid_online", env), 64)
    rule = heuristics.build("deepest_bottom_left", env)
    gain = paired_difference(played, evaluate(env, rule, 64))
    assert gain.mean - gain.half_width > 0.08
    other = make_env("cuboid_online", 1, pool_size=4)
    bound = load_policy("pretrained/cuboid_online", other).bound_to(env)
    again = evaluate(env, bound, 64).metrics["utilization"]
    assert torch.equal(again, played.metrics["utilization"])


def test_a_run_saves_the_footprints_that_it_chose() -> None:
    config = compose("train", ["env=cuboid_online", "agent=afterstate", "generator.high=3"])
    build_agent(config, build_env(config))
    assert config.network.footprints == 6
    config = compose("train", ["env=irregular", "agent=afterstate", "env.pool_size=8"])
    build_agent(config, build_env(config))
    assert config.network.footprints == "typical"
    config.network.footprints = "small"
    with pytest.raises(ParameterError, match=r"network\.footprints='small'"):
        build_agent(config, build_env(config))


def test_weights_are_of_use_at_another_resolution() -> None:
    """A value that was learned on coarse cells is the same for equal heights on finer cells."""
    options = {"pool_size": 4, "reward": {"utilization": 1.0}, "num_visible": 2}
    options |= {"contact_tol": 0.004}
    coarse = build("irregular_paper", 1, resolution=100, cell=None, grid_step=2, **options)
    fine = build("irregular_paper", 1, resolution=200, cell=None, grid_step=4, **options)
    torch.manual_seed(0)
    of_coarse, of_fine = (Afterstate(env).policy.value for env in (coarse, fine))
    torch.nn.init.normal_(of_coarse.last.weight)
    of_fine.load_state_dict(of_coarse.state_dict())
    assert of_fine.windows.sizes == of_coarse.windows.sizes
    maps = torch.randint(1000, (64, 10, 10), dtype=torch.int16).repeat_interleave(10, 1)
    maps = maps.repeat_interleave(10, 2)
    finer = (2 * maps).repeat_interleave(2, 1).repeat_interleave(2, 2)
    context = torch.rand(64, of_coarse.first.in_features - len(of_coarse.scale))
    expected, found = of_coarse(maps, context), of_fine(finer, context)
    assert expected.std() > 0.1
    torch.testing.assert_close(found, expected, atol=0.02, rtol=0.0)


def test_rewards_that_are_not_of_the_item_alone_are_refused() -> None:
    with pytest.raises(ParameterError, match="objective"):
        Afterstate(build(reward={"objective": 1.0}))


def test_the_order_in_which_a_policy_names_its_inputs_does_not_matter() -> None:
    env = build()
    policy = Afterstate(env).policy.eval()
    root = env.reset()
    expected = policy(root.clone())["action"]
    policy.in_keys = policy.in_keys[::-1]
    assert torch.equal(policy(root.clone())["action"], expected)


def test_continuous_boxes_are_held_out_with_boxes_of_their_own() -> None:
    """Every stream has sides of its own, so those of training fit no other stream."""
    small = ["env.num_envs=4", "env.pool_size=4", "evaluation.instances=4"]
    config = compose("train", ["experiment=learn_continuous_s2", *small])
    env = build_env(config)
    agent = build_agent(config, env)
    held_out = build_held_out(config, env)
    assert evaluate(held_out, agent.policy).estimate("utilization").mean > 0.3
    sides = [set(map(tuple, each.catalogue.extent.tolist())) for each in (env, held_out)]
    assert len(sides[0] & sides[1]) < 0.1 * len(sides[0])
