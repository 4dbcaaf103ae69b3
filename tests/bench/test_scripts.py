"""The scripts in ``benchmarks/``: all can be imported, and those that measure speed run small."""

import argparse
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tarfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from benchmarks import ratios
from tests.agents.conftest import TINY_OVERRIDES
from tests.conf.composed import composed
from tests.conf.test_documented_commands import FENCE, PAGES, ROOT, SCRIPT, in_blocks

from agents.config.folders import groups
from packing_env.tasks import Task
from packing_env.types import PackingParams

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
NEEDS = {
    "export_latency": "onnxruntime",
    "nest_exactness": "fcl",
    "triton_code": "triton",
    "triton_heights": "triton",
    "triton_kernels": "triton",
    "triton_pruning": "triton",
    "triton_step": "triton",
    "triton_tiles": "triton",
    "sb3_adapter": "stable_baselines3",
    "plain_ppo": "sb3_contrib",
}
"""Optional packages that scripts import at their top."""
ONCE = ["--repeats", "1"]
COMMAND = re.compile(r"(python\s+)?benchmarks/(\w+)\.py((?:\s.*)?)", re.DOTALL)
PLACEHOLDERS = {"EXPERIMENT": "learn_afterstate", "N": "1000", "S": "5"}
"""Words of the pages that stand for a name or a number."""
OPTIONS = {field.name for kind in (PackingParams, Task) for field in fields(kind)}
"""Overrides of `make_env`."""
ONE_ROW = [override for override in TINY_OVERRIDES if override != "env.num_envs=4"]


class ParsedError(Exception):
    """Raised instead of the work of a script, after its command line was read."""


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv("TRITON_INTERPRET", "0")  # a script sets it; this restores it


def run(name: str, *arguments: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", [f"benchmarks/{name}.py", *arguments, "--out", "results.json"])
        importlib.import_module(name).main()
    report: dict[str, Any] = json.loads(Path("results.json").read_text())
    assert {"command", "machine", "versions", "revision", "load_average"} <= set(report)
    return report


@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.py")))
def test_every_script_explains_itself_before_it_does_anything(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``--help`` of `convex_parts` emptied a file of the package."""
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    script = importlib.import_module(name)
    assert script.__doc__
    if "__main__" not in (FOLDER / f"{name}.py").read_text():
        return
    monkeypatch.setattr(sys, "argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit) as stopped:
        script.main()
    assert not stopped.value.code


def documented() -> list[tuple[str, str]]:
    """Return the scripts and arguments that the pages and a script of commands show."""
    texts = list(in_blocks(SCRIPT))
    for page in PAGES:
        text = FENCE.sub("", (ROOT / page).read_text(encoding="utf-8"))
        texts += [*in_blocks(page), *re.findall(r"`([^`]+)`", text)]
    commands = [match.groups() for text in texts if (match := COMMAND.fullmatch(text.strip()))]
    return sorted(
        {(name, " ".join(words.split())) for python, name, words in commands if python or words}
    )


@pytest.mark.parametrize(("script", "text"), documented())
def test_a_documented_command_line_is_read(
    script: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its options and choices exist, and so do the settings among its arguments."""
    if script in NEEDS:
        pytest.importorskip(NEEDS[script])
    for word, value in PLACEHOLDERS.items():
        text = re.sub(rf"\b{word}\b", value, text)
    options = shlex.split(text.strip("[]"), comments=True)
    monkeypatch.setattr("sys.argv", [f"benchmarks/{script}.py", *options])
    for name in ("parse_args", "parse_intermixed_args"):
        read = getattr(argparse.ArgumentParser, name)

        def stop(*arguments: Any, read: Any = read) -> None:
            raise ParsedError(read(*arguments))

        monkeypatch.setattr(argparse.ArgumentParser, name, stop)
    module = importlib.import_module(script)
    if not hasattr(module, "main"):
        assert not options
        return
    with pytest.raises(ParsedError):
        module.main()
    settings = [word for word in options if re.match(r"\w[\w.]*=", word)]
    if script == "afterstates":
        assert options[0] in groups()["experiment"]
    if script == "afterstates" and settings:
        composed("train", [f"experiment={options[0]}", *settings])
    elif script == "lookahead":
        assert {re.split("[.=]", word)[0] for word in settings} <= OPTIONS


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("interfaces", "--rows 1 --actions first_legal --repeats 1"),
        ("plain_ppo", "--task cuboid_online --seconds 0.1 --instances 2 --modes candidate"),
        ("random_steps", "--steps 1 --tasks cuboid_online"),
        ("replay_operations", "--capacity 1024 --batch-size 16 --repeats 1"),
        ("scale_model", "overlap"),
        ("soak", "--decisions 1 --tasks cuboid_online"),
    ],
)
def test_a_script_runs_small(name: str, words: str) -> None:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    assert run(name, *words.split())


