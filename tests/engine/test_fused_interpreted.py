"""A fused step has the bits of the rules, of the compiled step, and of the reference.

Triton decides to interpret when it is imported, so these tests run in a process of their own, which
`test_fused.py` starts.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from tests.core.pairs import actions
from tests.tiny import cuboid_env, differing, play_beside_reference, state_of, stream

from packing_env import kernels
from packing_env.engine.operations import ON_CELLS
from packing_env.envs import PackingEnv
from packing_env.kernels import backends as dispatch
from packing_env.kernels.step.fused import FUSED_TERMS

NUM_CASES, CASES_PER_TEST = 200, 10
RULES = kernels.CUBOID_RULES
INTERPRETING = "cpu" in (dispatch.BACKENDS["triton"].runs_on or ())
BACKENDS = {"triton": "fused", "numba": "compiled", "eager": "rules"}

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


class Engines:
    """Environments of one task, one for each engine; ``make`` makes one."""

    def __init__(
        self,
        backends: tuple[str, ...],
        make: Callable[..., PackingEnv] = cuboid_env,
        **given: Any,
    ) -> None:
        self.backends, self.envs = backends, list[PackingEnv]()
        for backend in backends:
            kernels.set_backend(backend)
            self.envs.append(make(**given))
        assert [env.engine.name for env in self.envs] == [BACKENDS[name] for name in backends]
        self.roots = self.call(lambda env, _: env.reset())

    def call(self, function: Any) -> list[Any]:
        """Return what the function gives for each environment and its index."""
        found = []
        for index, (backend, env) in enumerate(zip(self.backends, self.envs, strict=True)):
            kernels.set_backend(backend)
            found.append(function(env, index))
        return found

    def step(self, generator: torch.Generator, how: str = "step_and_maybe_reset") -> list[Any]:
        action = actions(self.envs[0], self.roots[0], generator)
        return self.call(lambda env, i: getattr(env, how)(self.roots[i].set("action", action)))

    def play(self, num_steps: int, seed: int = 0) -> None:
        """With automatic resets, held to be alike in every step."""
        generator = stream(seed)
        for _ in range(num_steps):
            found = self.step(generator)
            for step, root in found[1:]:
                assert not differing(found[0][0], step)
                assert not differing(found[0][1], root)
            self.roots = [root for _, root in found]
        self.check_states()

    def check_states(self) -> None:
        first, *others = (state_of(env) for env in self.envs)
        assert all(not differing(first, other) for other in others)


def finished(seed: int, num_steps: int = 4, backends: tuple[str, ...] = ("triton", "eager")) -> int:
    """Play a case; returns the episodes that ended."""
    engines = Engines(backends, **options(seed))
    engines.play(num_steps, seed)
    return int(engines.envs[0].state["episode"].sum())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("first", range(0, NUM_CASES, CASES_PER_TEST))
def test_random_tasks_equal_the_rules(first: int) -> None:
    assert sum(finished(seed) for seed in range(first, first + CASES_PER_TEST)) > CASES_PER_TEST


@pytest.mark.parametrize("rule", range(len(RULES)))
def test_all_engines_give_the_same(rule: int) -> None:
    """Few steps: most rules see no episode end here, which the random tasks do."""
    assert finished(NUM_CASES + rule, 3, ("triton", "eager", "numba")) >= 0


def test_episodes_equal_the_reference() -> None:
    kernels.set_backend("triton")
    given = {"grid": (4, 5), "height": 6, "sides": (1, 3)}
    env = cuboid_env(2, items=given, stability="center_hull", observation=ON_CELLS, num_items=3)
    assert env.engine.name == "fused"
    assert play_beside_reference(env, 6, mask_bits=40, illegal_share=0.1) > 0


def test_steps_without_resets_and_resets_of_some_rows() -> None:
    given = {**options(3), "num_envs": 4, "illegal_action": "terminate"}
    engines, generator = Engines(("triton", "eager"), **given), stream(1)
    for _ in range(3):
        steps = engines.step(generator, "step")
        assert not differing(*steps)
        engines.roots = [env.step_mdp(s) for env, s in zip(engines.envs, steps, strict=True)]
    rows = torch.tensor([True, False, True, False])
    found = engines.call(lambda env, i: env.reset_rows(rows, engines.roots[i]))
    assert not differing(*found)
    engines.check_states()


def test_what_was_returned_stays_as_it_was() -> None:
    kernels.set_backend("triton")
    env = cuboid_env(**{**options(1), "observation": ON_CELLS})
    root, kept = env.reset(), []
    for _ in range(3):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        kept += [(value, value.clone()) for value in step.values(True, True)]
        kept += [(value, value.clone()) for value in root.values(True, True)]
    assert all(torch.equal(value, copy) for value, copy in kept)


def test_wide_containers_and_tall_ones() -> None:
    """More cells and places than a program handles at once, and sides beyond a vector."""
    items = {"grid": (9, 34), "height": 250, "sides": (1, 34), "num_items": 3}
    given = {"items": items, "num_items": 2, "stability": "none", "stability_metric": "none"}
    Engines(("triton", "eager"), num_envs=1, observation=ON_CELLS, **given).play(2)
