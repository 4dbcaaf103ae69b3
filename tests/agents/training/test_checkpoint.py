"""Checkpoints: whole or not at all, and never a pickle."""

import contextlib
import errno
import json
import os
import pickle
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.agents.conftest import FakeAgent

from agents.training import checkpoint, resume
from agents.training.checkpoint import CheckpointError
from packing_env import PackingEnv

META = {"agent": "fake", "config": {"seed": 0}}


def state_of(env: PackingEnv) -> dict[str, Any]:
    agent = FakeAgent(env)
    agent.update(env.reset())
    return {"agent": agent.state_dict(), "counters": {"frames": 8, "elapsed": 0.5}}


@pytest.fixture
def saved(tmp_path: Path, tiny: Callable[..., PackingEnv]) -> Path:
    return checkpoint.save(tmp_path, 8, state_of(tiny(2)), META)


def test_what_was_saved_is_read(saved: Path, tmp_path: Path) -> None:
    found = checkpoint.load(tmp_path)
    assert found.path == saved
    assert found.meta == {**META, "frames": 8, "ranks": 1}
    assert found.state["counters"] == {"frames": 8, "elapsed": 0.5}
    weight = found.state["agent"]["policy"]["network.weight"]
    assert weight.dtype == torch.float32
    assert sorted(path.name for path in saved.iterdir()) == [
        "manifest.json",
        "meta.json",
        "tensors.pt",
    ]


def test_the_newest_whole_one_is_found(saved: Path, tmp_path: Path, caplog, monkeypatch) -> None:
    newer = checkpoint.save(tmp_path, 16, {"agent": {}}, META)
    assert checkpoint.find(tmp_path) == newer
    assert checkpoint.find(tmp_path / "checkpoints") == newer
    assert not caplog.messages
    (newer / "tensors.pt").write_bytes(b"")
    for _ in range(2):
        assert checkpoint.find(tmp_path) == saved
    (warning,) = caplog.messages  # nobody should believe that these are the newest weights
    assert str(newer) in warning
    assert str(saved) in warning
    caplog.clear()
    latest = checkpoint.save(tmp_path / "runs" / "new", 8, {"agent": {}}, META)
    old = checkpoint.save(tmp_path / "runs" / "old", 8, {"agent": {}}, META)
    (checkpoint.save(old.parent.parent, 16, {"agent": {}}, META) / "tensors.pt").write_bytes(b"")
    os.utime(latest / "manifest.json", (time.time() + 9,) * 2)
    monkeypatch.chdir(tmp_path)
    assert resume.find("auto", None) == latest.relative_to(tmp_path)
    assert not caplog.messages  # the damaged run is not the one to resume
    (latest / "manifest.json").unlink()
    assert resume.find("auto", "runs/new") is None
    assert resume.find("auto", None) == old.relative_to(tmp_path)
    assert len(caplog.messages) == 1
    damaged = checkpoint.save(tmp_path / "runs" / "damaged", 8, {"agent": {}}, META)
    (damaged / "tensors.pt").write_bytes(b"")
    assert resume.find("auto", None) == old.relative_to(tmp_path)
    assert "damaged" in caplog.messages[1]
    with pytest.raises(CheckpointError, match=r"truncated or altered"):
        checkpoint.load(newer)
    (saved / "tensors.pt").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"no checkpoint of the run is intact"):
        checkpoint.find(tmp_path)


class Malice:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("kind", ["torch", "pickle"])
def test_a_pickle_in_a_proper_looking_checkpoint_runs_nothing(
    saved: Path, tmp_path: Path, kind: str
) -> None:
    victim = tmp_path / "created"
    if kind == "torch":
        torch.save({"agent": Malice(victim)}, saved / "tensors.pt")
    else:
        (saved / "tensors.pt").write_bytes(pickle.dumps({"agent": Malice(victim)}))
    manifest = json.loads((saved / "manifest.json").read_text())
    manifest["files"]["tensors.pt"] = checkpoint._fingerprint(saved / "tensors.pt")
    (saved / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(CheckpointError, match="something other than tensors"):
        checkpoint.load(saved)
    assert not victim.exists()


def test_single_files_are_never_read(tmp_path: Path) -> None:
    victim, file = tmp_path / "created", tmp_path / "model.pt"
    torch.save(Malice(victim), file)
    with pytest.raises(CheckpointError, match="never read, because a pickle can run code"):
        checkpoint.load(file)
    assert not victim.exists()


def test_foreign_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no such folder"):
        checkpoint.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="no checkpoint there"):
        checkpoint.load(tmp_path)
    for content, message in (
        ("{}", "not a packing checkpoint"),
        ("[1]", "not a JSON object"),
        ("{", "not readable as JSON"),
        ('{"format": "packing checkpoint", "version": 99}', "of version 99"),
        ('{"format": "packing checkpoint", "version": 1}', "does not list"),
    ):
        (tmp_path / "manifest.json").write_text(content)
        with pytest.raises(CheckpointError, match=message):
            checkpoint.load(tmp_path)


def test_a_failed_save_leaves_the_one_before_and_says_why(saved: Path, tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=os.strerror(errno.EFBIG)):
            checkpoint.save(tmp_path, 16, {"weights": torch.zeros(10_000)}, META)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert checkpoint.find(tmp_path) == saved
    assert [path.name for path in saved.parent.iterdir()] == [saved.name]


class Crash(BaseException):
    """A power cut."""


@pytest.mark.parametrize("same_frame", [False, True])
def test_whatever_the_moment_of_a_crash_a_whole_one_is_left(
    tmp_path: Path, monkeypatch, same_frame: bool
) -> None:
    """The crash comes after each file operation in turn; the next save must then work."""
    frames = 1 if same_frame else 2
    for moment in range(1, 100):
        run = tmp_path / str(moment)
        checkpoint.save(run, 1, {"number": 1}, META)
        with monkeypatch.context() as patch:
            calls = crash_at(patch, moment)
            with contextlib.suppress(Crash):
                checkpoint.save(run, frames, {"number": 2}, META)
        found = checkpoint.load(run)
        assert found.state["number"] in (1, 2)
        if len(calls) < moment:  # it came to its end
            assert moment > 8
            assert found.state["number"] == 2
            return
        checkpoint.save(run, frames, {"number": 3}, META)
        assert checkpoint.load(run).state["number"] == 3
        assert not [path.name for path in found.path.parent.iterdir() if path.name.startswith(".")]
    pytest.fail("the save never came to its end")


def crash_at(patch: pytest.MonkeyPatch, moment: int) -> list[str]:
    calls: list[str] = []

    def counted(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            calls.append(name)
            if len(calls) == moment:
                raise Crash
            return inner(*args, **options)

        return call

    patch.setattr(torch, "save", counted("save", torch.save))
    patch.setattr(os, "fsync", counted("fsync", os.fsync))
    patch.setattr(Path, "rename", counted("rename", Path.rename))
    patch.setattr(Path, "write_text", counted("write", Path.write_text))
    return calls
