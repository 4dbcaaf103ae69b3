"""A recording of policy and step gives the results of policy and step at every replay.

`tests.agents.tape` stands for the CUDA graph: it replays operations on the memory that they used,
without Python code. `tests/gpu/test_capture_on_cuda.py` tests real graphs.
"""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from tests.agents.algorithms.test_every_agent import CASES, often
from tests.agents.tape import record
from tests.agents.training.test_collectors import policy, task
from tests.agents.training.test_resume import differing, trainer_of

from agents.training import capture
from agents.training.capture import CapturedCollector, CaptureError, captures
from agents.training.captured_update import CapturedUpdate, optimizers
from agents.training.rollout import DeviceCollector
from agents.training.trainer import Trainer
from agents.training.workers import device_collector
from packing_env import kernels
from packing_env.types import ParameterError


@pytest.fixture(autouse=True)
def _recorded_on_tape(monkeypatch) -> None:
    """Record torch's operations on a tape instead of a CUDA graph."""
    kernels.set_backend("eager")
    monkeypatch.setattr(capture, "cuda_graph", record)


def played(collector: DeviceCollector, count: int) -> list:
    """Return steps; the policy's schedule moves on before each."""
    torch.manual_seed(3)
    steps = []
    for number in range(count):
        collector.policy.set_frames(4 * number)
        steps.append(collector.step())
    return steps


@pytest.mark.parametrize("mode", ["placement", "candidate"])
def test_a_recording_plays_on_as_the_environment_does(mode: str) -> None:
    """The steps cross ends of episodes and draw numbers; later steps overwrite no earlier one."""
    params = {"action_mode": mode, "stability": "com_hull"}
    plain, captured = (
        kind(task(**params), policy()) for kind in (DeviceCollector, CapturedCollector)
    )
    wanted, found = played(plain, 15), played(captured, 15)
    assert sum(int(step["next", "done"].sum()) for step in wanted) > 4
    for one, other in zip(wanted, found, strict=True):
        assert not differing(one.to_dict(), other.to_dict())
    assert not differing(plain.state_dict(), captured.state_dict())


@pytest.mark.parametrize("case", often(CASES, "dqn"))
def test_training_is_the_same(case: str) -> None:
    """Under a recording, updates still change every agent's weights, and schedules its rates."""
    trainers = [trainer_of(case), trainer_of(case)]
    trainers[1].collector = CapturedCollector(trainers[1].collector.env, trainers[1].agent.policy)
    check_alike(trainers, 3)


def check_alike(trainers: list[Trainer], updates: int) -> None:
    """Train both up to a number of updates; every part of their states is equal."""
    for trainer in trainers:
        torch.manual_seed(7 + updates)
        train(trainer, updates)
    one, other = (trainer.state_dict() for trainer in trainers)
    for part in ("agent", "replay", "collector"):
        assert differing(one[part], other[part]) == []


def plain_and_recorded(case: str, *overrides: str) -> list[Trainer]:
    """Return a trainer as usual, and one whose updates are recorded."""
    trainers = [trainer_of(case, *overrides) for _ in range(2)]
    for optimizer in optimizers(trainers[0].agent):
        optimizer.keep_lr_in_memory()
    trainers[1].captured = CapturedUpdate(trainers[1].agent)
    return trainers


UPDATING = [case for case in CASES if not case.startswith(("ppo", "hierarchical", "afterstate"))]
PRIORITIES = ["replay=prioritized", "agent.lr_frames=3000"]
KINDS = {
    "ppo": ["agent.lr_frames=3000", "agent.epochs=2"],
    "ppo multi_head": [],
    "afterstate": [],
    "hierarchical": [
        "agent.stage1_frames=400", "agent.manager_every=2", "network.encoder_stages=1",
    ],
}  # fmt: skip
"""Updates of many gradient steps, and of several kinds: the manager learns in some."""
RECORDED = {**dict.fromkeys(UPDATING, PRIORITIES), **KINDS}


