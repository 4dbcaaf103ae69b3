"""The Triton kernels without a GPU: their choice, and their bits as interpreted.

Triton decides to interpret when it is imported, so those tests run in a process of their own:
`test_triton_interpreted.py`, and `tests/engine/test_fused_interpreted.py` of the engine `fused`.
``TRITON_INTERPRET=1 pytest tests/kernels`` puts the interpreted kernels through every test of that
folder. `test_triton_code.py` tests machine code; tests that need CUDA are in tests/gpu.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import shutil
from pathlib import Path

import pytest
import torch
from tests.commands import run_interpreted
from tests.engine.engines import TRITON, compiles, needs_triton

from packing_env import kernels
from packing_env.kernels import backends as dispatch

OLDEST_INTERPRETER = (3, 7)
"""Before, it cannot loop over a range from an argument beside NumPy 2.4."""


@pytest.fixture(autouse=True)
def _fresh_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACKING_KERNELS", raising=False)
    kernels.set_backend(None)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every package counts as installed; nothing is imported before a kernel runs."""
    monkeypatch.setattr(dispatch.importlib.util, "find_spec", lambda name: object())


@pytest.mark.usefixtures("installed")
def test_it_is_chosen_for_cuda_and_says_what_it_lacks(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "packing_env.kernels")
    assert [kernels.backend_for("cuda") for _ in range(2)] == ["triton", "triton"]
    (record,) = caplog.records
    assert record.getMessage() == (
        "kernels on cuda: triton (triton is installed; "
        "eager for all operations except choose_uniform, drop_height, com_hull, support_count)"
    )
    assert "numba" not in kernels.available_backends("cuda")


@compiles
@pytest.mark.usefixtures("installed")
def test_a_device_it_does_not_take_is_refused() -> None:
    heightmap, bottom = torch.zeros(1, 4, 4), torch.zeros(1, 1, 2, 2)
    assert "triton" not in kernels.available_backends("cpu")
    with pytest.raises(ValueError, match=r"'triton' does not run on cpu: choose from eager"):
        kernels.drop_height(heightmap, bottom, backend="triton")
    kernels.set_backend("triton")
    with pytest.raises(ValueError, match=r"'triton' does not run on cpu"):
        kernels.drop_height(heightmap, bottom)


@pytest.mark.usefixtures("installed")
def test_a_backend_that_fails_is_left_unless_it_was_requested(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = kernels.KernelError("Triton 3 cannot compile judge_kernel")
    assert kernels.backend_for("cuda") == "triton"
    with caplog.at_level(logging.WARNING, logger="packing_env.kernels"):
        kernels.give_up("cuda", error)
    assert kernels.backend_for("cuda") == "eager"
    (record,) = caplog.records
    assert str(error) in record.getMessage()
    kernels.set_backend("triton")
    with pytest.raises(kernels.KernelError, match="judge_kernel"):
        kernels.give_up("cuda", error)
    kernels.set_backend(None)
    monkeypatch.setenv("PACKING_KERNELS", "triton")
    with pytest.raises(kernels.KernelError, match="judge_kernel"):
        kernels.give_up("cuda", error)


@needs_triton
@compiles
def test_the_interpreted_kernels_in_a_process_of_their_own() -> None:
    version = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])
    if version < OLDEST_INTERPRETER:
        pytest.skip(f"the interpreter of Triton {version} does not work with this NumPy")
    folder = Path(__file__).parent
    run_interpreted(
        folder / "test_triton_interpreted.py",
        folder / "test_surfaces_by_index.py",  # its other backends run elsewhere
        folder.parent / "engine" / "test_fused_interpreted.py",
        only="triton or fused_interpreted",
    )


def test_what_this_run_requires_is_installed() -> None:
    """`make test` names Triton on Linux, so that its tests never skip unnoticed there."""
    needed = os.environ.get("PACKING_TESTS_REQUIRE", "").split()
    assert not ("triton" in needed and not TRITON), "run make install"
    assert not ("compiler" in needed and not shutil.which("c++")), "install a C++ compiler"
