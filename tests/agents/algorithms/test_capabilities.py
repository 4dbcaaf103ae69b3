"""Promises to users that no other file is about."""

import hashlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from tests.agents.training.test_trainer import real_trainer, trainer_of

from agents.loggers.logging import NullLogger
from agents.loggers.telemetry import QueuedLogger
from packing_env import PackingEnv

Make = Callable[..., PackingEnv]


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
