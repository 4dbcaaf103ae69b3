"""Action modes of a whole step at once: the bits of the rules one by one, and of the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.core.pairs import Pair, entries
from tests.tiny import cuboid_env, differing, play_beside_reference, stream, tiny_env

from packing_env import kernels
from packing_env.engine.operations import ON_CELLS
from packing_env.envs import PackingEnv
from packing_env.kernels.step import modes

pytestmark = pytest.mark.skipif(
    "numba" not in kernels.available_backends(), reason="numba is not installed"
)
MODES = ("candidate", "continuous", "hierarchical")
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "buffer": {"num_visible": 2, "preview": 1, "grid_step": 2, "num_candidates": 5},
    "short": {"observation": ("heightmap",), "max_steps": 4, "num_visible": 3},
    "noop": {"num_envs": (3, 5), "shell": {"draw": "sequential"}, "illegal_action": "noop"},
    "item": {"observation": ("item_id",), "stability": "none", "num_candidates": 500},
}


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    kernels.set_backend(None)


def on_cells(num_envs: Any = 5, **params: Any) -> PackingEnv:
    options = {"observation": ON_CELLS, "stability": "center_hull", **params}
    return cuboid_env(num_envs, items={"grid": (7, 6), "height": 8}, **options)


GROUNDS: dict[str, Callable[..., PackingEnv]] = {"cells": on_cells, "heights": tiny_env}
every_ground = pytest.mark.parametrize("task", GROUNDS.values(), ids=GROUNDS)
every_mode = pytest.mark.parametrize("mode", MODES)


@every_mode
@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@every_ground
def test_equals_the_rules_one_by_one(
    task: Callable[..., PackingEnv], options: dict[str, Any], mode: str
) -> None:
    pair = Pair(task, **{"num_envs": 20, "action_mode": mode, **options})
    pair.play(14)
    assert (pair.envs[0].state["episode"] > 0).any()


@every_mode
@every_ground
def test_episodes_equal_the_reference(task: Callable[..., PackingEnv], mode: str) -> None:
    env = task(3, action_mode=mode, num_visible=2)
    assert env.engine.name == "compiled"
    illegal_share = 0.0 if mode == "continuous" else 0.1
    assert play_beside_reference(env, 12, mask_bits=60, illegal_share=illegal_share) > 0


@every_mode
@every_ground
def test_steps_without_resets_and_resets_of_some_rows(
    task: Callable[..., PackingEnv], mode: str
) -> None:
    pair, generator = Pair(task, num_envs=9, action_mode=mode), stream(1)
    for _ in range(8):  # some rows stay finished
        steps = pair.step(generator, "step")
        assert not differing(*steps)
        pair.roots = [env.step_mdp(step) for env, step in zip(pair.envs, steps, strict=True)]
    rows = torch.rand(9, generator=generator) < 0.5
    pair.roots = [
        pair.call(i, lambda env, i=i: env.reset_rows(rows, pair.roots[i])) for i in (0, 1)
    ]
    assert not differing(*pair.roots)
    pair.play(8)


@every_mode
@every_ground
def test_masked_resets_give_the_same(task: Callable[..., PackingEnv], mode: str) -> None:
    envs = [task(6, action_mode=mode, shell={"autoreset": how}) for how in ("native", "masked")]
    roots, generator = [env.reset() for env in envs], stream()
    for _ in range(12):
        written = entries(envs[0], roots[0], generator)
        pairs = [
            env.step_and_maybe_reset(root.update(written))
            for env, root in zip(envs, roots, strict=True)
        ]
        assert not differing(pairs[0][0]["next"], pairs[1][0]["next"])
        roots = [root for _, root in pairs]
        wrong = differing(*(root.exclude(*envs[0].takes) for root in roots))
        assert not wrong
    assert (envs[0].state["episode"] > 0).all()


@every_mode
@every_ground
def test_what_was_returned_stays_as_it_was(task: Callable[..., PackingEnv], mode: str) -> None:
    env = task(6, action_mode=mode)
    root, kept = env.reset(), []
    for _ in range(10):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        kept += [(value, value.clone()) for value in step.values(True, True)]
        kept += [(value, value.clone()) for value in root.values(True, True)]
    assert all(torch.equal(value, copy) for value, copy in kept)


@pytest.mark.parametrize("how", ["in place", "another", "restored"])
@every_ground
def test_a_state_changed_from_outside_is_noticed(task: Callable[..., PackingEnv], how: str) -> None:
    """Points are snapped to what is legal now, not to what was legal after the step before."""
    pair = Pair(task, num_envs=6, action_mode="continuous")
    pair.play(2)
    raised = pair.envs[0].state["heightmap"].clone()
    raised[:, :3] = raised.amax((1, 2), keepdim=True)
    for index, env in enumerate(pair.envs):
        if how == "in place":
            env.state["heightmap"].copy_(raised)
        elif how == "another":
            env.state["heightmap"] = raised.clone()
        else:
            saved = env.get_state().set("heightmap", raised.clone())
            pair.roots[index] = pair.call(
                index, lambda e, saved=saved: e.reset(saved, set_state=True)
            )
    pair.play(3)


def test_points_are_snapped_as_the_rules_do() -> None:
    env, generator = tiny_env(1, action_mode="continuous", num_visible=3), stream()
    shape = (300, *env.mode.shape)
    share = torch.rand(300, 1, 1, 1, 1, generator=generator) ** 4
    legal = torch.rand(shape, generator=generator) < share
    legal &= torch.rand(shape[:3], generator=generator)[..., None, None] < 0.5
    legal[:5] = False
    action = 3 * torch.rand(300, 4, generator=generator) - 1.5
    action[::3] = action[::3].clamp(-1, 1)
    action[1::9, 2] = torch.nan
    action[3::9, 0] = torch.inf
    found = torch.zeros(300, 4, dtype=torch.int64)
    modes.snap(action, legal, found)
    expected = env.mode.decode({"action": action}, {"legal": legal.flatten(1)})
    slot = torch.where(expected.valid, expected.slot, -1)
    assert torch.equal(
        found, torch.stack((slot, expected.orientation, *env.mode.indices(expected)[2:]), 1)
    )
    assert (found[:, 0] < 0).any()
    assert (found[:, 0] > 0).any()


def test_steady_steps_make_no_scratch() -> None:
    env = on_cells(4, action_mode="candidate", observation=("heightmap",))
    root = env.reset()
    scratch = []
    for _ in range(4):
        _, root = env.step_and_maybe_reset(env.rand_action(root))
        scratch.append({key: value.data_ptr() for key, value in env.engine._scratch.items()})
    assert {name for _, name in scratch[0]} == {"mask", "item_id", "drop_height"}
    assert all(pointers == scratch[0] for pointers in scratch)