@pytest.mark.parametrize("case", often(RECORDED, "rainbow", "ppo", "hierarchical"))
def test_recorded_updates_are_the_agents_own(case: str) -> None:
    """The learning rate falls, samples have priorities, and a state is loaded between updates."""
    trainers = plain_and_recorded(case, "trainer.frames=4000", *RECORDED[case])
    updates = 12 if case == "hierarchical" else 5
    check_alike(trainers, updates)
    recordings = trainers[1].captured._recordings
    kinds = {(1, False), (2, False), (2, True)} if case == "hierarchical" else {None}
    assert set(recordings) == kinds
    assert all(recording.captured is not None for recording in recordings.values())
    trainers[1].load_state_dict(copy.deepcopy(trainers[0].state_dict()))
    check_alike(trainers, updates + 5)


def train(trainer: Trainer, updates: int) -> None:
    while trainer.updates < updates:
        trainer.step()


def test_an_update_that_is_recorded_wrongly_is_refused(monkeypatch) -> None:
    """The refusal leaves the agent unchanged."""
    trainer = trainer_of("dqn")

    def forgetful(work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        return (lambda: None), work()

    monkeypatch.setattr(capture, "cuda_graph", forgetful)
    trainer.captured = CapturedUpdate(trainer.agent)
    torch.manual_seed(7)
    train(trainer, 2)
    before = copy.deepcopy(trainer.agent.state_dict())
    with pytest.raises(CaptureError, match=r"differs in .*state policy.*trainer\.capture=false"):
        train(trainer, 3)
    assert differing(trainer.agent.state_dict()["target"], before["target"]) == []
    assert differing(trainer.agent.state_dict()["optimizer"], before["optimizer"]) == []


class CompilationError(Exception):
    """A stand-in for Triton's error, which is no RuntimeError either."""


def test_what_need_not_be_recorded_continues_without(caplog, monkeypatch) -> None:
    trainers = [trainer_of("dqn") for _ in range(2)]

    def fails(work: Callable[[], Any]) -> tuple[Callable[[], None], Any]:
        raise CompilationError("operation not permitted")

    monkeypatch.setattr(capture, "cuda_graph", fails)
    for optimizer in optimizers(trainers[0].agent):
        optimizer.keep_lr_in_memory()
    second = trainers[1]
    second.captured = CapturedUpdate(second.agent, required=False)
    second.collector = CapturedCollector(second.collector.env, second.agent.policy, required=False)
    check_alike(trainers, 4)
    said = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    for option, line in zip(("collector", "trainer"), said, strict=True):
        assert f"{option}.capture=auto: off" in line
        assert "CompilationError" in line


def test_auto_captures_where_nothing_speaks_against_it() -> None:
    on_cpu = {"the agent is on cpu": "use device=cuda"}
    assert captures("auto", "trainer.capture", {})
    assert not captures("auto", "trainer.capture", on_cpu)
    assert type(device_collector(task(), policy())) is DeviceCollector
    with pytest.raises(ParameterError, match="the agent is on cpu; use device=cuda, or trainer"):
        captures(True, "trainer.capture", on_cpu)
    with pytest.raises(ParameterError, match=r"trainer\.capture='always' is unknown; choose auto"):
        captures("always", "trainer.capture", {})


class Counting(torch.nn.Module):
    """A policy that changes in Python, which no graph sees."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = policy(), 0

    def forward(self, tensordict):
        self.calls += 1
        return self.inner(tensordict).set("calls", torch.full((4, 1), self.calls))


class Reading(Counting):
    """A policy that reads a value from the device."""

    def forward(self, tensordict):
        return self.inner(tensordict).set(
            "calls", torch.full((4, 1), float(tensordict["done"].sum()))
        )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Counting, "differs in calls of step 1"),
        (Reading, r"cannot be captured .*use collector\.capture=false"),
    ],
)
def test_what_a_graph_cannot_follow_is_refused(kind: type[Counting], said: str) -> None:
    """The refusal leaves the environment's state and the random streams unchanged."""
    collector = CapturedCollector(task(), kind())
    collector._root = collector.env.reset()
    before, drawn = collector.env.get_state().to_dict(), torch.get_rng_state()
    with pytest.raises(CaptureError, match=said):
        collector.step()
    assert not differing(before, collector.env.get_state().to_dict())
    assert torch.equal(drawn, torch.get_rng_state())
