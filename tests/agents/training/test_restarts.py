"""Processes that ``torchrun`` starts again: what they continue from, and starts that fail."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.agents.conftest import TINY_OVERRIDES

from agents.cli import main as cli
from agents.training import checkpoint

RUN = [
    *TINY_OVERRIDES, "agent.batch_size=4", "network.channels=4", "replay.capacity=64",
    "trainer.warmup=16", "trainer.update_every=16", "curve=null", "checkpoint.keep=null",
]  # fmt: skip


def train(*arguments: str) -> int:
    return cli.main(["train", *RUN, *arguments])


def frames(run: Path) -> list[int]:
    return [int(path.name) for path in sorted((run / checkpoint.FOLDER).iterdir())]


@pytest.fixture
def _again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this process one that torchrun started again."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "1")


@pytest.mark.usefixtures("_again")
@pytest.mark.parametrize("saved", [True, False])
def test_a_run_that_began_from_another_one(saved: bool, tmp_path: Path, capsys: Any) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    assert train("trainer.frames=24", f"run_dir={old}") == 0
    first = [f"resume={old}/checkpoints/{24:012d}", f"run_dir={new}"]
    assert train("trainer.frames=48", *first) == 0
    if not saved:  # killed before its first checkpoint
        shutil.rmtree(new / checkpoint.FOLDER)
    capsys.readouterr()
    assert train("trainer.frames=72", *first) == 0
    assert f"after {48 if saved else 24} frames" in " ".join(capsys.readouterr().out.split())
    assert frames(new) == ([48, 72] if saved else [72])
    assert frames(old) == [24]


@pytest.mark.usefixtures("_again")
def test_a_job_that_may_restart_needs_a_folder_of_its_own(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    assert train() == train("resume=auto") == 2
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("--max-restarts needs run_dir=FOLDER, where the restarted") == 2
    assert train("trainer.frames=24", f"run_dir={run}") == 0
    for more in ([], [f"run_dir={run}"]):  # later checkpoints there may be of another start
        assert train(f"resume={run}/checkpoints/{24:012d}", *more) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert "continues from the newest checkpoint of a run" in said
