"""The record of a broken update: it changes nothing, and names the first NaN or Inf."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.utils import instantiate
from tensordict import TensorDictBase
from tests.agents.algorithms.test_every_agent import small_config
from tests.agents.conftest import TINY_OVERRIDES, FakeAgent
from tests.agents.training.test_resume import differing
from tests.agents.training.test_trainer import trainer_of as fake_trainer

from agents.cli import main as cli
from agents.config.build import build_agent, build_env, build_replay
from agents.diagnostics import black_box
from agents.diagnostics.black_box import repeat
from agents.loggers.logging import NullLogger
from agents.training import checkpoint
from agents.training.rollout import DeviceCollector
from agents.training.trainer import NonFiniteError, Trainer
from packing_env import PackingEnv

Make = Callable[..., PackingEnv]


def trainer_of(name: str, *overrides: str) -> Trainer:
    """A small run."""
    torch.manual_seed(0)
    config = small_config(name, "trainer.log_every=16", *overrides)
    env = build_env(config)
    agent = build_agent(config, env)
    replay = build_replay(config, env, agent)
    collector = instantiate(config.collector)(env, agent.policy)
    return instantiate(config.trainer)(agent, collector, replay)


# ---------------------------------------------------------------------- while updates are sound


@pytest.mark.parametrize("name", ["dqn", "ppo"])
def test_recording_changes_nothing_and_a_sound_update_is_repeated_as_sound(name: str) -> None:
    trainer = trainer_of(name, "trainer.black_box=true")
    trainer.run(NullLogger(Path()))
    other = trainer_of(name, "trainer.black_box=false")
    other.run(NullLogger(Path()))
    assert trainer.updates > 1
    assert differing(trainer.state_dict(), other.state_dict()) == []

    recorded = trainer.black_box.contents()["update"]
    assert recorded["number"] == trainer.updates - 1
    assert repeat(other.agent, recorded) == ([], None)


# ---------------------------------------------------------------------- when something breaks


def test_the_first_broken_update_is_recorded(tiny: Make) -> None:
    """An agent that does not leave it out continues, and the loop stops at the log."""
    env = tiny(4)
    trainer = fake_trainer(env, FakeAgent(env, fail_at=2), update_every=4)
    with pytest.raises(NonFiniteError):
        trainer.run(NullLogger(Path()))
    assert trainer.updates == 3
    recorded = trainer.black_box.contents()["update"]
    assert recorded["number"] == 1
    assert recorded["frames"] == 8
    before = trainer.replay.transitions[2]
    assert torch.equal(recorded["batch"]["next/reward"], before["next", "reward"])


class Flags:
    """An agent's returns, with updates that are left out as told."""

    def __init__(self, trainer: Trainer, broken: str) -> None:
        self.update, self.broken = trainer.agent.update, iter(broken)
        self.streak = 0
        trainer.agent.update = self

    def __call__(self, batch: TensorDictBase) -> dict[str, torch.Tensor]:
        broken = next(self.broken) == "x"
        self.streak = self.streak + 1 if broken else 0
        told = {"skipped": torch.tensor(float(broken))}
        return self.update(batch) | told | {"skipped_in_a_row": torch.tensor(self.streak)}


@pytest.mark.parametrize(
    ("broken", "number"),
    [("........", 7), (".x.xxx..", 1), ("xx............", 13), ("xx........xxxx", 10)],
)
def test_the_first_broken_one_of_the_last_eight_is_kept(
    tiny: Make, broken: str, number: int
) -> None:
    trainer = fake_trainer(tiny(4), update_every=4, frames=100, log_every=1000)
    Flags(trainer, broken)
    while trainer.updates < len(broken):
        trainer.step()
    assert trainer.black_box.contents()["update"]["number"] == number


RUN = [
    *TINY_OVERRIDES, "agent.batch_size=4", "replay.capacity=500", "trainer.frames=512",
    "trainer.warmup=32", "trainer.update_every=16", "trainer.log_every=64", "curve=null",
]  # fmt: skip


def broken_run(place: Path, capsys: Any, *overrides: str) -> str:
    """Train until it breaks; what it said."""
    assert cli.main(["train", *RUN, *overrides, f"run_dir={place}"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert f"to diagnose it: packing inspect {place}/black_box" in said
    return said


def inspected(place: Path, capsys: Any) -> str:
    assert cli.main(["inspect", str(place)]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_a_reward_of_nan_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    step = DeviceCollector.step

    def poisoned(self: DeviceCollector) -> TensorDictBase:
        transition = step(self)
        transition["next", "reward"][2, 0] = torch.nan
        return transition

    with monkeypatch.context() as patch:
        patch.setattr(DeviceCollector, "step", poisoned)
        broken_run(tmp_path / "run", capsys)
    said = inspected(tmp_path / "run", capsys)
    assert "first non-finite tensor: batch, next/reward" in said


def test_a_loss_of_nan_is_named_with_its_operation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def poisoned(value: torch.Tensor, target: torch.Tensor, reduction: str) -> torch.Tensor:
        return (value - target).square().neg().sub(1).log()

    monkeypatch.setattr("agents.algorithms.dqn.functional.smooth_l1_loss", poisoned)
    said = broken_run(tmp_path / "run", capsys)
    assert "3 updates in a row were not finite" in said
    said = inspected(tmp_path / "run", capsys)
    assert "was repeated on its batch of 4" in said
    assert "first non-finite tensor: loss, loss" in said
    assert "hide it): aten.log.default at tests.agents.diagnostics.test_black_box:" in said


def test_it_is_no_checkpoint_and_a_checkpoint_is_none(
    tiny: Make, tmp_path: Path, capsys: Any
) -> None:
    trainer = fake_trainer(tiny(2))
    trainer.step()
    place = tmp_path / black_box.FOLDER
    checkpoint.write(place, trainer.black_box.contents(), {"error": "e"}, kind=black_box.KIND)
    with pytest.raises(checkpoint.CheckpointError, match="not a packing checkpoint"):
        checkpoint.load(place)
    other = checkpoint.save(tmp_path, 1, {}, {})
    for path, message in (
        (other, "not a packing black box"),
        (tmp_path / "checkpoints", "no black box there"),
    ):
        assert cli.main(["inspect", str(path)]) == 2
        assert message in capsys.readouterr().err
