"""The finiteness gate: a broken step changes nothing, and is counted."""

from collections.abc import Callable

import pytest
import torch
from tests.agents.training.test_recent import Flags
from tests.agents.training.test_trainer import trainer_of
from torch import nn

from agents.algorithms.optimization import GatedAdam
from agents.loggers.logging import NullLogger
from agents.training.trainer import NonFiniteError, Trainer
from packing_env import PackingEnv


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
