"""A fused step has the bits of the rules, and so of the compiled step.

Triton decides to interpret when it is imported, so these tests run in a process of their own, which
`tests/kernels/test_triton.py` starts. All of them hold on cuboids and on items of any shape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.engine.engines import Engines, after_steps_without_resets, interprets, overwritten
from tests.tiny import cuboid_env, tiny_env

from packing_env import kernels
from packing_env.engine.operations import ON_CELLS
from packing_env.engine.rules import RulesEngine
from packing_env.envs import PackingEnv
from packing_env.generators.base import InfeasibleError
from packing_env.kernels.step.entries import FUSED_TERMS
from packing_env.types import DEFAULT_OBSERVATIONS

NUM_CASES = 200
"""Cases of `benchmarks/fused_cases.py`; the tests below play those that follow."""
RULES = kernels.CUBOID_RULES
NEXT_TASK, MOST_REFUSED = 1000 * len(RULES), 20
"""Seeds from a task that cannot be played to the one drawn instead, of the same rule."""
FUSED = ("triton", "eager")
SMALL: dict[str, Any] = {
    "items": {"seed": 8, "grid": (3, 4), "num_items": 4, "num_orientations": 2, "window": 2}
}
MAKE: dict[str, Callable[..., PackingEnv]] = {"cells": cuboid_env, "heights": tiny_env}
OBSERVED = {"cells": ON_CELLS, "heights": DEFAULT_OBSERVATIONS}
every_ground = pytest.mark.parametrize("ground", MAKE)
every_rule = pytest.mark.parametrize(
    "rule",
    [
        rule if rule % 4 == 0 else pytest.param(rule, marks=pytest.mark.slow)
        for rule in range(len(RULES))
    ],
)

pytestmark = interprets


@pytest.fixture(autouse=True)
def _only_steps_are_interpreted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start episodes and judge them by eager kernels.

    `test_triton_interpreted.py` tests the kernels that the rules call.
    """

    def eager(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            backend = kernels.backend_for("cpu")
            kernels.set_backend("eager")
            try:
                return method(*arguments)
            finally:
                kernels.set_backend(backend)

        return call

    for name in ("__init__", "begin"):
        monkeypatch.setattr(RulesEngine, name, eager(getattr(RulesEngine, name)))


def options(ground: str, seed: int) -> dict[str, Any]:
    """A random task whose episodes are short, so that rows are reset in a few steps."""
    rng, on_cells = np.random.default_rng(seed), ground == "cells"

    def pick(*values: Any) -> Any:
        return values[int(rng.integers(len(values)))]

    terms = rng.permutation(FUSED_TERMS)[: rng.integers(1, 4)]
    names = OBSERVED[ground]
    observed = rng.random(len(names)) < (0.8 if on_cells else 0.7)
    height = int(rng.integers(4, 9)) if on_cells else 0
    given = {
        "num_envs": pick(2, 2, 3, (2, 1)) if on_cells else pick(1, 2, (2, 1)),
        "seed": seed,
        "shell": {"draw": pick("random", "random", "sequential"), "row_offset": pick(0, 7)},
    }
    items = {"seed": seed, "grid": (int(rng.integers(3, 8)), int(rng.integers(3, 8)))}
    if on_cells:
        items |= {
            "height": height,
            "sides": (1, int(rng.integers(2, 4))),
            "orientations": pick("yaw", "yaw", "cuboid"),
            "pitch": pick(1.0, 1.0, 0.25, 3.0),
        }
    else:
        items |= {
            "height": float(rng.uniform(0.05, 0.12)),
            "num_orientations": int(rng.integers(1, 3)),
            "window": int(rng.integers(2, 5)),
        }
    given |= {"items": items | {"num_items": 4}, "stability": RULES[seed % len(RULES)]}
    given["stability_metric"] = pick(*RULES)
    if not on_cells:
        given["contact_tol"] = pick(None, 0.0, 0.02)
    given |= {
        "action_mode": pick("placement", "placement", "multi_head"),
        "grid_step": pick(1, 1, 2, 3),
        "num_items": pick(3, 4, 5) if on_cells else pick(2, 3, 4),
        "num_visible": pick(1, 1, 2),
        "preview": pick(0, 0, 1),
        "illegal_action": pick("terminate", "noop"),
        "max_steps": pick(None, None, 2),
        "reward": {
            str(term): float(weight)
            for term, weight in zip(terms, rng.random(len(terms)), strict=True)
        },
        "observation": tuple(n for n, seen in zip(names, observed, strict=True) if seen),
    }
    return given | {"num_items": max(given["num_items"], given["num_visible"] + given["preview"])}


def feasible(ground: str, seed: int) -> tuple[Engines, int]:
    """Begin the first playable task of this seed and later ones; count the unplayable tasks.

    In an unplayable task, no item has a legal placement in the empty container.
    """
    for refused in range(MOST_REFUSED):
        try:
            given = options(ground, seed + refused * NEXT_TASK)
            return Engines(MAKE[ground], FUSED, **given), refused
        except InfeasibleError:
            continue
    raise AssertionError(f"no task of seed {seed} can be played")


def ended(engines: Engines, seed: int, num_steps: int = 4) -> int:
    """Play steps of a case; returns the episodes that ended."""
    engines.play(num_steps, seed)
    return int(engines.envs[0].state["episode"].sum())


@every_rule
@every_ground
def test_every_rule_in_few_steps(ground: str, rule: int) -> None:
    """With most rules no episode ends here; in the benchmark, episodes end."""
    engines, _ = feasible(ground, NUM_CASES + rule)
    engines.play(3 if ground == "cells" else 2, NUM_CASES + rule)


def surest(**changes: Any) -> Engines:
    """A task with several items, whose margins differ."""
    given = {**options("heights", 11), **SMALL, "num_visible": 2, "contact_tol": 0.02}
    given |= {"grid_step": 1, "observation": DEFAULT_OBSERVATIONS, "stability_metric": "com_hull"}
    return Engines(tiny_env, FUSED, **given | changes)


def test_the_surest_placements_equal_the_rules() -> None:
    """After the step, each margin leaves out placements that the next one allows."""
    items = {**SMALL["items"], "seed": 1, "window": 3}
    rules = {"surest": ("com_hull_10", "com_hull_20"), "stability": "com_hull_strict"}
    size = {"num_envs": 1, "preview": 0, "num_items": 3, "max_steps": 1, "contact_tol": 0.002}
    engines = surest(items=items, illegal_action="noop", action_mode="placement", **rules, **size)
    assert ended(engines, 11, num_steps=1) > 0


@pytest.mark.slow
def test_the_surest_placements_after_resets_and_in_heads() -> None:
    """The mode is ``multi_head``; episodes end, and some rows are reset by hand."""
    rules = {"surest": ("com_hull_20",), "stability": "com_hull"}
    size = {"num_envs": 2, "preview": 1, "num_items": 4, "max_steps": 2}
    engines = surest(illegal_action="terminate", action_mode="multi_head", **rules, **size)
    after_steps_without_resets(engines, (1, 0), num_steps=1)
    engines.play(3, 11)


@every_ground
def test_steps_without_resets_and_resets_of_some_rows(ground: str) -> None:
    if ground == "cells":
        given, marked = {**options(ground, 3), "num_envs": 4}, (1, 0, 1, 0)
    else:
        given, marked = {**options(ground, 2), **SMALL, "num_envs": 2}, (1, 0)
        given["observation"] = DEFAULT_OBSERVATIONS
    engines = Engines(MAKE[ground], FUSED, **{**given, "illegal_action": "terminate"})
    after_steps_without_resets(engines, marked, num_steps=len(marked) // 2 + 1)


@every_ground
def test_what_was_returned_stays_as_it_was(ground: str) -> None:
    """With items of any shape, a step overwrites only scratch memory, which is allocated once."""
    kernels.set_backend("triton")
    given = options(ground, 1) if ground == "cells" else {**options(ground, 4), **SMALL}
    env = MAKE[ground](**{**given, "observation": OBSERVED[ground]})
    scratch, memory = getattr(env.engine, "_memory", {}), []
    assert not overwritten(env, 2, lambda: memory.append(addresses(*scratch.values())))
    assert memory[0] == memory[1]
    assert bool(memory[0]) == (ground == "heights")


def addresses(*scratch: Any) -> list[int]:
    return [value.data_ptr() for memory in scratch for part in memory for value in part]


def test_wide_containers_and_tall_ones() -> None:
    """More cells and places than a program handles at once, and sides beyond a vector."""
    items = {"grid": (9, 34), "height": 250, "sides": (1, 34), "num_items": 3}
    given = {"items": items, "num_items": 2, "stability": "none", "stability_metric": "none"}
    Engines(cuboid_env, FUSED, num_envs=1, observation=ON_CELLS, **given).play(2)
