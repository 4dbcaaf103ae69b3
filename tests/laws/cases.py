"""Cases for the laws: random small tasks, played at random.

A number determines a task. Environments are kept, because building one takes as long as three steps
of play. `--hypothesis-profile=explore` tries more tasks and more play.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import settings
from hypothesis import strategies as st
from tests.tiny import cuboid_env, stream, tiny_env

from packing_env.envs import PackingEnv
from packing_env.testing import KNOWN_RULES
from packing_env.testing.episodes import BOX_RULES
from packing_env.types import Instances

MAPS = ("irregular", "cuboids")
KINDS = ("irregular", "cuboids", "irregular", "boxes")
OF_MAPS = ("lowest_z", "corner_points", "level_set_vertices")
OF_SPACES = ("split_spaces", "split_space_drops")

core_laws = settings(max_examples=4 * settings.default.max_examples)
"""80 examples, unless a profile says otherwise."""
sides_of_grids = st.tuples(st.integers(1, 12), st.integers(1, 12))
seeds = st.integers(0, 2**16)

_ENVS: dict[str, PackingEnv] = {}
_POOLS: dict[str, Instances] = {}


@dataclass(frozen=True)
class Case:
    """A task, its rows, and the seed of the random play."""

    kind: str = "irregular"
    items: dict[str, Any] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    seed: int = 0

    def env(self, num_envs: int | tuple[int, int] = 3, **shell: Any) -> PackingEnv:
        """The environment, before its first reset.

        The pool and the catalogue are the same whatever the number of rows.
        """
        task = f"{self.kind} {self.items} {self.params}"
        key = f"{task} {num_envs} {sorted(shell.items())}"
        if key not in _ENVS:
            make = tiny_env if self.kind == "irregular" else cuboid_env
            pool = _POOLS.get(task)
            env = make(num_envs, items=self.items, shell=shell, instances=pool, **self.params)
            _ENVS[key], _POOLS[task] = env, env.instances
        _ENVS[key].set_seed(self.seed, static_seed=True)
        return _ENVS[key]

    @property
    def stream(self) -> torch.Generator:
        return stream(self.seed)

    @property
    def geometry(self) -> str:
        return "boxes" if self.kind == "boxes" else "maps"


@st.composite
def cases(draw: st.DrawFn, kinds: Sequence[str] = KINDS, **fixed: Any) -> Case:
    """Any task of these kinds; ``fixed`` pins parameters."""
    number = draw(st.integers(0, settings.default.max_examples * 2 // 3), label="task")
    seed = draw(st.integers(0, 999), label="seed")
    kind = kinds[number % len(kinds)]
    choose = random.Random(number)
    items, params = TASKS[kind](choose)
    return Case(kind, items, {**params, **_common(choose), **fixed}, seed)


def _common(choose: random.Random) -> dict[str, Any]:
    return {
        "num_items": choose.choice([4, 6]),
        "num_visible": choose.randint(1, 3),
        "preview": choose.randint(0, 1),
        "num_candidates": choose.choice([3, 12]),
        "candidate_fallback": choose.random() < 0.5,
        "candidate_range": choose.choice(["container", "container", "pct"]),
        "max_steps": choose.choice([None, None, 2]),
        "reward": {"utilization": 1.0},
    }


def _irregular(choose: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    items = {
        "seed": choose.randint(0, 12),
        "num_items": 4,
        "grid": choose.choice([(5, 5), (8, 6), (6, 9)]),
        "height": choose.choice([0.05, 0.08]),
        "num_orientations": choose.randint(1, 4),
        "window": choose.randint(3, 5),
    }
    return items, {
        "grid_step": choose.randint(1, 3),
        "stability": choose.choice(KNOWN_RULES),
        "stability_metric": choose.choice(KNOWN_RULES),
        "contact_tol": choose.choice([None, 0.0]),
        "action_mode": choose.choice(["placement", "candidate"]),
        "candidate_generator": choose.choice(OF_MAPS),
    }


def _cuboids(choose: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    items = {
        "seed": choose.randint(0, 12),
        "num_items": 4,
        "grid": choose.choice([(5, 5), (7, 6), (4, 8)]),
        "height": choose.choice([5, 7]),
        "sides": choose.choice([(1, 4), (2, 5)]),
        "orientations": choose.choice(["yaw", "yaw", "cuboid"]),
        "pitch": choose.choice([1.0, 1.0, 0.1]),
    }
    return items, {
        "grid_step": choose.choice([1, 1, 1, 2]),
        "stability": choose.choice(KNOWN_RULES),
        "stability_metric": choose.choice(KNOWN_RULES),
        "action_mode": choose.choice(["placement", "candidate"]),
        "candidate_generator": choose.choice((*OF_MAPS, *OF_SPACES)),
        "num_spaces": choose.choice([6, 40]),
    }


def _boxes(choose: random.Random) -> tuple[dict[str, Any], dict[str, Any]]:
    steps = choose.choice([1, 2, 5])
    x, y = choose.choice([(5, 5), (7, 6), (4, 8)])
    items = {
        "seed": choose.randint(0, 12),
        "num_items": 4,
        "grid": (x * steps, y * steps),
        "height": choose.choice([5, 7]) * steps + choose.randint(0, steps - 1),
        "sides": (choose.randint(1, 2), 4 * steps),
        "orientations": choose.choice(["yaw", "cuboid"]),
        "pitch": 0.001,
        "maps": False,
    }
    return items, {
        "cell": 0.001 * steps,
        "unit": 0.001,
        "stability": choose.choice(BOX_RULES),
        "stability_metric": choose.choice(BOX_RULES),
        "candidate_generator": choose.choice(OF_SPACES),
        "num_spaces": choose.choice([6, 40]),
    }


TASKS = {"irregular": _irregular, "cuboids": _cuboids, "boxes": _boxes}
