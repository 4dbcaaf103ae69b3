"""A fused step has the bits of the rules, of the compiled step, and of the reference.

Triton decides to interpret when it is imported, so these tests run in a process of their own, which
`test_fused.py` starts.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tests.engine.engines import INTERPRETING, Engines, after_steps_without_resets, overwritten
from tests.tiny import cuboid_env, play_beside_reference

from packing_env import kernels
from packing_env.engine.operations import ON_CELLS
from packing_env.kernels.step.entries import FUSED_TERMS

NUM_CASES, CASES_PER_TEST = 200, 10
RULES = kernels.CUBOID_RULES

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
    observed = rng.random(len(ON_CELLS)) < 0.8
    height = int(rng.integers(4, 9))
    return {
        "num_envs": pick(2, 2, 3, (2, 1)),
        "seed": seed,
        "shell": {"draw": pick("random", "random", "sequential"), "row_offset": pick(0, 7)},
        "items": {
            "seed": seed,
            "grid": (int(rng.integers(3, 8)), int(rng.integers(3, 8))),
            "height": height,
            "sides": (1, int(rng.integers(2, 4))),
            "orientations": pick("yaw", "yaw", "cuboid"),
            "pitch": pick(1.0, 1.0, 0.25, 3.0),
            "num_items": 4,
        },
        "stability": RULES[seed % len(RULES)],
        "stability_metric": pick(*RULES),
        "action_mode": pick("placement", "placement", "multi_head"),
        "grid_step": pick(1, 1, 2, 3),
        "num_items": pick(3, 4, 5),
        "num_visible": pick(1, 1, 2),
        "preview": pick(0, 0, 1),
        "illegal_action": pick("terminate", "noop"),
        "max_steps": pick(None, None, 2),
        "reward": {
            str(term): float(weight)
            for term, weight in zip(terms, rng.random(len(terms)), strict=True)
        },
        "observation": tuple(n for n, seen in zip(ON_CELLS, observed, strict=True) if seen),
    }


def finished(seed: int, num_steps: int = 4, backends: tuple[str, ...] = ("triton", "eager")) -> int:
    """Play a case; returns the episodes that ended."""
    return ended(feasible(seed, backends)[0], seed, num_steps)


def feasible(seed: int, backends: tuple[str, ...] = ("triton", "eager")) -> tuple[Engines, int]:
    """Begin a case; all can be played, so that none is counted as refused."""
    return Engines(backends, **options(seed)), 0


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
def test_all_engines_give_the_same(rule: int) -> None:
    """Few steps: most rules see no episode end here, which the random tasks do."""
    assert finished(NUM_CASES + rule, 3, ("triton", "eager", "numba")) >= 0


def test_episodes_equal_the_reference() -> None:
    kernels.set_backend("triton")
    given = {"grid": (3, 4), "height": 5, "sides": (1, 3)}
    env = cuboid_env(1, items=given, stability="center_hull", observation=ON_CELLS, num_items=3)
    assert env.engine.name == "fused"
    assert play_beside_reference(env, 4, mask_bits=24, illegal_share=0.1) > 0


def test_steps_without_resets_and_resets_of_some_rows() -> None:
    given = {**options(3), "num_envs": 4, "illegal_action": "terminate"}
    after_steps_without_resets(Engines(("triton", "eager"), **given), (1, 0, 1, 0), num_steps=3)


def test_what_was_returned_stays_as_it_was() -> None:
    kernels.set_backend("triton")
    env = cuboid_env(**{**options(1), "observation": ON_CELLS})
    assert not overwritten(env, 3)


def test_wide_containers_and_tall_ones() -> None:
    """More cells and places than a program handles at once, and sides beyond a vector."""
    items = {"grid": (9, 34), "height": 250, "sides": (1, 34), "num_items": 3}
    given = {"items": items, "num_items": 2, "stability": "none", "stability_metric": "none"}
    Engines(("triton", "eager"), num_envs=1, observation=ON_CELLS, **given).play(2)
