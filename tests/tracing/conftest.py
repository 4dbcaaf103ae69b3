"""Environments and planted faults for the tracing tests."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from tests.tiny import cuboid_env, tiny_env
from tests.tracing.fake_cuda import load_guard

from packing_env.core import metrics, transition
from packing_env.engine.operations import ON_CELLS
from packing_env.envs import PackingEnv


@pytest.fixture(scope="session")
def guard(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Fake CUDA tensors: compiling their guard takes six seconds."""
    load_guard(tmp_path_factory.mktemp("guard"))


@pytest.fixture
def quiet() -> Iterator[None]:
    """No gradients, and no graph left for the next test."""
    with torch.no_grad():
        yield
    torch._dynamo.reset()


TASKS: dict[str, dict[str, Any]] = {
    "placement": {},
    "candidate": {"action_mode": "candidate", "num_candidates": 8},
    "multi_head": {"action_mode": "multi_head", "num_visible": 2},
    "hierarchical": {"action_mode": "hierarchical", "num_visible": 2},
    "continuous": {"action_mode": "continuous", "illegal_action": "project"},
    "buffer": {"num_visible": 2, "preview": 1, "grid_step": 2, "illegal_action": "project"},
    "corners": {"stability": "area_corners_code", "stability_metric": "area_corners"},
    "centres": {"stability": "center_hull", "candidate_range": "pct", "grid_step": 2},
    "cut_pieces": {"observation": ["heightmap", "item_id", "cut_surface"]},
    "no_rule": {"stability": "none", "reward": {"objective": 1.0}, "illegal_action": "noop"},
}
CUBOIDS: dict[str, dict[str, Any]] = {
    "cells": {"stability": "center_hull", "observation": ON_CELLS},
    "cells, corners": {"stability": "area_corners_code", "num_visible": 2, "grid_step": 2},
    "cells, multi_head": {"action_mode": "multi_head", "num_visible": 2, "observation": ON_CELLS},
}
OVER_BOXES = ("all_placements", "split_spaces", "split_space_drops")
"""Candidate generators that also work without maps."""
LISTED = {
    "action_mode": "candidate",
    "num_candidates": 8,
    "num_spaces": 16,
    "observation": ("heightmap", "item_id"),
    "shell": {"engine": "rules"},
}
CUBOIDS |= {
    f"{geometry}, {name}": {**LISTED, "geometry": geometry, "candidate_generator": name}
    for geometry, names in (
        ("maps", (*OVER_BOXES, "corner_points", "level_set_vertices")),
        ("boxes", OVER_BOXES),
    )
    for name in names
}


@pytest.fixture
def env(request: pytest.FixtureRequest) -> PackingEnv:
    if request.param in CUBOIDS:
        return cuboid_env(3, items={"grid": (5, 6), "height": 5}, **CUBOIDS[request.param])
    return tiny_env(3, items={"grid": (5, 5), "height": 0.05}, **TASKS[request.param])


def _item(state: dict[str, torch.Tensor], params: Any) -> dict[str, torch.Tensor]:
    peak = state["heightmap"].amax().item()
    return _MEASURE({**state, "volume": state["volume"] + 0 * peak}, params)


def _rows(state: dict[str, torch.Tensor], params: Any) -> dict[str, torch.Tensor]:
    packed = state["volume"][state["packed"].any(1)].sum()
    return _MEASURE({**state, "volume": state["volume"] + 0 * packed}, params)


_MEASURE = metrics.measure
FAULTS = {"item": _item, "boolean_index": _rows}


@pytest.fixture(params=list(FAULTS))
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A read planted in the rules."""
    monkeypatch.setattr(metrics, "measure", FAULTS[request.param])
    assert transition.metrics.measure is FAULTS[request.param]
    return str(request.param)