def test_one_episode_by_its_parts() -> None:
    """The manager picks, the worker places, transitions are stored; a case learns from them."""
    small = ["network=hrl_small", "env.resolution=null", "env.grid_step=1", "env.num_visible=2"]
    small += ["env.max_steps=3", "trainer.frames=3", "agent.batch_size=4"]
    report = run("one_episode", *ONE_ROW, *small, *ONCE, "--learn-repeats", "1")
    acts, learns = report["acts"], report["learns"]
    parts = ("environment", "manager", "maps", "worker", "replay")
    for values in (acts, learns):
        assert values["steps"] == 3
        assert values["success"] == values["items_packed"] / 3
        seconds = [values[f"{part}_seconds"] for part in parts]
        assert min(seconds) > 0
        assert sum(seconds) < 1.01 * values["episode_seconds"]  # the rest: a reset, and this loop
    assert "update_seconds" not in acts
    assert (learns["skipped"], learns["batch_size"]) == (0, 4)
    assert 0 < learns["manager_update_seconds"] < learns["update_seconds"]
    assert 0 < learns["worker_update_seconds"] < learns["update_seconds"]


def test_the_script_for_a_gpu_runs_on_a_cpu(tmp_path: Path, python: Path) -> None:
    """All parts of the script succeed, and their files are in one archive."""
    script = [str(FOLDER / "gpu.sh"), str(tmp_path)]
    given = os.environ | {"DEVICE": "cpu", "PYTHON": str(python)}
    done = subprocess.run(script, env=given, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    with tarfile.open(tmp_path / "results.tgz") as archive:
        names = set(archive.getnames())
        content = archive.extractfile("./parts.json")
        assert content is not None
        parts = json.load(content)
    assert {part["status"] for part in parts.values()} == {0}
    for part in set(parts) - {"smoke", "tests", "train"}:
        assert f"./{part}.json" in names


def test_the_steps_of_newcomers_are_those_of_the_pages(tmp_path: Path) -> None:
    """Every step names a page that exists, and a block or a command line that can be given."""
    first_hour = importlib.import_module("first_hour")
    first_hour.write_package(tmp_path)
    assert (tmp_path / "my_pkg/linear.py").is_file()
    for step in (step for steps in first_hour.USERS.values() for step in steps):
        assert (first_hour.ROOT / step.page).is_file()
        program, flag, *_ = first_hour.words(step)
        assert program == sys.executable
        assert flag in ("-c", "-m") or Path(flag).is_file()


def test_a_ratio_that_has_fallen_is_a_warning_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    committed = tmp_path / "ratios.json"
    committed.write_text(json.dumps({"ratios": {"a": 10.0, "b": 10.0, "gone": 1.0}}))
    monkeypatch.setattr(ratios, "FILE", committed)
    monkeypatch.setattr(ratios, "measure", lambda: {"a": 5.0, "b": 9.0, "new": 1.0})
    monkeypatch.setattr("sys.argv", ["ratios.py"])
    ratios.main()
    warnings = [line for line in capsys.readouterr().out.splitlines() if "warning:" in line]
    assert warnings == [
        "warning: a: 5 x NumPy is 0.50 of 10",
        "warning: gone: only measured or only committed; run with --write",
        "warning: new: only measured or only committed; run with --write",
    ]


def test_the_committed_file_has_every_ratio() -> None:
    found = json.loads(ratios.FILE.read_text(encoding="utf-8"))["ratios"]
    assert set(found) == {*ratios.KERNELS, *ratios.STEPS}
    assert all(ratio > 1 for ratio in found.values())
