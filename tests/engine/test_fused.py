"""The engine `fused`: its choice and its machine code.

`tests/kernels/test_triton.py` runs `test_fused_interpreted.py`, which compares its bits. What needs
a CUDA device is in tests/gpu.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.engine.engines import compiles, needs_triton
from tests.tiny import cuboid_env

from packing_env import kernels
from packing_env.engine import Task
from packing_env.engine import fused as engine
from packing_env.engine.operations import ON_CELLS

MOST_REGISTERS = {"step_kernel": 152, "reset_kernel": 64, "judge_kernel": 64}
MOST_REGISTERS |= {"decide_kernel": 168, "finish_kernel": 144, "item_maps_kernel": 64}
OWNS_A_ROW = ("decide_kernel", "finish_kernel")
"""Kernels of several warps, which exchange sums; a call of a division may use the stack."""


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


@needs_triton
@compiles
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("module", "architecture", "choose"),
    [
        ("triton_step", 90, "first_and_last"),
        ("triton_heights", 90, "first_and_last"),
        *(
            pytest.param(module, architecture, "list", marks=pytest.mark.slow)
            for module in ("triton_step", "triton_heights")
            for architecture in (80, 90)
        ),
    ],
)
def test_machine_code(
    module: str, architecture: int, choose: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No spills, few registers, no multiply-add, divisions rounded as the rules'."""
    names = ("triton_code", "triton_versions", module)
    triton_code, versions, listed = (importlib.import_module(name) for name in names)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    chosen = versions.first_and_last if choose == "first_and_last" else list
    for variant in chosen(listed.variants()):
        kernel = variant.kernel.__name__
        row = kernel in OWNS_A_ROW
        code = triton_code.compiled(variant, architecture, listing=row)
        assert code.local_bytes <= 8 * row, f"{variant.name} spills"
        assert not [t for _, t in code.instructions if "LDL" in t or "STL" in t], variant.name
        most = 1024 * (row and architecture == 90)
        assert code.shared_bytes <= most, f"{variant.name} moves values between threads"
        assert code.registers <= MOST_REGISTERS[kernel], variant.name
        assert not re.search(r"fma\.rn\.f(32|64)", code.ptx), variant.name
        rounded = {"div.rn.f64", *(["div.rn.f32"] * (module == "triton_heights"))}
        assert set(re.findall(r"\bdiv\.\w+\.f\d+", code.ptx)) <= rounded, variant.name
        assert ".ftz" not in code.ptx, variant.name
