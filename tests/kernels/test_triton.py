"""The Triton kernels without a GPU: their choice, and their bits as interpreted.

Triton decides to interpret when it is imported, so those tests (`test_triton_interpreted.py`) run
in processes of their own; ``TRITON_INTERPRET=1 pytest tests/kernels`` puts the interpreted kernels
through every test there. Machine code is in `test_triton_code.py`, what needs a CUDA device in
tests/gpu.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from packing_env import kernels
from packing_env.kernels import backends as dispatch

INTERPRETING = "cpu" in (dispatch.BACKENDS["triton"].runs_on or ())
INSTALLED = importlib.util.find_spec("triton") is not None
OLDEST_INTERPRETER = (3, 7)
"""Before, it cannot loop over a range from an argument beside NumPy 2.4."""

needs_triton = pytest.mark.skipif(not INSTALLED, reason="Triton is not installed")
compiles = pytest.mark.skipif(INTERPRETING, reason="the kernels are interpreted here")


@pytest.fixture(autouse=True)
def _fresh_choice(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("PACKING_KERNELS", raising=False)
    kernels.set_backend(None)
    yield
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
        "eager for all but choose_uniform, drop_height, com_hull, support_count)"
    )
    assert "numba" not in kernels.available_backends("cuda")


def test_cuda_gets_eager_where_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatch.importlib.util, "find_spec", lambda name: None)
    caplog.set_level(logging.INFO, "packing_env.kernels")
    assert kernels.backend_for("cuda") == "eager"
    assert "eager (triton is not installed)" in caplog.text


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
@pytest.mark.parametrize("stride", [1, 3])
def test_fake_tensors_on_cuda(stride: int) -> None:
    """What a compiled graph around the operators is told of their results."""
    sizes = {"heightmap": (2, 7, 8), "bottom": (2, 5, 3, 4)}
    with FakeTensorMode():
        maps = [torch.empty(size, device="cuda") for size in sizes.values()]
        com = torch.empty(2, 5, 2, dtype=torch.int64, device="cuda")
        z = kernels.drop_height(*maps, stride, backend="triton")
        stable = kernels.com_hull(*maps, z, com, 0.1, stride, backend="triton")
        count = kernels.support_count(*maps, z, 0.1, stride, backend="triton")
    shape = kernels.layout.lattice_shape(*(torch.empty(size) for size in sizes.values()), stride)
    for value, dtype in ((z, torch.float32), (stable, torch.bool), (count, torch.int32)):
        assert (value.shape, value.dtype, value.device.type) == (shape, dtype, "cuda")


class Uncompiled:
    """A kernel whose compilation fails, as Triton's code generator does."""

    __name__ = "judge_kernel"

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def launch(*arguments: Any, **constants: Any) -> None:
            try:
                raise AttributeError("'int' object has no attribute 'type'")
            except AttributeError as error:
                raise CompilationError("at 3:4:\n    tl.zeros") from error

        return launch


class CompilationError(Exception):
    """Triton's is no RuntimeError either."""


@needs_triton
@compiles
def test_an_error_of_the_compiler_names_kernel_and_cause() -> None:
    from packing_env.kernels.compiled.scene_triton import start

    with pytest.raises(kernels.KernelError) as caught:
        start(Uncompiled(), 1, (), {})
    version = importlib.metadata.version("triton")
    for part in (version, "judge_kernel", "AttributeError", "'int' object has no attribute 'type'"):
        assert part in str(caught.value)


@needs_triton
@compiles
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a driver here")
def test_a_kernel_without_a_driver_is_a_kernel_error() -> None:
    mask, uniform = torch.ones(1, 4, dtype=torch.bool), torch.zeros(1, dtype=torch.float64)
    choose = importlib.import_module("packing_env.kernels.choice.triton").choose_uniform
    with pytest.raises(kernels.KernelError, match="choose_kernel"):
        choose(mask, uniform)


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
@pytest.mark.parametrize("only", ["not pruned", "pruned"])
def test_the_interpreted_kernels_in_a_process_of_their_own(only: str) -> None:
    version = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])
    if version < OLDEST_INTERPRETER:
        pytest.skip(f"the interpreter of Triton {version} does not work with this NumPy")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", only]
    command += ["-m", "not slow"]  # TRITON_INTERPRET=1 pytest tests/kernels has all cases
    folder = Path(__file__).parent
    files = [folder / "test_triton_interpreted.py"]
    files += [folder / "test_surfaces_by_index.py"] if only != "pruned" else []
    result = subprocess.run(
        [*command, *map(str, files)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    assert "skipped" not in result.stdout
    assert re.search(r"^\d+ passed", result.stdout.splitlines()[-1])


def test_what_this_run_requires_is_installed() -> None:
    """`make test` names Triton on Linux, so that its tests never skip unnoticed there."""
    needed = os.environ.get("PACKING_TESTS_REQUIRE", "").split()
    assert not ("triton" in needed and not INSTALLED), "run make install"
    assert not ("compiler" in needed and not shutil.which("c++")), "install a C++ compiler"
