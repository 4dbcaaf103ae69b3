"""A package outside the repository, as its pages show it, from the command line and from Python."""

import json
import os
import re
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.agents.conftest import TINY_OVERRIDES, TINY_RUN
from tests.commands import refused
from tests.examples.test_documented_python import BRACKET

from agents.cli import main as cli

ROOT = Path(__file__).resolve().parents[3]
Packing = Callable[..., str]
PAGES = [ROOT / f"docs/how-to/own-{name}.md" for name in ("package", "agent")]
FILE = re.compile(
    r"`(my_pkg/[\w/.]+)`(?:(?!```).)*```(?:python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
"""A file of the package: its name, some words, and its contents."""
FILES = {
    "my_pkg/__init__.py", "my_pkg/linear.py", "my_pkg/conf/agent/linear.yaml",
    "my_pkg/conf/generator/small_items.yaml", "my_pkg/conf/network/rows.yaml",
}  # fmt: skip
SMALL = [word for word in TINY_RUN if not word.startswith("network.")]
SMALL += ["trainer.frames=64", "device=cpu"]


@pytest.fixture
def package(tmp_path: Path, monkeypatch) -> Path:
    """Write the package of the pages into an empty folder, and go there."""
    files = dict(match for page in PAGES for match in FILE.findall(page.read_text("utf-8")))
    assert set(files) == FILES
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def run(python: Path) -> Packing:
    """Run Python in another process, because what a package registers stays in its process.

    `tests/core/test_own_rules.py` compiles rules of users, so nothing is compiled here.
    """
    always = {"PYTHONPATH": str(ROOT / "src"), "PACKING_KERNELS": "eager"}

    def ended(*arguments: str, code: int = 0, **environment: str) -> str:
        done = subprocess.run(
            [python, *arguments],
            env={**os.environ, **always, **environment},
            capture_output=True,
            text=True,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    return ended


@pytest.fixture
def packing(run: Packing) -> Packing:
    """Run a command, which must end with exit code ``code``; return its output."""
    return partial(run, "-m", "agents.cli")


def test_a_package_is_trained_evaluated_and_resumed(
    package: Path, packing: Packing, run: Packing
) -> None:
    own = ["network=rows", "generator=small_items", "env.stability=half", "+reward.support=0.1"]
    own.append("run_dir=run")
    author = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    for words in (["init", "-q"], [*author, "commit", "-q", "--allow-empty", "-m", "mine"]):
        subprocess.run(["git", *words], cwd=package, check=True)
    commit = subprocess.check_output(["git", "rev-parse", "HEAD"], cwd=package, text=True)
    packing("train", "--import", "my_pkg", *own, *SMALL, "logger=csv")
    assert "support: 0.1" in (package / "run/config.yaml").read_text()
    assert "imports:\n- my_pkg\n" in (package / "run/config.yaml").read_text()
    described = json.loads((package / "run/run.json").read_text())
    assert "--import=my_pkg" in described["command"]
    assert described["revision"] == commit.strip()

    compared = ["evaluation.heuristics=[corner_first]", "evaluation.instances=4"]
    assert "--import my_pkg" in packing("eval", "checkpoint=run", "evaluation.instances=4", code=2)
    plan = ["plan=plan.json", *compared]
    assert "corner_first" in packing("eval", "checkpoint=run", *plan, PACKING_IMPORT="my_pkg")
    packing("check", "--import", "my_pkg", "plan.json")
    refused = packing("check", "plan.json", code=1)
    assert "half" in refused
    assert "--import" in refused

    packing("train", "--import", "my_pkg", "resume=run", "trainer.frames=128")
    shown = re.findall(
        r"^```text\n(import agents\n.*?)^```", PAGES[0].read_text("utf-8"), re.M | re.S
    )
    (package / "my_parts").mkdir()
    (package / "my_parts/bracket.stl").write_text(BRACKET)
    program = shown[0].replace("seconds=1", "seconds=0.1").replace("runs/mine", "run")
    checks = """
assert plan.num_packed == 1 and plan.containers[0].stability == "half"
root = run.policy(run.env.reset())
assert type(run.policy.network).__name__ == "Rows"
assert run.env.params.stability == "half" and type(run.env.generator).__name__ == "SmallItems"
"""
    run("-c", program + checks)


def test_an_agent_is_trained_played_and_resumed(package: Path, packing: Packing) -> None:
    own = ["agent=linear", "env.action_mode=placement", "agent.lr=0.01", "run_dir=run"]
    small = [line for line in SMALL if not line.startswith("agent.")]
    packing("train", "--import", "my_pkg", *own, *small)
    packing("play", "--import", "my_pkg", "checkpoint=run")
    said = packing("export", "--import", "my_pkg", "run", "--rows", "2", "--out", "linear.pt2")
    assert "decisions equal those of the policy" in said
    assert (package / "linear.pt2").stat().st_size > 0
    packing("train", "--import", "my_pkg", "resume=run", "trainer.frames=128")


def test_a_rule_packs_parts(package: Path, packing: Packing) -> None:
    (package / "my_parts").mkdir()
    (package / "my_parts/bracket.stl").write_text(BRACKET)
    order = ["my_parts", "--container", "240x180x150mm", "--stability", "half"]
    assert "half" in packing("pack", *order, "--seconds", "0.2", code=2)
    assert "checked" in packing("pack", "--import", "my_pkg", *order, "--seconds", "0.2")


def test_a_generator_with_a_file_and_a_run_with_a_name(package: Path, packing: Packing) -> None:
    """The run names its generator; a file of the package names a class for another one."""
    file = package / "my_pkg/conf/generator/even.yaml"
    file.write_text("_target_: my_pkg.SmallItems\n_partial_: false\n")
    packing("train", "--import", "my_pkg", "run_dir=run", *SMALL)
    packing("eval", "--import", "my_pkg", "checkpoint=run", "evaluation.instances=2")


@pytest.mark.parametrize(
    "line",
    [
        "train --import my_pkg seed=1",
        "--import my_pkg train seed=1",
        "--import=my_pkg train seed=1",
    ],
)
def test_a_package_may_be_named_before_the_command(line: str) -> None:
    options = cli._read(line.split())
    assert (options.command, options.imports) == ("train", ["my_pkg"])
    assert options.overrides == ["seed=1"]


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        ("missing_pkg", "there is no module 'missing_pkg'"),
        ("broken", "ZeroDivisionError"),
        ("needy", "it imports no_such_library, which is not found"),
    ],
)
def test_a_package_that_cannot_be_imported(
    module: str, expected: str, elsewhere: Path, monkeypatch, capsys
) -> None:
    monkeypatch.syspath_prepend(elsewhere)
    monkeypatch.setenv("PACKING_IMPORT", "")
    (elsewhere / "broken.py").write_text("1 / 0\n")
    (elsewhere / "needy.py").write_text("import no_such_library\n")
    assert expected in refused(capsys, "items", "--import", module, *TINY_OVERRIDES)
