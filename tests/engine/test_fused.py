"""The choice of the engine `fused`.

`tests/kernels/test_triton.py` runs `test_fused_interpreted.py`, which compares its bits, and
`tests/kernels/test_triton_code.py` tests its machine code. What needs a CUDA device is in
tests/gpu.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.tiny import cuboid_env

from packing_env import kernels
from packing_env.engine import Task
from packing_env.engine import fused as engine
from packing_env.engine.operations import ON_CELLS


def task(**params: Any) -> Task:
    kernels.set_backend("eager")
    env = cuboid_env(1, **{"observation": ON_CELLS, **params})
    kernels.set_backend(None)
    return Task(env.params, env.catalogue.tensors(), env.instances)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({}, ""),
        ({"action_mode": "multi_head", "num_visible": 2, "reward": {"height": 1.0}}, ""),
        ({"action_mode": "candidate"}, "the engine does not support action_mode='candidate'"),
        ({"illegal_action": "project"}, "no compiled step supports this combination"),
        ({"contact_tol": 1.0}, "no compiled step supports this combination"),
        (
            {"stability": "com_hull_10"},
            "the engine does not support the stability rule 'com_hull_10'",
        ),
        ({"surest": ["center_hull"]}, "the engine does not support surest="),
        (
            {"stability_metric": "com_hull_20"},
            "the engine does not support the stability rule 'com_hull_20'",
        ),
    ],
)
def test_tasks_that_it_knows(
    params: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "is_fused_for", lambda device: True)
    refusal = engine.FusedEngine.refusal(task(**params))
    assert refusal.startswith(reason)
    assert bool(refusal) == bool(reason)


def test_what_overlaps_itself_is_copied_before_it_is_written() -> None:
    state = {"row": torch.arange(1).expand(3), "step": torch.zeros(3)}
    found = engine.writable(state)
    assert all(value.is_contiguous() for value in found.values())
    assert engine.writable(found) is found
