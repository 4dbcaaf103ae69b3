"""The training loop: its clock, what it logs, and that it reads nothing between logs."""

import copy
import csv
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from tests.agents.conftest import FakeAgent, FakeReplay
from tests.agents.loggers.test_logging import Slow
from tests.agents.training.test_resume import differing
from tests.counting import CallSites

from agents.algorithms.base import Agent
from agents.algorithms.dqn import DQN
from agents.loggers.logging import CSVLogger, NullLogger
from agents.loggers.meter import Meter
from agents.loggers.telemetry import QueuedLogger
from agents.networks import ScoreMaps
from agents.replay import DeviceReplay
from agents.training.rollout import DeviceCollector
from agents.training.trainer import NonFiniteError, Trainer
from packing_env import PackingEnv
from packing_env.types import ParameterError

Make = Callable[..., PackingEnv]


def trainer_of(env: PackingEnv, agent: FakeAgent | None = None, **options: object) -> Trainer:
    agent = agent or FakeAgent(env)
    assert isinstance(agent, Agent)
    options = {"frames": 48, "warmup": 8, "update_every": 8, "log_every": 16, **options}
    return Trainer(agent, DeviceCollector(env, agent.policy), FakeReplay(), **options)


def test_frames_are_the_clock(tiny: Make, tmp_path: Path) -> None:
    trainer = trainer_of(tiny(4))
    saved, evaluated = [], []
    trainer.every.update(save=20, evaluate=16)
    finished = trainer.run(
        CSVLogger(tmp_path),
        save=lambda: saved.append(trainer.frames),
        evaluate=lambda: evaluated.append(trainer.frames) or {"held_out/utilization": 0.5},
    )
    assert finished
    assert trainer.frames == 48
    assert trainer.agent.frames == list(range(0, 48, 4))
    assert trainer.updates == trainer.agent.updates == 5  # (48 - 8) / 8
    assert saved == [20, 40]
    assert evaluated == [16, 32, 48]
    rows = list(csv.DictReader((tmp_path / "metrics.csv").read_text().splitlines()))
    assert [int(row["frames"]) for row in rows] == [16, 32, 48]
    assert all(math.isfinite(float(row["loss"])) for row in rows)
    assert {"return", "utilization", "q", "frames_per_second", "held_out/utilization"} <= set(
        rows[0]
    )


def test_logged_episodes_are_those_that_finished(tiny: Make, tmp_path: Path) -> None:
    trainer = trainer_of(tiny(4), frames=64, log_every=64)
    trainer.run(CSVLogger(tmp_path))
    transitions = torch.stack(trainer.replay.transitions)
    done = transitions["next", "done"]
    values = transitions["next", "metrics", "utilization"][done]
    assert trainer.last["episodes"] == int(done.sum())
    assert trainer.last["utilization"] == pytest.approx(values.mean().item())
    # the reward is the gain in utilization
    assert trainer.last["return"] == pytest.approx(trainer.last["utilization"], rel=1e-5)


def real_trainer(env: PackingEnv) -> Trainer:
    """Return a trainer of real parts after some steps and updates."""
    agent = DQN(env, network=partial(ScoreMaps, channels=8, precision="fp32"), batch_size=8)
    trainer = Trainer(
        agent,
        DeviceCollector(env, agent.policy),
        DeviceReplay(env, 64, n_steps=agent.n_steps, gamma=agent.gamma),
        frames=10_000,
        warmup=16,
        update_every=8,
        log_every=10_000,
    )
    for _ in range(8):
        trainer.step()
    assert trainer.updates
    return trainer


def test_reads_grow_with_the_logs_alone(tiny: Make, tmp_path: Path) -> None:
    """A log reads all metrics at once, and one flag of skipped updates."""
    trainer, reads = real_trainer(tiny(4)), []
    trainer.every["log"] = 16
    for intervals in (1, 2, 3):  # the first run also logs what was due
        trainer.total = trainer.frames + 16 * intervals
        with CallSites() as sites:
            trainer.run(NullLogger(tmp_path))
        assert not sites.counts["copies"]
        reads.append(sites.total("reads"))
    assert reads[2] - reads[1] == 2


