"""Promises to users that no other file is about."""

from __future__ import annotations

import hashlib
import inspect
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from tests.agents.training.test_trainer import real_trainer, trainer_of

from agents import PolicyWrapper
from agents.cli import main as cli
from agents.config.compose import compose
from agents.loggers.logging import NullLogger
from agents.loggers.telemetry import QueuedLogger
from packing_env import PackingEnv

Make = Callable[..., PackingEnv]

# ---------------------------------------------------------------------- the wrapper's interface

INTERFACE = {
    "__init__": "self network epsilon=None score=None autocast=None action_key='action' "
    "mask_key='action_mask' value_key='action_value' chosen_key='chosen_action_value' "
    "action_spec=None",
    "set_frames": "self frames",
    "action_values": "self tensordict",
    "forward": "self tensordict",
}
"""What programs call; a change here breaks them."""
BUFFERS = {"epsilon", "epsilon_start", "epsilon_end"}


@pytest.mark.parametrize("method", INTERFACE)
def test_the_wrappers_interface_stays(method: str) -> None:
    parameters = inspect.signature(getattr(PolicyWrapper, method)).parameters.values()
    words = [p.name if p.default is p.empty else f"{p.name}={p.default!r}" for p in parameters]
    assert " ".join(words) == INTERFACE[method]
    assert [p.name for p in parameters if p.kind is not p.KEYWORD_ONLY] == [
        word for word in INTERFACE[method].split() if "=" not in word
    ]


def test_the_wrapper_reads_writes_and_holds_what_it_says(tiny: Make) -> None:
    policy = real_trainer(tiny(4)).agent.policy
    assert "action_mask" in policy.in_keys
    assert policy.out_keys == ["action", "chosen_action_value"]
    assert {name for name, _ in policy.named_buffers(recurse=False)} == BUFFERS
    assert set(policy.state_dict()) >= BUFFERS
    assert list(policy.parameters())  # its networks are its own


# ---------------------------------------------------------------------- clocks


def test_updates_per_frame_do_not_depend_on_the_rows(tiny: Make) -> None:
    """Nor does how far a schedule is: frames are the clock, not calls."""
    found = set()
    for rows in (2, 8, 32):
        trainer = trainer_of(tiny(rows), frames=10_000, log_every=10_000)
        while trainer.frames < 64:
            trainer.step()
        before = trainer.updates
        while trainer.frames < 128:
            trainer.step()
        trainer.step()  # schedules move at the beginning of a step
        assert trainer.agent.frames[-1] == 128
        found.add((trainer.updates - before - rows // 8, float(trainer.agent.policy.epsilon)))
    assert found == {(8, 0.0)}


# ---------------------------------------------------------------------- telemetry


class Recorder:
    """Takes its time over every row."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds
        self.rows: list[tuple[int, Mapping[str, float]]] = []

    def log(self, frames: int, values: Mapping[str, float]) -> None:
        time.sleep(self.seconds)
        self.rows.append((frames, values))

    def resume(self, frames: int) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def digest(state: object) -> str:
    """SHA-256 of every tensor of a state, by its place; but for clocks, and generators that a
    type checker draws from."""
    found = hashlib.sha256()

    def walk(value: object, place: str) -> None:
        if isinstance(value, Mapping):
            for key in sorted(value, key=str):
                if key not in ("elapsed", "logged", "python", "numpy"):
                    walk(value[key], f"{place}/{key}")
        elif isinstance(value, (list, tuple)):
            for index, inner in enumerate(value):
                walk(inner, f"{place}/{index}")
        elif isinstance(value, torch.Tensor):
            found.update(f"{place} {value.dtype} {tuple(value.shape)}".encode())
            found.update(value.contiguous().view(-1).numpy().tobytes())
        else:
            found.update(f"{place} {value!r}".encode())

    walk(state, "")
    return found.hexdigest()


def test_what_listens_changes_nothing(tiny: Make, tmp_path: Path) -> None:
    """No logger, a quick one, a slow one: the same weights, replay and episodes, bit for bit."""
    quick, slow = Recorder(), Recorder(seconds=0.01)
    found = []
    for logger in (NullLogger(tmp_path), quick, QueuedLogger(lambda: slow, size=2)):
        torch.manual_seed(0)
        trainer = real_trainer(tiny(4))
        trainer.every["log"], trainer.total = 16, 84
        trainer.run(logger)
        logger.close()
        found.append(digest(trainer.state_dict()))
    assert found[0] == found[1] == found[2]
    assert [frames for frames, _ in quick.rows] == list(range(36, 85, 16))
    assert all(isinstance(value, (int, float)) for _, row in quick.rows for value in row.values())
    assert len(slow.rows) <= len(quick.rows)  # what it could not take is dropped and counted


def test_names_are_given_in_the_log_interval_only(
    tiny: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two logs no named value is made: the meter is not asked."""
    from agents.loggers.meter import Meter

    asked = []
    peek = Meter.peek
    monkeypatch.setattr(Meter, "peek", lambda self: asked.append(1) or peek(self))
    trainer = real_trainer(tiny(4))
    for _ in range(10):
        trainer.step()
    assert not asked


# ---------------------------------------------------------------------- the fixed protocol


def test_the_seed_benchmark_is_what_it_was() -> None:
    config = compose("train", ["experiment=seed_benchmark"])
    env = config.env
    assert (env.resolution, env.cell, env.grid_step) == (200, None, 4)
    assert (env.num_items, env.num_envs, env.max_steps) == (20, 1, 10)
    assert (config.trainer.frames, config.collector.num_workers) == (10, 1)
    assert config.agent["_target_"] == "agents.algorithms.hierarchical.Hierarchical"
    assert (config.agent.stage1_frames, config.agent.epsilon_start) == (0, 0.0)  # both decide
    assert (config.trainer.warmup, config.trainer.update_every) == (10, 1)  # and learn once
    assert (config.agent.batch_size, config.network.thumbnail) == (128, 0)


def test_the_seed_benchmark_says_time_and_metrics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    coarse = ["items=example_cuboids", "env.resolution=40", "env.scales=[1.0]", f"run_dir={run}"]
    small = ["network=hrl_small", "agent.batch_size=4"]
    assert cli.main(["train", "experiment=seed_benchmark", *coarse, *small]) == 0
    said = capsys.readouterr().out
    assert "frames/s" in said
    assert "utilization" in said
    results = json.loads((run / "results.json").read_text())
    training, machine = results["training"], results["machine"]
    assert (training["frames"], training["updates"]) == (10, 1)
    assert {"loss", "manager_loss"} <= set(training["last"])
    assert training["last"]["skipped"] == 0
    assert training["elapsed"] > 0
    assert {"return", "utilization", "frames_per_second"} <= set(training["last"])
    assert training["last"]["episodes"] == 1
    played = results["policies"]["hierarchical"]["summary"]
    assert {"return", "success", "utilization", "decision_ms"} <= set(played)
    assert machine["device"] == "cpu"
    assert results["versions"]["torch"] == torch.__version__
