"""Observations that follow from the heightmap: listed once, every engine makes them."""

from typing import Annotated, Any

import pytest
import torch
from tests.engine.engines import Engines, needs_numba
from tests.tiny import cuboid_env, tiny_env
from torchrl.envs import check_env_specs

from packing_env import values
from packing_env.core import observation
from packing_env.engine.operations import ON_CELLS
from packing_env.types import OBSERVATIONS, PackingParams
from packing_env.values import Option

TASKS: dict[str, tuple[Any, dict[str, Any]]] = {
    "heights": (tiny_env, {"observation": ("heightmap", "item_id", "free_height")}),
    "cells": (cuboid_env, {"observation": (*ON_CELLS, "free_height")}),
    "alone": (tiny_env, {"observation": ("free_height",), "num_visible": 2}),
    "alone on cells": (cuboid_env, {"observation": ("free_height",), "num_visible": 2}),
    "items": (cuboid_env, {"observation": ("free_height",), "action_mode": "hierarchical"}),
}


@pytest.fixture(autouse=True)
def free_height(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the share of the container's height that is free above each cell."""
    monkeypatch.setitem(observation.OF_HEIGHTMAP, "free_height", lambda heightmap: 1 - heightmap)
    names = Annotated[tuple[str, ...], Option(choices=(*OBSERVATIONS, "free_height"))]
    monkeypatch.setitem(values._hints(PackingParams), "observation", names)


@needs_numba
@pytest.mark.parametrize("task", TASKS)
def test_the_compiled_step_equals_the_rules_one_by_one(task: str) -> None:
    make, options = TASKS[task]
    engines = Engines(make, num_envs=12, **options)
    engines.play(14)
    assert (engines.envs[0].state["episode"] > 0).any()
    rows = torch.arange(12) % 2 == 0
    engines.reset_rows(rows)
    seen = engines.roots[0]["observation", "free_height"]
    assert (seen[rows] == 1).all()
    assert (seen[~rows] < 1).any()


def test_its_spec_follows() -> None:
    env = tiny_env(2, observation=("item_id", "free_height"))
    grid = env.params.grid
    assert env.observation_spec["observation", "free_height"].shape == (2, *grid)
    check_env_specs(env)
