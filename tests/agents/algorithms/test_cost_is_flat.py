"""The host's work per step does not depend on the size of the step: counts, not times."""

import gc
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tests.agents.algorithms.test_every_agent import LEARNERS
from tests.agents.conftest import TINY_OVERRIDES, HeightNetwork
from tests.counting import CallSites, allocations
from tests.tiny import tiny_env

import packing_env
from agents.config.build import build_trainer
from agents.config.compose import compose
from agents.policies.policy_wrapper import PolicyWrapper
from agents.training.rollout import DeviceCollector
from agents.training.trainer import Trainer

MODES: dict[str, dict[str, Any]] = {
    "placement": {},
    "candidate": {"num_candidates": 8},
    "multi_head": {},
    "hierarchical": {},
    "continuous": {"illegal_action": "project"},
}


@dataclass(frozen=True)
class Cost:
    """Operations that Python asked torch for, reads, and calls of Python and C functions."""

    operations: int
    reads: int
    calls: int


def cost(work: Callable[[], object]) -> Cost:
    """Count the operations of one call and the functions of another, without garbage collection."""
    gc.collect()
    gc.disable()
    try:
        with CallSites() as sites:
            work()
        return Cost(sites.total("operations"), sites.total("reads"), function_calls(work))
    finally:
        gc.enable()


def function_calls(work: Callable[[], object]) -> int:
    """Return how many functions of Python and of C are entered."""
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


# ---------------------------------------------------------------------- the environment


def stepping(num_envs: int, mode: str, orientations: int = 3, visible: int = 2) -> Callable:
    """Return a step of a tiny environment, as in :func:`playing`."""
    shape = {"grid": (5, 5), "height": 0.05, "num_orientations": orientations}
    return playing(
        tiny_env(num_envs, items=shape, action_mode=mode, num_visible=visible, **MODES[mode])
    )


def playing(env: packing_env.PackingEnv) -> Callable:
    """Return a random legal step with resets; three steps warm the environment up before."""
    root = env.reset()

    def step() -> None:
        nonlocal root
        with torch.no_grad():
            root = env.step_and_maybe_reset(env.rand_action(root))[1]

    for _ in range(3):
        step()
    return step


@pytest.mark.parametrize("mode", ["placement", "hierarchical", "continuous"])
def test_a_step_costs_the_same_whatever_is_in_it(mode: str) -> None:
    """Rows, orientations and visible items are axes of one call."""
    expected = cost(stepping(2, mode))
    assert expected.operations > 50
    assert cost(stepping(64, mode, orientations=6, visible=3)) == expected


def test_a_step_takes_the_same_memory_every_time() -> None:
    """Episodes begin and end on the way; the allocator gets the same requests in every step."""
    step = stepping(8, "placement")
    assert len({allocations(step) for _ in range(4)}) == 1


@pytest.mark.parametrize("task", [*MODES, "cuboid_continuous", "cuboid_offline", "sls_nesting"])
def test_no_tensor_is_made_of_numbers_in_a_step(task: str) -> None:
    """A step copies nothing from the host, and nothing from one device to another."""
    preset = {"num_envs": 2, "pool_size": 2}
    step = stepping(4, task) if task in MODES else playing(packing_env.make_env(task, **preset))
    with CallSites() as sites:
        step()
    assert sites.total("operations") > 40
    assert not sites.counts["from_host"]
    assert not sites.counts["copies"]


# ---------------------------------------------------------------------- the agents


def trainers(name: str, *rows: int) -> Iterator[Trainer]:
    """The agent's trainer for each number of rows; one update per step."""
    base = compose("train", [*TINY_OVERRIDES, f"agent={name}", "trainer.log_every=1e9"])
    for count in rows:
        config = base.copy()
        config.env.num_envs = count
        if OmegaConf.select(config, "replay.horizon") is not None:
            config.replay.horizon = 1
            config.agent.update({"batch_size": count, "epochs": 1})  # as many minibatches
        else:
            config.agent.batch_size = 4
            config.replay.capacity = 8 * count
            config.trainer.update_every, config.trainer.warmup = count, 3 * count
        torch.manual_seed(0)
        yield build_trainer(config)


@pytest.mark.parametrize("name", LEARNERS)
def test_training_costs_the_same_whatever_the_rows(name: str) -> None:
    """Decide, step, store, measure and update; nothing is read from the device."""
    found = []
    for trainer in trainers(name, 2, 48):
        for _ in range(4):
            trainer.step()
        before = trainer.updates
        found.append(cost(trainer.step))
        assert trainer.updates == before + 2
    assert found[0] == found[1]
    assert found[0].operations > 1000
    assert found[0].reads == 0


def row_by_row(env: packing_env.PackingEnv) -> Callable:
    policy = PolicyWrapper(HeightNetwork(env))
    return lambda state: torch.cat([policy(row) for row in state.split(1)])


def test_a_loop_over_rows_is_found() -> None:
    """A policy that is called once per row costs operations for every row."""
    found = []
    for rows in (2, 8):
        env = tiny_env(rows)
        collector = DeviceCollector(env, row_by_row(env))
        collector.step()
        found.append(cost(collector.step))
    few, many = found
    assert many.operations >= few.operations + 6 * 5
    assert many.calls >= few.calls + 6 * 5
