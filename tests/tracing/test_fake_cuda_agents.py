"""Training on CUDA tensors without values: policy, replay, loss and optimizer of every agent."""

from collections.abc import Callable

import pytest
import torch
from tests.tracing.fake_agents import do_without_a_gpu, training
from tests.tracing.fake_cuda import Launches, do_without_values, needs_compiler
from torch import Tensor
from torch._subclasses.fake_tensor import DataDependentOutputException

from agents.training.trainer import Trainer
from packing_env import kernels

pytestmark = [needs_compiler, pytest.mark.filterwarnings("ignore:Accessing the data pointer")]
CASES = ("afterstate", "hierarchical", "iqn", "ppo candidate", "rainbow", "sac")
"""One of each kind of update, but ``multi_head`` ones: their spec reads its sizes when it moves."""
NO_RULE = ("env.stability=none", "env.stability_metric=none")
"""Most operations of a step are those of a rule, which `test_fake_cuda.py` tests."""


@pytest.fixture(autouse=True)
def _without_values(guard: None, monkeypatch: pytest.MonkeyPatch) -> None:
    do_without_values(monkeypatch)
    do_without_a_gpu(monkeypatch)
    kernels.set_backend("eager")


def steps(trainer: Trainer, updates: int) -> tuple[list[Launches], list[Launches]]:
    without, with_update = [], []
    while trainer.updates < updates:
        before = trainer.updates
        with Launches() as counted:
            trainer.step()
        (with_update if trainer.updates > before else without).append(counted)
    return without, with_update


@pytest.mark.parametrize("case", CASES)
def test_training_stays_on_the_device(case: str) -> None:
    """No operation mixes devices, nothing is copied, and no value is read."""
    with training(case, *NO_RULE) as trainer:
        # Some updates of the manager are left out.
        without, with_update = steps(trainer, 3 if case == "hierarchical" else 2)
        state = trainer.agent.policy.state_dict().values()
    for counted in (*without[1:], *with_update):  # the first step makes tables of constants
        assert not counted.copies, counted.copies
    assert {value.device.type for value in state if value.dim()} == {"cuda"}
    assert with_update[-1].count > without[-1].count
    assert with_update[-1].names["aten::_fused_adam_"] > 0


def with_factor(trainer: Trainer, factor: Callable[[Tensor], object]) -> None:
    """Multiply the losses by a number that is computed in a wrong way."""
    honest = trainer.agent.loss

    def loss(batch: object) -> object:
        losses, value = honest(batch)
        return losses * factor(losses), value

    trainer.agent.loss = loss


def test_a_planted_read_and_a_planted_copy_are_found() -> None:
    with training("dqn", *NO_RULE) as trainer:
        with_factor(trainer, lambda losses: torch.ones(len(losses)).to(losses.device))
        _, with_update = steps(trainer, 1)
        assert with_update[-1].copies
        with_factor(trainer, lambda losses: float(losses.mean()))
        with pytest.raises(DataDependentOutputException):
            steps(trainer, 2)
