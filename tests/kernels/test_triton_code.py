"""Machine code of the Triton kernels, made without a GPU: what the interpreter cannot show.

The kernels are compiled by the tools that Triton brings along: in every run the first and the last
choice of constants for one chip and the reference lattice, on request all choices for two chips and
three lattices. Those of the engine `fused` are among them.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
from tests.engine.engines import compiles, needs_triton

MODULES = ("triton_code", "triton_step", "triton_heights")
"""Files of benchmarks/ that list kernels: those on maps, and those of a step on each ground."""
CEILINGS = {"ground_kernel": 80, "blocks_kernel": 64, "gaps_kernel": 96, "com_hull_kernel": 160}
CEILINGS |= {"choose_kernel": 128, "explore_kernel": 192, "planes_kernel": 96}
CEILINGS |= {"step_kernel": 152, "reset_kernel": 64, "judge_kernel": 64}
CEILINGS |= {"decide_kernel": 168, "finish_kernel": 144, "item_maps_kernel": 64}
"""Registers of a thread, at most."""
OWNS_A_ROW = ("decide_kernel", "finish_kernel")
"""Kernels of several warps, which exchange sums; a call of a division may use the stack."""
DIVISIONS = {"triton_code": set(), "triton_step": {"div.rn.f64"}}
DIVISIONS |= {"triton_heights": {"div.rn.f64", "div.rn.f32"}}
"""Those that are rounded as the rules'."""

pytestmark = [
    needs_triton,
    compiles,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize(
    ("module", "architecture", "every"),
    [
        *((module, 90, False) for module in MODULES),
        *(
            pytest.param(module, architecture, True, marks=pytest.mark.slow)
            for module in MODULES
            for architecture in (80, 90)
        ),
    ],
)
def test_machine_code(
    module: str, architecture: int, every: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No spills, few registers, no multiply-add, no denormal differences that become 0."""
    import triton_code
    import triton_versions

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    listed = importlib.import_module(module)
    lattices = triton_code.LATTICES[-3 if every else -1 :]
    variants = listed.variants(*([lattices] if listed is triton_code else []))
    for variant in variants if every else triton_versions.first_and_last(variants):
        kernel = variant.kernel.__name__
        row = kernel in OWNS_A_ROW
        code = triton_code.compiled(variant, architecture, listing=row)
        assert code.local_bytes <= 8 * row, f"{variant.name} spills"
        assert not [t for _, t in code.instructions if "LDL" in t or "STL" in t], variant.name
        most = 1024 * (row and architecture == 90)
        assert code.shared_bytes <= most, f"{variant.name} moves values between threads"
        assert code.registers <= CEILINGS[kernel], variant.name
        assert not re.search(r"fma\.rn\.f(32|64)", code.ptx), variant.name
        rounded = {"div.rn.f32"} if kernel == "planes_kernel" else DIVISIONS[module]
        assert set(re.findall(r"\bdiv\.\w+\.f\d+", code.ptx)) <= rounded, variant.name
        assert ".ftz" not in code.ptx, variant.name
