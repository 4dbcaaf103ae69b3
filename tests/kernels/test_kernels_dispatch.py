"""The choice of a backend, its log line, and the errors of wrong arguments."""

import logging
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tests.commands import run_program

from packing_env import kernels
from packing_env.kernels import backends as dispatch

HEIGHTMAP, BOTTOM = torch.zeros(2, 5, 4), torch.zeros(2, 3, 2, 2)
NUMBA = "numba" in kernels.available_backends()


@pytest.fixture(autouse=True)
def _fresh_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PACKING_KERNELS", raising=False)
    kernels.set_backend(None)


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "packing_env.kernels"]


def test_eager_is_used_where_numba_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch.importlib.util, "find_spec", lambda name: None)
    assert kernels.available_backends() == ["eager"]
    assert kernels.backend_for("cpu") == "eager"
    with pytest.raises(ValueError, match=r"needs the package 'numba'.*choose from eager"):
        kernels.drop_height(HEIGHTMAP, BOTTOM, backend="numba")


def test_set_backend_and_the_environment_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACKING_KERNELS", "eager")
    assert kernels.backend_for("cpu") == "eager"
    kernels.set_backend(None)
    monkeypatch.setenv("PACKING_KERNELS", "fortran")
    for name, call in (
        ("fortran", lambda: kernels.drop_height(HEIGHTMAP, BOTTOM)),
        ("cuda", lambda: kernels.drop_height(HEIGHTMAP, BOTTOM, backend="cuda")),
        ("cuda", lambda: kernels.set_backend("cuda")),
    ):
        with pytest.raises(ValueError, match=rf"'{name}'.*eager, numba"):
            call()
    kernels.set_backend("eager")
    assert kernels.backend_for("cpu") == "eager"


def test_operations_that_a_backend_lacks_run_eagerly(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(dispatch.BACKENDS, "empty", dispatch.Backend(runs_on=("cpu",)))
    monkeypatch.setenv("PACKING_KERNELS", "empty")
    caplog.set_level(logging.INFO, "packing_env.kernels")
    assert torch.equal(
        kernels.drop_height(HEIGHTMAP, BOTTOM)[:, :, :4, :3], torch.zeros(2, 3, 4, 3)
    )
    (message,) = messages(caplog)
    assert "empty" in message
    assert "eager for all operations" in message


def test_kernels_and_planning_do_not_import_compilers() -> None:
    """The compiler of torch takes longer to import than the whole planner."""
    code = """
import sys, packing_env.kernels
compiled = [name for name in sys.modules if name.endswith(("numba", "triton"))]
assert not [name for name in compiled if name == "numba" or "packing_env" in name]
import packing_env.planner.packer, packing_env.planner.reading.parts, packing_env.nesting.nest
assert not {"torch._dynamo", "tensordict"} & set(sys.modules)
"""
    run_program(code)


@pytest.mark.skipif(not NUMBA, reason="numba is not installed")
@pytest.mark.skipif(sys.platform != "linux", reason="fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
@pytest.mark.parametrize(
    "call",
    [
        "kernels.drop_height(heights, bottom, backend='numba')",
        "load_boxes((400, 400, 400), [BoxType([(20, 20, 20)], 4000)], rules=LoadRules('com_hull'))",
    ],
    ids=["maps", "a load"],
)
def test_kernels_survive_a_fork(python: Path, call: str) -> None:
    code = f"""
import os, torch
from packing_env import kernels
from packing_env.plan import BoxType, LoadRules, load_boxes
torch.set_num_threads(2)
heights, bottom = torch.ones(8, 40, 40), torch.ones(8, 24, 8, 8)
def call():
    return str({call})
before = call()
child = os.fork()
if child == 0:
    os._exit(call() != before)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    subprocess.run([python, "-c", code], check=True, timeout=300)


SURFACES = {
    "heightmap": HEIGHTMAP,
    "bottom": BOTTOM[0],
    "which": torch.zeros(2, 1, dtype=torch.int64),
    "size": torch.full((3, 2), 2),
    "stride": 2,
}


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("stride", 0, ValueError),
        ("heightmap", HEIGHTMAP[0], ValueError),
        ("heightmap", HEIGHTMAP.double(), TypeError),
        ("bottom", BOTTOM, ValueError),
        ("which", SURFACES["which"].int(), TypeError),
        ("which", SURFACES["which"][:1], ValueError),
        ("size", SURFACES["size"][1:], ValueError),
    ],
)
def test_the_wrong_argument_is_named(name: str, value: object, error: type[Exception]) -> None:
    with pytest.raises(error, match=rf"\b{name} (should|is|\[B, R)"):
        kernels.drop_height(**{**SURFACES, name: value})
