"""Fused kernels of decisions without a GPU: where they serve, their bits, their machine code."""

from __future__ import annotations

import importlib
import importlib.util
import logging
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from agents.networks import fused
from agents.networks.readouts.noisy import NoisyLinear
from packing_env.kernels import backends as dispatch

INTERPRETING = "cpu" in (dispatch.BACKENDS["triton"].runs_on or ())
MOST_REGISTERS = {"stack_kernel": 64, "stem_kernel": 48, "residual_kernel": 48}
MOST_REGISTERS |= {"token_kernel": 64, "values_kernel": 80, "summary_kernel": 64, "draw_kernel": 96}
"""Registers of a thread."""

needs_triton = pytest.mark.skipif(
    not importlib.util.find_spec("triton"), reason="Triton is not installed"
)
compiles = pytest.mark.skipif(INTERPRETING, reason="the kernels are interpreted here")
CPU = torch.device("cpu")


@pytest.fixture
def by_triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton counts as the backend of every device."""
    monkeypatch.setattr(fused, "resolve", lambda name, device_type: "triton")
    fused._refuse.cache_clear()


@pytest.mark.usefixtures("by_triton")
@pytest.mark.parametrize(
    ("layer", "reason"),
    [(NoisyLinear(2, 3), "a NoisyLinear"), (nn.Linear(2, 129), "more than 128 channels")],
)
def test_what_they_do_not_take_is_logged_once(
    layer: nn.Module, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "agents.networks")
    assert not fused.serves(CPU, [layer])  # with gradients, which nothing is said about
    with torch.no_grad():
        assert fused.serves(CPU, [nn.Conv2d(2, 128, 3), nn.ReLU()])
        assert not any(fused.serves(CPU, [layer]) for _ in range(3))
    (record,) = caplog.records
    assert reason in record.getMessage()


@needs_triton
@compiles
def test_the_interpreted_kernels_in_a_process_of_their_own() -> None:
    file = Path(__file__).with_name("test_fused_decisions_interpreted.py")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    assert re.search(r"^\d+ passed", result.stdout.splitlines()[-1]), result.stdout


@needs_triton
@compiles
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("architecture", "whole"),
    [(90, False), *(pytest.param(chip, True, marks=pytest.mark.slow) for chip in (80, 90))],
)
def test_machine_code(
    architecture: int, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No spills, few registers, products rounded before sums."""
    monkeypatch.syspath_prepend(Path(__file__).parents[3] / "benchmarks")
    names = ("triton_code", "triton_fused", "triton_versions")
    triton_code, listed, versions = map(importlib.import_module, names)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    names = set()
    for variant in (list if whole else versions.first_and_last)(listed.variants()):
        code, kernel = triton_code.compiled(variant, architecture), variant.kernel.__name__
        names.add(kernel)
        assert not [t for _, t in code.instructions if "LDL" in t or "STL" in t], variant.name
        assert code.registers <= MOST_REGISTERS[kernel], variant.name
        assert not re.search(r"fma\.rn\.f(32|64)", code.ptx), variant.name
    assert names == set(MOST_REGISTERS)
