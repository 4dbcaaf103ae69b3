"""Policy and step recorded once: the recording plays what they play, wherever it is replayed.

`tests.agents.tape` stands for the CUDA graph: it replays operations on the memory that they used,
and asks Python nothing. `tests/gpu/test_capture_on_cuda.py` does the same with graphs.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest
import torch
from tests.agents.algorithms.test_every_agent import CASES
from tests.agents.tape import record
from tests.agents.training.test_collectors import Heights
from tests.agents.training.test_resume import OFTEN, differing, trainer_of
from tests.tiny import tiny_env

from agents.algorithms.optimization import GatedAdam
from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from agents.training.capture import CapturedCollector, CapturedUpdate, CaptureError
from agents.training.rollout import DeviceCollector
from agents.training.workers import device_collector
from packing_env import PackingEnv, kernels
from packing_env.types import ParameterError


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    """A recording holds torch's operations."""
    kernels.set_backend("eager")
    yield
    kernels.set_backend(None)


def task(**params: object) -> PackingEnv:
    return tiny_env(4, items={"height": 0.05}, max_steps=4, **params)


def policy() -> PolicyWrapper:
    return PolicyWrapper(Heights(), epsilon=EpsilonSchedule(0.9, 0.1, 40))


def played(collector: DeviceCollector, count: int) -> list:
    """Steps under a schedule that moves between them."""
    torch.manual_seed(3)
    steps = []
    for number in range(count):
        collector.policy.set_frames(4 * number)
        steps.append(collector.step())
    return steps


@pytest.mark.parametrize("mode", ["placement", "candidate"])
def test_a_recording_plays_on_as_the_environment_does(mode: str) -> None:
    """Through episode ends, with draws and a rate that moves; nothing returned is written over."""
    params = {"action_mode": mode, "stability": "com_hull"}
    plain, captured = (
        DeviceCollector(task(**params), policy()),
        CapturedCollector(task(**params), policy(), record=record),
    )
    wanted, found = played(plain, 15), played(captured, 15)
    assert sum(int(step["next", "done"].sum()) for step in wanted) > 4
    for one, other in zip(wanted, found, strict=True):
        assert not differing(one.to_dict(), other.to_dict())
    assert not differing(plain.state_dict(), captured.state_dict())


def test_memory_stays_where_it_is() -> None:
    collector = CapturedCollector(task(), policy(), record=record)
    collector.step()
    places = {key: value.data_ptr() for key, value in collector.env.state.items()}
    for _ in range(6):
        collector.step()
    assert places == {key: value.data_ptr() for key, value in collector.env.state.items()}


def test_it_goes_on_from_a_saved_state() -> None:
    plain = DeviceCollector(task(), policy())
    played(plain, 3)
    captured = CapturedCollector(task(), policy(), record=record)
    captured.step()
    captured.load_state_dict(plain.state_dict())
    for one, other in zip(played(plain, 5), played(captured, 5), strict=True):
        assert not differing(one.to_dict(), other.to_dict())


@pytest.mark.parametrize(
    "case", [c if c in OFTEN else pytest.param(c, marks=pytest.mark.slow) for c in CASES]
)
def test_training_is_the_same(case: str) -> None:
    """Every agent: updates change the weights, and schedules the rates, under the recording."""
    trainers = [trainer_of(case), trainer_of(case)]
    trainers[1].collector = CapturedCollector(
        trainers[1].collector.env, trainers[1].agent.policy, record=record
    )
    for trainer in trainers:
        torch.manual_seed(7)
        for _ in range(14):
            trainer.step()
    assert trainers[0].updates > 0
    one, other = (trainer.state_dict() for trainer in trainers)
    assert not differing(one["agent"], other["agent"])
    assert not differing(one["replay"], other["replay"])
    assert not differing(one["collector"], other["collector"])


UPDATING = [case for case in CASES if not case.startswith(("ppo", "hierarchical"))]


