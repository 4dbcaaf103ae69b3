"""A fused step on items of any shape has the bits of the rules and of the reference.

These tests run in a process of their own, as those of `test_fused_interpreted.py`.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.engine.engines import INTERPRETING, Engines, after_steps_without_resets, overwritten
from tests.tiny import play_beside_reference, tiny_env

from packing_env import kernels
from packing_env.generators.base import InfeasibleError
from packing_env.kernels.step.entries import FUSED_TERMS
from packing_env.types import DEFAULT_OBSERVATIONS

NUM_CASES, CASES_PER_TEST = 200, 10
RULES = kernels.CUBOID_RULES
NEXT_TASK, MOST_REFUSED = 1000 * len(RULES), 20
"""Seeds from a task that cannot be played to the one drawn instead, of the same rule."""
SMALL = {"items": {"seed": 8, "grid": (3, 4), "num_items": 4, "num_orientations": 2, "window": 2}}

pytestmark = pytest.mark.skipif(
    not (INTERPRETING and importlib.util.find_spec("triton")),
    reason="run by test_fused.py, with TRITON_INTERPRET=1",
)


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    kernels.set_backend(None)


def options(seed: int) -> dict[str, Any]:
    """A random task whose episodes are short, so that rows are reset in a few steps."""
    rng = np.random.default_rng(seed)

    def pick(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    terms = rng.permutation(FUSED_TERMS)[: rng.integers(1, 4)]
    observed = rng.random(len(DEFAULT_OBSERVATIONS)) < 0.7
    names = zip(DEFAULT_OBSERVATIONS, observed, strict=True)
    given = {
        "num_envs": pick(1, 2, (2, 1)),
        "seed": seed,
        "shell": {"draw": pick("random", "random", "sequential"), "row_offset": pick(0, 7)},
        "items": {
            "seed": seed,
            "grid": (int(rng.integers(3, 8)), int(rng.integers(3, 8))),
            "height": float(rng.uniform(0.05, 0.12)),
            "num_items": 4,
            "num_orientations": int(rng.integers(1, 3)),
            "window": int(rng.integers(2, 5)),
        },
        "stability": RULES[seed % len(RULES)],
        "stability_metric": pick(*RULES),
        "contact_tol": pick(None, 0.0, 0.02),
        "action_mode": pick("placement", "placement", "multi_head"),
        "grid_step": pick(1, 1, 2, 3),
        "num_items": pick(2, 3, 4),
        "num_visible": pick(1, 1, 2),
        "preview": pick(0, 0, 1),
        "illegal_action": pick("terminate", "noop"),
        "max_steps": pick(None, None, 2),
        "reward": {
            str(term): float(weight)
            for term, weight in zip(terms, rng.random(len(terms)), strict=True)
        },
        "observation": tuple(name for name, seen in names if seen),
    }
    return given | {"num_items": max(given["num_items"], given["num_visible"] + given["preview"])}


def feasible(seed: int) -> tuple[Engines, int]:
    """Begin the first task that can be played of this seed and of later ones; count the others.

    No item of the others has a legal placement in the empty container.
    """
    for refused in range(MOST_REFUSED):
        try:
            given = options(seed + refused * NEXT_TASK)
            return Engines(("triton", "eager"), tiny_env, **given), refused
        except InfeasibleError:
            continue
    raise AssertionError(f"no task of seed {seed} can be played")


def finished(seed: int, num_steps: int = 4) -> int:
    """Play a case; returns the episodes that ended."""
    return ended(feasible(seed)[0], seed, num_steps)


def ended(engines: Engines, seed: int, num_steps: int = 4) -> int:
    """Play steps of a case; returns the episodes that ended."""
    engines.play(num_steps, seed)
    return int(engines.envs[0].state["episode"].sum())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, NUM_CASES, CASES_PER_TEST))
def test_random_tasks_equal_the_rules(first: int) -> None:
    assert sum(finished(seed) for seed in range(first, first + CASES_PER_TEST)) > CASES_PER_TEST


@pytest.mark.parametrize(
    "rule",
    [
        rule if rule % 4 == 0 else pytest.param(rule, marks=pytest.mark.slow)
        for rule in range(len(RULES))
    ],
)
def test_every_rule_in_few_steps(rule: int) -> None:
    """Most rules see no episode end here, which the random tasks do."""
    assert finished(NUM_CASES + rule, 2) >= 0


def test_the_surest_placements_equal_the_rules() -> None:
    """With several items, whose margins differ, and actions that are legal but not the surest."""
    given = {**options(11), **SMALL, "num_envs": 1, "num_visible": 2, "preview": 0, "num_items": 2}
    given |= {"surest": ("com_hull_10", "com_hull_20"), "stability": "com_hull_strict"}
    given |= {"stability_metric": "com_hull"}
    given |= {"contact_tol": 0.02, "grid_step": 1, "illegal_action": "noop", "max_steps": None}
    given |= {"action_mode": "placement", "observation": DEFAULT_OBSERVATIONS}
    assert ended(Engines(("triton", "eager"), tiny_env, **given), 11, num_steps=2) > 0


@pytest.mark.slow
def test_the_surest_placements_after_resets_and_in_heads() -> None:
    """In action mode ``multi_head``, where rows end, and some are reset by hand."""
    given = {**options(11), **SMALL, "num_envs": 2, "num_visible": 2, "preview": 1, "num_items": 4}
    given |= {"surest": ("com_hull_20",), "stability": "com_hull", "stability_metric": "com_hull"}
    given |= {"contact_tol": 0.02, "grid_step": 1, "illegal_action": "terminate", "max_steps": 2}
    given |= {"action_mode": "multi_head", "observation": DEFAULT_OBSERVATIONS}
    engines = Engines(("triton", "eager"), tiny_env, **given)
    after_steps_without_resets(engines, (1, 0), num_steps=1)
    engines.play(3, 11)


def test_episodes_equal_the_reference() -> None:
    kernels.set_backend("triton")
    env = tiny_env(1, **SMALL, stability="com_hull", num_items=2)
    assert env.engine.name == "fused"
    assert play_beside_reference(env, 3, illegal_share=0.1) > 0


def test_steps_without_resets_and_resets_of_some_rows() -> None:
    given = {**options(2), **SMALL, "num_envs": 2, "illegal_action": "terminate"}
    given["observation"] = DEFAULT_OBSERVATIONS
    engines = Engines(("triton", "eager"), tiny_env, **given)
    after_steps_without_resets(engines, (1, 0), num_steps=2)


def test_what_was_returned_stays_as_it_was() -> None:
    """Only scratch is written again in later steps, and it is allocated once."""
    kernels.set_backend("triton")
    env = tiny_env(**{**options(4), **SMALL, "observation": DEFAULT_OBSERVATIONS})
    memory = []
    scratch = env.engine._memory
    assert not overwritten(env, 3, lambda: memory.append(addresses(*scratch.values())))
    assert memory[0] == memory[1] == memory[2]


def addresses(*scratch: Any) -> list[int]:
    return [value.data_ptr() for memory in scratch for part in memory for value in part]
