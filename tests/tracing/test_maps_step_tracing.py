"""A whole step of items of any shape: on fake tensors, in one graph, and without a host read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.tiny import differing, state_of, tiny_env
from tests.tracing.detectors import run_as_one_graph, run_on_fake_tensors, run_profiled
from torch.utils._python_dispatch import TorchDispatchMode

from packing_env import kernels
from packing_env.engine.operations import new_outcome
from packing_env.envs import PackingEnv
from packing_env.kernels.step.entries import Ahead, Observations, Outcome, State

pytestmark = pytest.mark.skipif(
    "numba" not in kernels.available_backends(), reason="numba is not installed"
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def whole_env(num_envs: int = 3, **params: Any) -> PackingEnv:
    env = tiny_env(num_envs, items={"grid": (5, 6), "height": 0.05}, **params)
    assert env.engine.name == "compiled"
    return env


DETECTORS: dict[str, Callable[..., Any]] = {
    "fake_tensors": run_on_fake_tensors,
    "profiler": lambda loop, root: run_profiled(loop, root, 20),
    "one_graph": lambda loop, root: run_as_one_graph(loop, root, num_steps=4),
}


@pytest.mark.parametrize("detector", DETECTORS)
def test_steps_without_host_reads(detector: str) -> None:
    env = whole_env(action_mode="multi_head", num_visible=2)

    def loop(root):
        return env._step_and_maybe_reset(env.rand_action(root))[1]

    DETECTORS[detector](loop, loop(env.reset()))


def test_the_graph_plays_what_eager_plays() -> None:
    def play(run: bool) -> tuple[Any, Any]:
        env = whole_env()

        def loop(root):
            action = root["action_mask"].int().argmax(-1)
            return env._step_and_maybe_reset(root.set("action", action))[1]

        root = loop(env.reset())
        if run:
            return run_as_one_graph(loop, root, num_steps=8), state_of(env)
        for _ in range(10):
            root = loop(root)
        return root, state_of(env)

    (one, before), (other, after) = play(True), play(False)
    assert (after["episode"] > 0).any()
    assert not differing(one, other)
    assert not differing(before, after)


class Count(TorchDispatchMode):
    """How many operations were asked for."""

    number = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        self.number += 1
        return function(*args, **(kwargs or {}))


def test_the_number_of_operations_does_not_depend_on_the_batch() -> None:
    counts = []
    for num_envs in (1, 7, 65):
        env = whole_env(num_envs)
        root = env.rand_action(env.reset())
        _, root = env.step_and_maybe_reset(root)
        env.rand_action(root)
        with Count() as count:
            env.step_and_maybe_reset(root)
        counts.append(count.number)
    assert len(set(counts)) == 1
    assert counts[0] <= 150


def given(num_envs: int = 4) -> dict[str, list[Any]]:
    """Arguments of the operations."""
    env = whole_env(num_envs)
    action = env.rand_action(env.reset())["action"][:, None]
    engine, task = env.engine, env.engine.operations.task
    state = [env.state[key] for key in State._fields]
    ahead = engine.operations.ahead(num_envs, env.device)
    buffers = [engine._buffers(num_envs, env.device) for _ in range(2)]
    found = new_outcome(num_envs, env.device)
    under = torch.zeros(num_envs, dtype=torch.float64)
    kernels.decide_heights(task, env.state, action, ahead, under, found)
    judged = engine.operations._judge(
        engine.operations._drop_height(env.state, ahead["plane"]), env.state, ahead
    )
    observations, start = ([entries[key] for key in Observations._fields] for entries in buffers)
    outcome = [found[key] for key in Outcome._fields]
    for value in (*observations, *start, found["after"]):
        value.zero_()
    constant = [state, task.items, task.pool, task.counts, task.lengths]
    rows = torch.arange(num_envs) % 2 == 0
    totals = [torch.ones(num_envs, 1) for _ in range(2)]
    return {
        "decide": [*constant, action, under, [ahead[key] for key in Ahead._fields], outcome],
        "close_lid": [judged[0], ahead["peak"], 0.05],
        "observe_places": [*constant, under, list(judged), observations, start, outcome],
        "reset": [*constant, rows, observations, totals],
    }


@pytest.mark.filterwarnings("ignore")
def test_the_custom_operators_are_well_formed() -> None:
    for name, arguments in given().items():
        operation = getattr(torch.ops.packing_env, f"numba_step_{name}").default
        torch.library.opcheck(operation, arguments, test_utils=("test_schema", "test_faketensor"))
