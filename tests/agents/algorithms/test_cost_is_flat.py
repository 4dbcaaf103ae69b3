"""The host's work per step does not depend on the size of the step: counts, not times."""

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf
from tests.agents.algorithms.test_every_agent import LEARNERS, small_config
from tests.counting import CallSites, allocations
from tests.tiny import play_by_the_rules, tiny_env

from agents.config.build import build_trainer
from agents.training.trainer import Trainer
from packing_env import PackingEnv, make_env
from packing_env.core.actions import MODES


def function_calls(work: Callable[[], object]) -> int:
    """Return how many functions of Python and of C are entered, every operation of torch included.

    Garbage collection, which would call destructors at any time, is off.
    """
    count = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    gc.collect()
    gc.disable()
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        gc.enable()
    return count


# ---------------------------------------------------------------------- the environment


def tiny(num_envs: int, mode: str, orientations: int = 3, visible: int = 2) -> PackingEnv:
    shape = {"grid": (5, 5), "height": 0.05, "num_orientations": orientations}
    listed = {"num_candidates": 8} if mode == "candidate" else {}
    return tiny_env(num_envs, items=shape, action_mode=mode, num_visible=visible, **listed)


def stepping(env: PackingEnv) -> Callable:
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
    expected = function_calls(stepping(tiny(2, mode)))
    assert expected > 50
    assert function_calls(stepping(tiny(64, mode, orientations=6, visible=3))) == expected


def test_a_step_takes_the_same_memory_every_time() -> None:
    """Episodes begin and end on the way; the allocator gets the same requests in every step."""
    step = stepping(tiny(8, "placement"))
    assert len({allocations(step) for _ in range(4)}) == 1


@pytest.mark.parametrize("task", [*MODES, "cuboid_continuous", "cuboid_offline", "sls_nesting"])
def test_no_tensor_is_made_of_numbers_in_a_step(task: str, monkeypatch) -> None:
    """A step by the rules copies nothing from the host, and nothing from one device to another."""
    play_by_the_rules(monkeypatch)
    step = stepping(tiny(4, task) if task in MODES else make_env(task, 2, pool_size=2))
    with CallSites() as sites:
        step()
    assert sites.total("operations") > 40
    assert not sites.counts["from_host"]
    assert not sites.counts["copies"]


# ---------------------------------------------------------------------- the agents


def trainers(name: str, *rows: int) -> Iterator[Trainer]:
    """The agent's trainer for each number of rows; one update per step."""
    for count in rows:
        config = small_config(name, "trainer.log_every=1000000", f"env.num_envs={count}")
        if OmegaConf.select(config, "replay.horizon") is not None:
            config.replay.horizon = 1
            config.agent.update({"batch_size": count, "epochs": 1})  # as many minibatches
        else:
            config.replay.capacity = 8 * count
            config.trainer.update_every, config.trainer.warmup = count, 3 * count
        torch.manual_seed(0)
        yield build_trainer(config)


@pytest.mark.parametrize("name", LEARNERS)
def test_training_costs_the_same_whatever_the_rows(name: str) -> None:
    """Decide, step, store, measure and update; nothing is read from the device."""
    calls = []
    for trainer in trainers(name, 2, 48):
        for _ in range(4):
            trainer.step()
        before = trainer.updates
        calls.append(function_calls(trainer.step))
        assert trainer.updates == before + 1
    assert calls[0] == calls[1]
    with CallSites() as sites:
        trainer.step()
    assert sites.total("operations") > 1000
    assert sites.total("reads") == 0
