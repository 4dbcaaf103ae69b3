"""A whole step of items of any shape has the bits of the rules one by one, and of the reference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.core.pairs import Pair, actions
from tests.tiny import differing, play_beside_reference, stream, tiny_env

from packing_env import kernels
from packing_env.engine.operations import supported_ground
from packing_env.envs import PackingEnv
from packing_env.kernels.stability_rules import MAP_RULES

pytestmark = pytest.mark.skipif(
    "numba" not in kernels.available_backends(), reason="numba is not installed"
)
RULES = MAP_RULES


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    kernels.set_backend(None)


def task(num_envs: Any = 5, **params: Any) -> PackingEnv:
    return tiny_env(num_envs, **params)


@pytest.mark.parametrize(
    ("rule", "metric_rule"),
    [
        *((rule, "com_hull") for rule in RULES),
        *(("none", rule) for rule in RULES if rule != "com_hull"),
    ],
)
def test_equals_the_rules_one_by_one(rule: str, metric_rule: str) -> None:
    pair = Pair(task, num_envs=30, stability=rule, stability_metric=metric_rule)
    pair.play(12)
    assert (pair.envs[0].state["episode"] > 0).any()
    stable, packed = (pair.envs[0].state[key] for key in ("stable_items", "items_packed"))
    if metric_rule in ("none", rule):
        assert torch.equal(stable, packed)
    elif rule == "none":
        assert (stable < packed).any()


@pytest.mark.parametrize(
    "options",
    [
        {"num_envs": (3, 5), "shell": {"draw": "sequential"}, "illegal_action": "noop"},
        {"num_visible": 2, "preview": 1, "grid_step": 2, "reward": {"objective": 1.0, "void": 2.0}},
        {"action_mode": "multi_head", "num_visible": 3, "max_steps": 4},
        {"observation": ("item_maps",), "contact_tol": 0.0, "stability": "area_corners"},
        {"observation": ("drop_height",), "contact_tol": 0.003, "stability": "area_corners_code"},
        {"observation": ("item_features", "heightmap"), "stability": "center_hull", "grid_step": 3},
        {"items": {"grid": (20, 9), "window": 9}, "num_visible": 4, "shell": {"row_offset": 9}},
        {"items": {"grid": (5, 4), "height": 0.04}},
    ],
)
def test_equals_the_rules_in_other_tasks(options: dict[str, Any]) -> None:
    pair = Pair(task, **options)
    pair.play(12)
    assert (pair.envs[0].state["episode"] > 0).any()


@pytest.mark.parametrize("rule", RULES)
def test_episodes_equal_the_reference(rule: str) -> None:
    env = task(3, stability=rule, num_visible=2)
    assert env.engine.name == "compiled"
    assert play_beside_reference(env, 12, mask_bits=60, illegal_share=0.1) > 0


def test_steps_without_resets_and_resets_of_some_rows() -> None:
    pair, generator = Pair(task, num_envs=9), stream(1)
    for _ in range(5):
        steps = pair.step(generator, "step")
        assert not differing(*steps)
        pair.roots = [env.step_mdp(step) for env, step in zip(pair.envs, steps, strict=True)]
    rows = torch.rand(9, 1, generator=generator) < 0.5
    for index in (0, 1):
        given = pair.roots[index].clone().set("_reset", rows)
        pair.roots[index] = pair.call(index, lambda env, given=given: env.reset(given))
    pair.play(8)


def test_continues_from_a_state_of_the_other() -> None:
    pair = Pair(task, num_envs=6)
    pair.play(5)
    saved = pair.envs[1].get_state()
    kept = saved.clone()
    for index in (0, 1):
        pair.roots[index] = pair.call(index, lambda env: env.reset(saved, set_state=True))
    pair.play(8, seed=1)
    assert not differing(saved, kept)


def test_masked_resets_give_the_same() -> None:
    env, other = task(6), task(6, shell={"autoreset": "masked"})
    roots, generator = [env.reset(), other.reset()], stream()
    for _ in range(12):
        action = actions(env, roots[0], generator)
        pairs = [
            e.step_and_maybe_reset(root.set("action", action))
            for e, root in zip((env, other), roots, strict=True)
        ]
        assert not differing(pairs[0][0]["next"], pairs[1][0]["next"])
        roots = [root for _, root in pairs]
        assert not differing(*(root.exclude("action") for root in roots))
    assert (env.state["episode"] > 0).all()


def test_what_was_returned_stays_as_it_was() -> None:
    env = task(6)
    root, kept = env.reset(), []
    for _ in range(10):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        kept += [(value, value.clone()) for value in step.values(True, True)]
        kept += [(value, value.clone()) for value in root.values(True, True)]
    assert all(torch.equal(value, copy) for value, copy in kept)


def test_the_lid_shuts_out_what_is_above_it_and_nothing_else() -> None:
    z = torch.tensor([[[[0.1, 0.2], [0.3, torch.inf]]]])
    peak = torch.tensor([[0.1]])
    lid = float(z[0, 0, 1, 0] + peak[0, 0])
    assert kernels.close_lid(z.clone(), peak, lid).tolist() == z.tolist()
    below = kernels.close_lid(z.clone(), peak, lid - 1e-6)
    assert torch.isinf(below).tolist() == [[[[False, False], [True, True]]]]


@pytest.mark.parametrize(
    "params",
    [
        {"action_mode": "candidate", "candidate_generator": "corner_points"},
        {"illegal_action": "project"},
        {"candidate_range": "pct"},
    ],
)
def test_other_tasks_go_by_the_rules(params: dict[str, Any]) -> None:
    assert task().engine.name == "compiled"
    env = task(**params)
    assert supported_ground(env.catalogue.tensors(), env.params) is None
    assert env.engine.name == "rules"
