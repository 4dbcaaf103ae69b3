"""Processes that learn as one: the same parameters, the mean of the gradients, one run."""

import json
import os
import random
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from benchmarks import restarts
from benchmarks.restarts import equal
from tests.agents.conftest import TINY_OVERRIDES
from torch import nn

from agents.algorithms.optimization import GatedAdam
from agents.cli import main as cli
from agents.config.folders import ConfigError
from agents.training.checkpoint import load
from agents.training.distributed import own_device

RAISES = """
from agents.process_group import any_of, rank
from agents.training.distributed import joined

with joined("cpu", timeout=60):
    if rank() == 1:
        raise ValueError("planted in rank 1")
    any_of(False)
"""


def together(python: Path, *command: str, size: int = 2, fails: str = "") -> None:
    """Run a command in several processes, like torchrun; all succeed, or one prints a message."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    started = [
        subprocess.Popen(
            [python, *command],
            env={
                **os.environ,
                **common,
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "PYTHONPATH": str(Path(__file__).parents[3]),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(size)
    ]
    said = [process.communicate(timeout=500)[0] for process in started]
    if fails:
        assert all(process.returncode for process in started), said
        assert fails in "".join(said), said
    else:
        assert not any(process.returncode for process in started), said


def learned(python: Path, what: str, folder: Path, size: int) -> list[dict[str, Any]]:
    """Run ``learn_together.py`` in several processes; return what each found."""
    program = str(Path(__file__).with_name("learn_together.py"))
    together(python, program, what, str(folder), size=size)
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(size)]


@pytest.fixture(scope="module")
def both(python: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Return the results of two processes, which are started once."""
    return learned(python, "quick", tmp_path_factory.mktemp("quick"), 2)


def test_gradients_are_the_mean_of_the_shards(both: list[dict[str, Any]]) -> None:
    found = [each["gate"] for each in both]
    assert torch.equal(found[0]["weight"], found[1]["weight"])
    torch.manual_seed(0)
    alone = nn.Linear(3, 2)
    gate = GatedAdam(alone.parameters(), lr=0.1)
    for _ in range(3):  # the third of the four steps is broken in one process: none takes it
        gate.step(alone(torch.arange(24.0).view(8, 3)).square().mean())
    torch.testing.assert_close(found[0]["weight"], alone.weight.data)
    for each in found:
        assert each["skipped"] == 1
        assert each["agreed"] == [True, False, "", "x"]


def test_ppo_stops_at_the_same_step_in_every_process(both: list[dict[str, Any]]) -> None:
    one, other = (each["stopped"] for each in both)
    assert one["steps"] == other["steps"] < 16  # of 16: it was ended
    assert equal(one["weights"], other["weights"])


def test_every_family_learns_from_the_mean_gradient(both: list[dict[str, Any]]) -> None:
    for each in both:
        assert max(each["gradients"].values()) <= 1e-6, each["gradients"]


def test_weights_of_samples_are_those_of_one_batch(both: list[dict[str, Any]]) -> None:
    found = [each["weights"] for each in both]
    chances, weight = (torch.cat(part) for part in zip(*found, strict=True))
    torch.testing.assert_close(weight, (chances / chances.min()).pow(-0.5))


@pytest.mark.slow
def test_all_families_learn_from_the_mean_gradient(tmp_path: Path, python: Path) -> None:
    for each in learned(python, "slow", tmp_path, 4):
        assert max(each["gradients"].values()) <= 1e-6, each["gradients"]


def played(python: Path, folder: Path, *overrides: str, size: int = 2) -> list[dict[str, Any]]:
    """Train with several processes; return the state of each at the end, without clocks."""
    common = [*TINY_OVERRIDES, "agent=rainbow", "replay=prioritized", "agent.batch_size=4"]
    common += ["replay.capacity=64", "trainer.warmup=16", "trainer.update_every=8", "curve=null"]
    common += ["trainer.log_every=24", "trainer.save_every=24", "checkpoint.keep=null"]
    together(python, "-m", "agents.cli", "train", *common, *overrides, size=size)
    found = [load(folder, rank=rank).state for rank in range(size)]
    for state in found:
        del state["counters"]["elapsed"], state["waiting"]["logged"]
    return found


def test_two_processes_resume_bit_for_bit(tmp_path: Path, python: Path, capsys) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    wanted = played(python, whole, "trainer.frames=96", f"run_dir={whole}")
    assert json.loads((whole / "results.json").read_text())["training"]["frames"] == 96
    assert not list(tmp_path.glob("whole-*"))  # one folder for both
    shutil.copytree(whole, parts)  # interrupted after 48 frames: what came later is gone
    for later in ("000000000072", "000000000096"):
        shutil.rmtree(parts / "checkpoints" / later)
    found = played(python, parts, f"resume={parts}")
    assert equal(found, wanted)
    assert not equal(found[0]["replay"], found[1]["replay"])  # each has a shard of its own
    assert not equal(found[0]["random"], found[1]["random"])
    log = (parts / "metrics.csv").read_text().splitlines()
    assert [line.split(",")[0] for line in log] == ["frames", "24", "48", "72", "96"]

    assert cli.main(["train", f"resume={parts}", "trainer.frames=104"]) == 0
    assert "2 processes saved it, but 1 continue" in " ".join(capsys.readouterr().out.split())
    assert load(parts).state["counters"]["frames"] == 104


def test_a_process_that_raises_ends_all(python: Path) -> None:
    together(python, "-c", RAISES, fails="planted in rank 1")


@pytest.mark.slow
def test_a_job_with_a_killed_process_ends_as_if_undisturbed(tmp_path: Path) -> None:
    assert restarts.launch(tmp_path / "undisturbed", 2, restarts=0).wait(timeout=500) == 0
    found = restarts.trial(tmp_path / "killed", 2, random.Random(0))
    assert found["exit_code"] == 0
    assert found["frames"] == restarts.FRAMES
    assert found["lost"] <= restarts.SAVE_EVERY
    ends = [restarts.states(tmp_path / name, 2) for name in ("killed", "undisturbed")]
    assert equal(*ends)


def test_the_gpu_of_a_process(monkeypatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert own_device("cpu") is None
    with pytest.raises(ConfigError, match="device=cuda:0 puts all processes on one GPU; use dev"):
        own_device("cuda:0")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(
        ConfigError, match="process 1 of this machine has no GPU, because the machine has 1"
    ):
        own_device("cuda")
    taken: list[int] = []
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    assert own_device("cuda") == torch.device("cuda", 1)
    assert taken == [1]
    monkeypatch.delenv("LOCAL_RANK")  # a launcher such as srun
    with pytest.raises(ConfigError, match="LOCAL_RANK='' must be the number of this process"):
        own_device("cuda")
