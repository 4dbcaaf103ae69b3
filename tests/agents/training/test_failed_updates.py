"""A broken update changes nothing and is counted; its batch is saved, and it can be repeated."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tensordict import TensorDictBase
from tests.agents.conftest import TINY_OVERRIDES, TINY_RUN, FakeAgent
from tests.agents.training.test_trainer import trainer_of
from torch import nn

from agents.algorithms.optimization import GatedAdam
from agents.cli import main as cli
from agents.loggers.logging import NullLogger
from agents.training import checkpoint
from agents.training.checkpoint import CheckpointError
from agents.training.loading import load_failed
from agents.training.rollout import DeviceCollector
from agents.training.trainer import NonFiniteError, Trainer
from packing_env import PackingEnv

Make = Callable[..., PackingEnv]
DQN = [*TINY_RUN, "trainer.frames=512"]
PPO = [
    *TINY_OVERRIDES, "agent=ppo", "agent.batch_size=4", "replay.horizon=8", "trainer.frames=512",
    "trainer.log_every=64", "curve=null",
]  # fmt: skip


def number(trainer: Trainer) -> int:
    """The number of the update whose batch would be saved."""
    reward = trainer.recent.failed()["entries"]["next/reward"]
    steps = trainer.replay.transitions
    return next(i for i, step in enumerate(steps) if step["next", "reward"] is reward)


def test_the_first_failed_update_is_recorded(tiny: Make) -> None:
    """An agent that does not skip a failed update continues until the next log, which raises."""
    env = tiny(4)
    trainer = trainer_of(env, FakeAgent(env, fail_at=2), update_every=4)
    with pytest.raises(NonFiniteError):
        trainer.run(NullLogger(Path()))
    assert trainer.updates == 3
    assert number(trainer) == 2


class Flags:
    """An agent's results, with given updates marked as skipped."""

    def __init__(self, trainer: Trainer, failed: str) -> None:
        self.update, self.failed = trainer.agent.update, iter(failed)
        self.streak = 0
        trainer.agent.update = self

    def __call__(self, batch: TensorDictBase) -> dict[str, torch.Tensor]:
        failed = next(self.failed) == "x"
        self.streak = self.streak + 1 if failed else 0
        flags = {"skipped": torch.tensor(float(failed))}
        return self.update(batch) | flags | {"skipped_in_a_row": torch.tensor(self.streak)}


@pytest.mark.parametrize(
    ("failed", "update"),
    [("........", 7), (".x.xxx..", 1), ("xx............", 13), ("xx........xxxx", 10)],
)
def test_the_first_failed_one_of_the_last_eight_is_kept(
    tiny: Make, failed: str, update: int
) -> None:
    trainer = trainer_of(tiny(4), update_every=4, frames=100, log_every=1000)
    Flags(trainer, failed)
    while trainer.updates < len(failed):
        trainer.step()
    assert number(trainer) == update + 1  # the first update is made after the second step


def failed_run(place: Path, capsys, options: list[str]) -> Path:
    """Train until it fails; return the failed checkpoint."""
    assert cli.main(["train", *options, f"run_dir={place}"]) == 1
    assert "load_failed" in capsys.readouterr().out
    (failed,) = (place / checkpoint.FOLDER).glob(f"{checkpoint.FAILED}*")
    return failed