def test_nothing_broken_is_saved_between_two_logs(tiny: Make, tmp_path: Path) -> None:
    env = tiny(4)
    trainer = trainer_of(env, FakeAgent(env, fail_at=2), save_every=4)
    saved = []
    with pytest.raises(NonFiniteError, match="loss is nan after 20 frames"):
        trainer.run(NullLogger(tmp_path), save=lambda: saved.append(trainer.frames))
    assert saved == [4, 8, 12, 16]


@pytest.mark.parametrize(
    "returned", [None, torch.zeros(()), {"loss": 0.5}, {"los": torch.zeros(())}]
)
def test_an_update_that_returns_no_loss_is_named(
    returned: object, tiny: Make, tmp_path: Path, monkeypatch
) -> None:
    monkeypatch.setattr(FakeAgent, "update", lambda self, batch: returned)
    with pytest.raises(ParameterError, match=r"FakeAgent\.update.*'loss'"):
        trainer_of(tiny(4)).run(NullLogger(tmp_path))


def test_broken_weights_are_found_at_the_end(tiny: Make, tmp_path: Path) -> None:
    env = tiny(4)
    agent = FakeAgent(env)
    trainer = trainer_of(env, agent)

    def stop() -> bool:  # after the last update, whose loss was a number
        with torch.no_grad():
            agent.policy.network.weight[3] = torch.inf
        return True

    with pytest.raises(NonFiniteError, match="weights are NaN or infinite after 4 frames"):
        trainer.run(NullLogger(tmp_path), should_stop=stop)


def test_a_meter_counts_several_at_once_as_one_by_one() -> None:
    together, apart = Meter(), Meter()
    stream = torch.Generator().manual_seed(0)
    for step in range(200):  # more than wait to be summed
        values = {name: torch.randn(4, 1, generator=stream) for name in "ab"}
        values["b"][0] = torch.nan
        where = torch.tensor([[False], [True], [step % 3 == 0], [False]])
        always = {"c": where, "d": torch.arange(4)[:, None] + 2**30 * step}
        together.add_all(values, where, everywhere=always)
        for name, value in values.items():
            apart.add(name, value, where)
        for name, value in always.items():
            apart.add(name, value)
        if step % 30 == 0:  # looking changes nothing, nor does going on from what was saved
            assert together.peek() == pytest.approx(apart.peek(), rel=1e-12, nan_ok=True)
            saved = copy.deepcopy(together.state_dict())
            together = Meter()
            together.load_state_dict(saved)
        if step == 100:  # values of other shapes, and fewer of them
            for meter in (together, apart):
                meter.add_all({"a": torch.ones(()), "e": torch.ones(3)}, torch.tensor(True))
    found = together.read()
    assert list(found) == ["a", "b", "c", "d", "e"]
    assert found == pytest.approx(apart.read(), rel=1e-12)
    assert found["d"] == 1.5 + 2**30 * 99.5
    assert together.peek() == {}


def test_updates_per_frame_do_not_depend_on_the_rows(tiny: Make) -> None:
    """Updates and schedules depend on frames, not on the number of steps."""
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


def test_what_listens_changes_nothing(tiny: Make, tmp_path: Path) -> None:
    """No logger, a fast one and a slow one leave the same weights, replay and episodes."""
    quick, slow = Slow(), Slow(seconds=0.01)
    states = []
    for logger in (NullLogger(tmp_path), quick, QueuedLogger(lambda: slow, size=2)):
        torch.manual_seed(0)
        trainer = real_trainer(tiny(4))
        trainer.every["log"], trainer.total = 16, 84
        trainer.run(logger)
        logger.close()
        states.append(copy.deepcopy(trainer.state_dict()))
    for state in states[1:]:
        assert differing(states[0], state) == []
    assert [frames for frames, _ in quick.rows] == list(range(36, 85, 16))
    assert all(isinstance(value, (int, float)) for _, row in quick.rows for value in row.values())
    assert len(slow.rows) <= len(quick.rows)  # what it could not take is dropped and counted
