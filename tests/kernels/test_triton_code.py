"""Machine code of the Triton kernels, made without a GPU: what the interpreter cannot show.

The kernels are compiled by the tools that Triton brings along: in every run the first and the last
choice of constants for one chip and the reference lattice, on request all choices for two chips and
three lattices.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.engine.engines import compiles, needs_triton

CEILINGS = {"ground_kernel": 80, "blocks_kernel": 64, "gaps_kernel": 96, "com_hull_kernel": 160}
CEILINGS |= {"choose_kernel": 128, "explore_kernel": 192, "planes_kernel": 96}
"""Registers of a thread, at most."""

pytestmark = [
    needs_triton,
    compiles,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.mark.parametrize(
    ("architecture", "lattices"),
    [(90, 1), *(pytest.param(chip, 3, marks=pytest.mark.slow) for chip in (80, 90))],
)
def test_machine_code(
    architecture: int, lattices: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No spills, few registers, no multiply-add, no denormal differences that become 0."""
    import triton_code
    import triton_versions

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    names = set()
    chosen = triton_versions.first_and_last if lattices == 1 else list
    for variant in chosen(triton_code.variants(triton_code.LATTICES[-lattices:])):
        code = triton_code.compiled(variant, architecture, listing=False)
        names.add(variant.kernel.__name__)
        assert code.local_bytes == 0, f"{variant.name} spills"
        assert code.shared_bytes == 0, f"{variant.name} moves values between threads"
        assert code.registers <= CEILINGS[variant.kernel.__name__], variant.name
        assert not re.search(r"fma\.rn\.f(32|64)", code.ptx), variant.name
        rounded = {"div.rn.f32"} if variant.kernel.__name__ == "planes_kernel" else set()
        assert set(re.findall(r"\bdiv\.\w+\.f\d+", code.ptx)) <= rounded, variant.name
        assert ".ftz" not in code.ptx, variant.name
    assert names == set(CEILINGS)