@pytest.mark.parametrize(
    "case", [c if c in OFTEN else pytest.param(c, marks=pytest.mark.slow) for c in UPDATING]
)
@pytest.mark.parametrize("replay", ["uniform", "prioritized"])
def test_recorded_updates_are_the_agents_own(case: str, replay: str) -> None:
    """With a falling learning rate, priorities, and a resumed state in the middle."""
    trainers = [trainer_of(case, f"replay={replay}", "agent.lr_frames=3000") for _ in range(2)]
    for value in vars(trainers[0].agent).values():
        if isinstance(value, GatedAdam):
            value.keep_lr_in_memory()
    trainers[1].captured = CapturedUpdate(trainers[1].agent, record=record)
    for stop in (5, 10):
        for trainer in trainers:
            torch.manual_seed(7 + stop)
            while trainer.updates < stop:
                trainer.step()
        one, other = (trainer.state_dict() for trainer in trainers)
        for part in ("agent", "replay", "collector"):
            assert differing(one[part], other[part]) == []
        trainers[1].load_state_dict(copy.deepcopy(one))


def test_updates_that_differ_from_each_other_are_not_recorded() -> None:
    agent = trainer_of("hierarchical").agent
    with pytest.raises(ParameterError, match="those of Hierarchical are not; use trainer"):
        CapturedUpdate(agent, record=record)
    with pytest.raises(ParameterError, match="the agent is on cpu; use device=cuda, or trainer"):
        trainer_of("dqn", "trainer.capture=true")


class Counting(torch.nn.Module):
    """A policy that changes in Python, which no graph sees."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.calls = policy(), 0

    def forward(self, tensordict):
        self.calls += 1
        return self.inner(tensordict).set("calls", torch.full((4, 1), self.calls))


class Reading(Counting):
    """One that waits for the device."""

    def forward(self, tensordict):
        return self.inner(tensordict).set(
            "calls", torch.full((4, 1), float(tensordict["done"].sum()))
        )


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Counting, r"differs from the environment's in \['calls'\]"),
        (Reading, r"cannot be captured .*use collector\.capture=false"),
    ],
)
def test_what_a_graph_cannot_follow_is_refused(kind: type[Counting], said: str) -> None:
    """And leaves no trace: what would be saved then is where the last step ended."""
    collector = CapturedCollector(task(), kind(), record=record)
    collector._root = collector.env.reset()
    before, drawn = collector.env.get_state().to_dict(), torch.get_rng_state()
    with pytest.raises(CaptureError, match=said):
        collector.step()
    assert not differing(before, collector.env.get_state().to_dict())
    assert torch.equal(drawn, torch.get_rng_state())


class Averaging(torch.nn.Module):
    """A policy with a buffer of its own, which every decision changes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = policy()
        self.register_buffer("mean", torch.zeros(()))

    def set_frames(self, frames: int) -> None:
        self.inner.set_frames(frames)

    def forward(self, tensordict):
        self.mean.lerp_(tensordict["observation", "heightmap"].mean() + 1, 0.1)
        return self.inner(tensordict)


def test_a_policys_buffers_are_where_they_were() -> None:
    plain = DeviceCollector(task(), Averaging())
    captured = CapturedCollector(task(), Averaging(), record=record)
    for collector in (plain, captured):
        played(collector, 6)
    assert torch.equal(plain.policy.mean, captured.policy.mean)


def test_there_must_be_something_to_capture() -> None:
    with pytest.raises(ParameterError, match=r"the environment is on cpu; use device=cuda, or"):
        device_collector(task(), policy(), capture=True)
    with pytest.raises(ParameterError, match=r"use collector\.num_workers=1, not 2"):
        device_collector(task(), policy(), num_workers=2, capture=True)


def test_masked_resets_are_refused_before_a_step() -> None:
    env = tiny_env(4, shell={"autoreset": "masked"})
    with pytest.raises(ParameterError, match=r"autoreset='masked'.*env\.autoreset=native"):
        CapturedCollector(env, policy(), record=record)
