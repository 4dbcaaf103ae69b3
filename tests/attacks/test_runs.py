"""Runs that were killed, started twice, or lose their disk or their folder."""

import csv
import errno
import json
import multiprocessing
import shutil
import signal
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import pytest
from benchmarks.attacks import rehash
from tests.agents.training.test_resume import RUN, train

from agents.loggers.logging import CSVLogger
from agents.training import checkpoint
from agents.training.runs import RunFolderError, locked, new_folder

SHORT = [*RUN, "trainer.frames=200"]


def killed_before_its_first_save(folder: Path) -> Path:
    """Leave a run's description, the lines of its log, and a half-written checkpoint."""
    shutil.rmtree(folder / "checkpoints")
    (folder / "results.json").unlink()
    (folder / "checkpoints" / ".draft-000000000064").mkdir(parents=True)
    return folder


def test_auto_starts_anew_where_nothing_was_saved(run: Path, capsys: Any) -> None:
    killed_before_its_first_save(run)
    assert train(*SHORT, f"run_dir={run}", "resume=auto") == 0
    assert "no checkpoint was found, so training starts from nothing" in capsys.readouterr().out
    assert checkpoint.load(run).meta["frames"] == 200
    with (run / "metrics.csv").open() as file:
        assert [row["frames"] for row in csv.DictReader(file)] == ["64", "128", "192", "200"]
    assert not list((run / "checkpoints").glob(".draft-*"))


def test_auto_starts_where_a_run_was_killed_at_once(tmp_path: Path) -> None:
    for name in ("run.lock", ".run.json.0a1b"):
        (tmp_path / name).touch()
    assert train(*SHORT, f"run_dir={tmp_path}", "resume=auto") == 0


def test_auto_overwrites_nothing_else(run: Path, tmp_path: Path, capsys: Any) -> None:
    """It keeps a run that saved, even a damaged one, an evaluation, and a folder of other files."""
    (checkpoint.find(run) / checkpoint.TENSORS).write_bytes(b"cut off")
    other = tmp_path / "other"
    other.mkdir()
    (other / "thesis.txt").touch()
    evaluation = tmp_path / "evaluation"
    evaluation.mkdir()
    (evaluation / "run.json").write_text(json.dumps({"command": ["packing", "eval"]}))
    messages = {run: "no checkpoint of the run is intact"}
    for folder in (run, other, evaluation):
        before = sorted(folder.rglob("*"))
        assert train(*SHORT, f"run_dir={folder}", "resume=auto") == 2
        assert messages.get(folder, "is not empty") in capsys.readouterr().err
        assert sorted(folder.rglob("*")) == before
    killed = killed_before_its_first_save(run)
    assert train(*SHORT, f"run_dir={killed}") == 2
    assert "continue its run with resume=auto" in capsys.readouterr().err
    with pytest.raises(RunFolderError, match=r"name a new folder$"):  # eval and adapt cannot resume
        new_folder(killed, "eval")


def hold(run: Path, held: Event) -> None:
    with locked(run):
        held.set()
        signal.pause()


def test_a_run_is_written_by_one_process(run: Path, capsys: Any) -> None:
    before = checkpoint.load(run).meta
    fork = multiprocessing.get_context("fork")
    held = fork.Event()
    holder = fork.Process(target=hold, args=(run, held))
    holder.start()
    assert held.wait(60)
    for name in (str(run), "auto"):
        assert train(f"resume={name}", f"run_dir={run}", "trainer.frames=96") == 2
        said = " ".join(capsys.readouterr().err.split())
        assert f"is being written by process {holder.pid} on" in said
    assert checkpoint.load(run).meta == before
    holder.kill()
    holder.join()
    assert train(f"resume={run}", "trainer.frames=96") == 0  # the system let the lock go


@pytest.mark.parametrize("name", ["../outside", "a/b", "..", "a\x1b[2Jb", "a\nb"])
def test_the_name_of_a_run_is_one_of_a_folder(name: str) -> None:
    with pytest.raises(RunFolderError, match="must be plain text"):
        new_folder(None, name)


class FullDisk:
    """A full disk: writes of rows fail from the first to the last given call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, first: int, last: int) -> None:
        self.calls, wraps = 0, csv.DictWriter.writerows

        def writerows(writer: Any, rows: Any) -> None:
            self.calls += 1
            if first <= self.calls <= last:
                raise OSError(errno.ENOSPC, "No space left on device")
            wraps(writer, rows)

        monkeypatch.setattr(csv.DictWriter, "writerows", writerows)


def frames_of(folder: Path) -> list[int]:
    with (folder / "metrics.csv").open() as file:
        return [int(row["frames"]) for row in csv.DictReader(file)]


def test_a_full_disk_delays_a_line_of_the_log(
    tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    FullDisk(monkeypatch, 2, 3)
    assert train(*SHORT, f"run_dir={tmp_path}") == 0
    assert frames_of(tmp_path) == [64, 128, 192, 200]
    said = [r.getMessage() for r in caplog.records if r.name == "agents.loggers.logging"]
    assert len(said) == 1
    assert "metrics.csv cannot be written ([Errno 28]" in said[0]


def test_lines_that_are_lost_are_counted_at_the_end(
    tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    FullDisk(monkeypatch, 3, 10**9)
    assert train(*SHORT, f"run_dir={tmp_path}") == 0
    assert checkpoint.load(tmp_path).meta["frames"] == 200
    assert frames_of(tmp_path) == [64, 128]
    said = [r.getMessage() for r in caplog.records if r.name == "agents.loggers.logging"]
    assert "training continues" in said[0]
    assert said[1].startswith(f"2 of 4 lines of {tmp_path}/metrics.csv were not written")
    assert len(said) == 2


def test_a_folder_that_is_deleted_is_made_again(tmp_path: Path, monkeypatch: Any) -> None:
    run, wraps = tmp_path / "run", CSVLogger.log

    def log(logger: CSVLogger, frames: int, values: Any) -> None:
        if frames == 128:
            shutil.rmtree(run)
        wraps(logger, frames, values)

    monkeypatch.setattr(CSVLogger, "log", log)
    assert train(*SHORT, f"run_dir={run}") == 0
    assert frames_of(run) == [64, 128, 192, 200]
    assert checkpoint.load(run).meta["frames"] == 200
    assert train(f"resume={run}", "trainer.frames=264") == 0


def test_a_results_file_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: Any, capsys: Any
) -> None:
    wraps = Path.open

    def opened(path: Path, *args: Any, **options: Any) -> Any:
        if "results.json" in path.name:
            raise OSError(errno.ENOSPC, "No space left on device")
        return wraps(path, *args, **options)

    monkeypatch.setattr(Path, "open", opened)
    assert train(*SHORT, f"run_dir={tmp_path}") == 2
    assert "results.json cannot be written: [Errno 28]" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("meta", "state"), [({"frames": "many"}, {}), ({"versions": None}, {}), ({}, {"agent": 3})]
)
def test_a_checkpoint_of_something_else_is_named(
    meta: dict[str, Any], state: dict[str, Any], run: Path, capsys: Any
) -> None:
    place = checkpoint.find(run)
    made = checkpoint.load(place)
    checkpoint.write(place, made.state | state, made.meta | meta)
    rehash(place)
    assert train(f"resume={run}", "trainer.frames=96") == 2
    assert str(place) in "".join(capsys.readouterr().err.split("\n"))
