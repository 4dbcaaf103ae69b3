"""No call changes its arguments: every input keeps its version counter and its values."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from hypothesis import given
from tests.laws.cases import MAPS, Case, cases
from tests.tiny import advance, legal_action, play_once, state_of
from torch import Tensor

from packing_env import kernels
from packing_env.core import candidates, feasibility, metrics, observation, stability, transition
from packing_env.core import heightmap as hm
from packing_env.core.orientation import decode_placement, take_from_queue, visible_items
from packing_env.core.random import choose_uniform, philox
from packing_env.testing import KNOWN_RULES


@contextmanager
def untouched(tensors: Iterable[Tensor]) -> Iterator[None]:
    kept = list(tensors)
    before = [(t._version, t.clone()) for t in kept]
    yield
    for tensor, (version, value) in zip(kept, before, strict=True):
        assert tensor._version == version
        assert torch.equal(tensor, value)


def leaves(*values: Any) -> Iterator[Tensor]:
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, dict):
            yield from leaves(*value.values())


@given(cases(MAPS, action_mode="placement"))
def test_the_rules_change_no_input(case: Case) -> None:
    env = case.env()
    play_once(env, 2, case.stream)
    state, items, params = state_of(env), env.catalogue.tensors(), env.params
    item_id, there = visible_items(state, params.num_visible)
    bottom = items["bottom"][item_id].flatten(1, 2)
    com = items["com"][item_id].flatten(1, 2)
    z = kernels.drop_height(state["heightmap"], bottom, params.grid_step)
    maps = feasibility.placement_maps(state["heightmap"], item_id, there, items, params)
    action = legal_action(maps.legal.flatten(1) | True, case.stream)
    placement = decode_placement(action, env.mode.num_orientations, params)
    seed, uniform = state["seed"], torch.rand(env.batch_size.numel())
    top = items["top"][item_id[:, 0], placement.orientation]
    x, y = placement.x, placement.y
    size = items["size"][item_id]
    contact = stability.Contact(
        state["heightmap"],
        bottom,
        maps.z.flatten(1, 2),
        com,
        params.tolerance,
        params.grid_step,
        size.flatten(1, 2),
    )
    given_to = (seed, uniform, top, x, y, maps.z, maps.legal, there, item_id, action)
    calls: list[Callable[[], object]] = [
        lambda: kernels.drop_height(state["heightmap"], bottom, params.grid_step),
        lambda: kernels.com_hull(state["heightmap"], bottom, z, com, 0.01, params.grid_step),
        lambda: feasibility.placement_maps(state["heightmap"], item_id, there, items, params),
        lambda: feasibility.legal_on_floor(items, params),
        lambda: advance(env, state, placement),
        lambda: metrics.measure(state, params),
        lambda: observation.observe(state, maps, items, params),
        lambda: candidates.propose(candidates.Scene(state, item_id, there, maps, items, params)),
        lambda: hm.read_window(state["heightmap"], x, y, (3, 3)),
        lambda: hm.raise_window(state["heightmap"], x, y, top),
        *(lambda rule=rule: stability.judge_maps(rule, contact) for rule in KNOWN_RULES),
        lambda: feasibility.ground(items, params).at_rest(state, item_id[:, 0], placement),
        lambda: feasibility.judge(state, placement, items, params),
        lambda: take_from_queue(state["queue"], x * 0, x, there[:, 0]),
        lambda: choose_uniform(maps.legal.flatten(1), uniform),
        lambda: philox(seed, seed),
        lambda: transition.begin(
            state["item_id"], state["num_items"], seed, seed, seed, params
        ),
    ]  # fmt: skip
    for call in calls:
        with untouched(leaves(state, items, bottom, com, z, *given_to)):
            call()


@given(cases())
def test_the_environment_changes_no_input(case: Case) -> None:
    env = case.env()
    root = env.reset()
    for _ in range(2):
        root.set("action", legal_action(root["action_mask"], case.stream))
        with untouched(leaves(*root.values(True, True), *env.catalogue.tensors().values())):
            step, following = env.step_and_maybe_reset(root)
        with untouched(leaves(*step.values(True, True))):
            env.rand_action(following.clone())
        root = following
