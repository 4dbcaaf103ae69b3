"""The Triton kernels without a GPU: their choice, their compilation, and their bits as interpreted.

Triton decides to interpret when it is imported, so those tests run in a process of their own;
``TRITON_INTERPRET=1 pytest tests/kernels`` puts the interpreted kernels through every test there.
What needs a CUDA device is in tests/gpu.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.kernels.test_kernels_fuzz import random_bottom, random_com
from torch._subclasses.fake_tensor import FakeTensorMode

from packing_env import kernels
from packing_env.kernels import backends as dispatch

NUM_CASES = 50
CASES_PER_TEST = 10
INTERPRETING = "cpu" in (dispatch.BACKENDS["triton"].runs_on or ())
INSTALLED = importlib.util.find_spec("triton") is not None
OLDEST_INTERPRETER = (3, 7)
"""Before, it cannot loop over a range from an argument beside NumPy 2.4."""

needs_triton = pytest.mark.skipif(not INSTALLED, reason="Triton is not installed")
compiles = pytest.mark.skipif(INTERPRETING, reason="the kernels are interpreted here")
interpreted = pytest.mark.skipif(
    not (INSTALLED and INTERPRETING), reason="needs Triton and TRITON_INTERPRET=1"
)


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
        "eager for all but drop_height, com_hull, support_count)"
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


@needs_triton
@compiles
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("module", "kernel", "constants"),
    [
        ("compiled.triton", "gaps_kernel", {"GROUP": 4, "COUNT": False}),
        ("compiled.triton", "gaps_kernel", {"GROUP": 4, "COUNT": True}),
        ("support.hull_triton", "com_hull_kernel", {"GROUP": 1, "CENTRES": False}),
        ("support.hull_triton", "com_hull_kernel", {"GROUP": 1, "CENTRES": True}),
    ],
)
def test_machine_code_is_made_without_a_gpu(
    module: str,
    kernel: str,
    constants: dict[str, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Triton compiles for a named chip: what it cannot translate the interpreter may let pass."""
    from triton import compile as compile_kernel
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    function = getattr(importlib.import_module(f"packing_env.kernels.{module}"), kernel)
    compiled_in = {"STRIDE": 4, "POINTS": 256, **constants}
    pointers = dict.fromkeys(("phases", "bottom", "z"), "*fp32")
    pointers |= {"com": "*i64", "count": "*i32", "stable": "*u8", "contact_tol": "fp32"}
    types = {name: pointers.get(name, "i32") for name in function.arg_names}
    types |= dict.fromkeys(compiled_in, "constexpr")
    source = ASTSource(function, types, constexprs=compiled_in)
    made = compile_kernel(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2})
    assert ".ftz" not in made.asm["ptx"], "denormal differences would become 0"
    assert made.asm["cubin"]


@needs_triton
@compiles
def test_the_interpreted_kernels_in_a_process_of_their_own() -> None:
    version = tuple(int(part) for part in importlib.metadata.version("triton").split(".")[:2])
    if version < OLDEST_INTERPRETER:
        pytest.skip(f"the interpreter of Triton {version} does not work with this NumPy")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "interpreter"]
    result = subprocess.run(
        [*command, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    assert f"{NUM_CASES // CASES_PER_TEST} passed" in result.stdout


def random_inputs(seed: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Containers and windows of up to 24 x 24 cells; footprints with holes, often much smaller."""
    rng = np.random.default_rng(seed)
    batch, orientations = 1 + (seed % 5 == 0), int(rng.integers(1, 4)) + 2 * (seed % 10 == 0)
    length, width, *window = (int(n) for n in rng.integers(1, 25, 4))
    quantised = seed % 3 != 0
    shape = (batch, length, width)
    heightmap = rng.integers(0, 4, shape) * 0.01 if quantised else rng.random(shape)
    rows = [
        [random_bottom(rng, tuple(window), quantised) for _ in range(orientations)]
        for _ in range(batch)
    ]
    com = np.stack([np.stack([random_com(rng, bottom) for bottom in row]) for row in rows])
    bottoms = np.stack([np.stack(row) for row in rows])
    return (
        torch.from_numpy(heightmap.astype(np.float32)),
        torch.from_numpy(bottoms),
        torch.from_numpy(com),
    )


def results(
    backend: str, maps: list[torch.Tensor], com: torch.Tensor, seed: int
) -> list[torch.Tensor]:
    stride, tolerance = 1 + seed % 5, (0.0, 0.01, 0.3)[seed % 3]
    z = kernels.drop_height(*maps, stride, backend=backend)
    return [
        z,
        kernels.support_count(*maps, z, tolerance, stride, backend=backend),
        kernels.com_hull(*maps, z, com, tolerance, stride, centres=seed % 2 == 1, backend=backend),
    ]


@interpreted
@pytest.mark.parametrize("first", range(0, NUM_CASES, CASES_PER_TEST))
def test_interpreter_equals_eager(first: int) -> None:
    stable = unstable = 0
    for seed in range(first, first + CASES_PER_TEST):
        *maps, com = random_inputs(seed)
        expected = results("eager", maps, com, seed)
        for got, value in zip(results("triton", maps, com, seed), expected, strict=True):
            assert got.dtype == value.dtype
            assert torch.equal(got, value), f"case {seed}"
        there = expected[0].isfinite()
        stable += int(expected[2].sum())
        unstable += int((there & ~expected[2]).sum())
    assert stable > 50
    assert unstable > 50