def test_the_batch_of_a_failed_run_is_loaded(tmp_path: Path, monkeypatch, capsys) -> None:
    step = DeviceCollector.step

    def poisoned(self: DeviceCollector) -> TensorDictBase:
        transition = step(self)
        transition["next", "reward"][2, 0] = torch.nan
        return transition

    with monkeypatch.context() as patch:
        patch.setattr(DeviceCollector, "step", poisoned)
        failed = failed_run(tmp_path / "run", capsys, PPO)
    learner, batch = load_failed(failed)
    assert batch["next", "reward"].isnan().any()
    assert float(learner.update(batch)["skipped"]) == 1


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_the_failed_update_is_repeated(tmp_path: Path, monkeypatch, capsys) -> None:
    def poisoned(value: torch.Tensor, target: torch.Tensor, reduction: str) -> torch.Tensor:
        return (value - target).mul(0).sqrt()  # its gradient is NaN

    monkeypatch.setattr("agents.algorithms.dqn.functional.smooth_l1_loss", poisoned)
    agent, batch = load_failed(failed_run(tmp_path / "run", capsys, DQN))
    with (
        pytest.warns(UserWarning, match="Error detected in MulBackward0"),
        torch.autograd.detect_anomaly(check_nan=True),
        pytest.raises(RuntimeError, match="MulBackward0"),
    ):
        agent.update(batch)
    with pytest.raises(CheckpointError, match="no failed update"):
        load_failed(checkpoint.save(tmp_path / "other", 1, {}, {}))


def make(value: float = 1.0) -> tuple[nn.Parameter, GatedAdam]:
    weight = nn.Parameter(torch.full((3,), value))
    return weight, GatedAdam([weight], lr=0.1)


def test_an_infinite_loss_changes_nothing() -> None:
    """Tests of all agents break updates with NaN."""
    weight, gate = make()
    gate.step(weight.square().sum())
    before = weight.detach().clone()
    found = gate.step(weight.square().sum() * torch.inf)
    assert torch.equal(weight, before)
    assert (found["skipped"], found["skipped_in_a_row"], found["grad_norm"]) == (1, 1, 0)
    assert gate.skipped == 1


def test_a_step_that_is_not_wanted_is_not_a_broken_one() -> None:
    weight, gate = make()
    gate.step(weight.square().sum())
    before = weight.detach().clone()
    found = gate.step(weight.square().sum(), where=torch.tensor(False))
    assert torch.equal(weight, before)
    assert (found["skipped"], gate.skipped) == (0, 0)
    gate.step(weight.square().sum(), where=torch.tensor(True))
    assert not torch.equal(weight, before)


def test_good_steps_are_those_of_adam() -> None:
    weight, gate = make(2.0)
    other = nn.Parameter(weight.detach().clone())
    plain = torch.optim.Adam([other], lr=0.1)
    for _ in range(5):
        gate.step(weight.pow(4).sum())
        plain.zero_grad()
        other.pow(4).sum().backward()
        nn.utils.clip_grad_norm_([other], 10.0)
        plain.step()
    torch.testing.assert_close(weight, other)


def test_a_saved_gate_continues() -> None:
    (weight, gate), (other, loaded) = make(), make()
    gate.step(weight.square().sum())
    gate.step(weight.square().sum() * torch.nan)
    loaded.load_state_dict(gate.state_dict())
    other.data.copy_(weight.data)
    assert loaded.skipped == 1
    assert loaded.step(other.square().sum() * torch.nan)["skipped_in_a_row"] == 2
    gate.step(weight.square().sum())
    loaded.step(other.square().sum())
    assert torch.equal(weight, other)


def broken_at(tiny: Callable[..., PackingEnv], updates: set[int]) -> Trainer:
    """A trainer of 16 updates, four in a log interval."""
    trainer = trainer_of(tiny(4), frames=64, warmup=4, update_every=4)
    Flags(trainer, "".join("x" if number in updates else "." for number in range(1, 17)))
    return trainer


def test_two_broken_updates_in_a_row_are_survived(tiny, tmp_path) -> None:
    trainer = broken_at(tiny, {3, 4, 6, 14, 15})
    trainer.run(NullLogger(tmp_path))
    assert trainer.frames == 64
    assert trainer.last["skipped"] == pytest.approx(0.5)


def test_three_in_a_row_stop_training(tiny, tmp_path) -> None:
    with pytest.raises(NonFiniteError, match="3 updates in a row were not finite after 32 frames"):
        broken_at(tiny, {4, 5, 6}).run(NullLogger(tmp_path))
