"""A package outside the repository, as its page describes it, from the command line."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.agents.conftest import TINY_OVERRIDES

ROOT = Path(__file__).resolve().parents[3]
Packing = Callable[..., tuple[int, str]]
PAGE = ROOT / "docs/how-to/own-package.md"
SMALL = [
    *TINY_OVERRIDES,
    "trainer.frames=64",
    "trainer.warmup=16",
    "trainer.update_every=16",
    "agent.batch_size=4",
    "replay.capacity=200",
    "device=cpu",
]


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write the package of the page into an empty folder, and go there."""
    text = PAGE.read_text(encoding="utf-8")
    code, network = (
        re.findall(rf"^```{kind}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)[0]
        for kind in ("python", "yaml")
    )
    (tmp_path / "my_pkg/conf/network").mkdir(parents=True)
    (tmp_path / "my_pkg/__init__.py").write_text(code)
    (tmp_path / "my_pkg/conf/network/rows.yaml").write_text(network)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def packing(python: Path) -> Packing:
    """Run a command in a process of its own: what a package registers would stay in this one."""

    def run(*arguments: str, **environment: str) -> tuple[int, str]:
        done = subprocess.run(
            [python, "-m", "agents.cli", *arguments],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **environment},
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout + done.stderr

    return run


def test_a_package_is_trained_evaluated_and_resumed(package: Path, packing: Packing) -> None:
    own = ["network=rows", "env.stability=half", "+reward.support=0.1", "run_dir=run"]
    code, output = packing("train", "--import", "my_pkg", *own, *SMALL, "logger=csv")
    assert code == 0, output
    assert "support: 0.1" in (package / "run/config.yaml").read_text()
    assert "imports:\n- my_pkg\n" in (package / "run/config.yaml").read_text()

    compared = ["evaluation.heuristics=[corner_first]", "evaluation.instances=4"]
    code, output = packing("eval", "checkpoint=run", "evaluation.instances=4")
    assert code == 2
    assert "--import my_pkg" in output
    plan = ["plan=plan.json", *compared]
    code, output = packing("eval", "checkpoint=run", *plan, PACKING_IMPORT="my_pkg")
    assert code == 0, output
    assert "corner_first" in output
    code, output = packing("check", "--import", "my_pkg", "plan.json")
    assert code == 0, output
    code, output = packing("check", "plan.json")
    assert code == 1
    assert "half" in output

    further = ["resume=run", "trainer.frames=128"]
    assert packing("train", *further)[0] == 2
    code, output = packing("train", "--import", "my_pkg", *further)
    assert code == 0, output


def test_a_generator_has_a_name(package: Path, packing: Packing) -> None:
    own = ["generator.name=even_numbers", "run_dir=run"]
    code, output = packing("train", "--import", "my_pkg", *own, *SMALL)
    assert code == 0, output


def test_a_generator_with_a_file_and_a_run_with_a_name(package: Path, packing: Packing) -> None:
    """The run names its generator; a file of the package names a class for another one."""
    (package / "my_pkg/conf/generator").mkdir()
    file = package / "my_pkg/conf/generator/even.yaml"
    file.write_text("_target_: my_pkg.EvenNumbers\n_partial_: false\n")
    code, output = packing("train", "--import", "my_pkg", "run_dir=run", *SMALL)
    assert code == 0, output
    code, output = packing("eval", "--import", "my_pkg", "checkpoint=run", "evaluation.instances=2")
    assert code == 0, output


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("missing_pkg", "there is no module 'missing_pkg'"),
        ("broken", "ZeroDivisionError"),
        ("needy", "it imports no_such_library, not found"),
    ],
)
def test_a_package_that_cannot_be_imported(
    package: Path, packing: Packing, module: str, expected: str
) -> None:
    (package / "broken.py").write_text("1 / 0\n")
    (package / "needy.py").write_text("import no_such_library\n")
    code, output = packing("items", "--import", module, *TINY_OVERRIDES)
    assert code == 2
    assert expected in output
    assert "Traceback" not in output
