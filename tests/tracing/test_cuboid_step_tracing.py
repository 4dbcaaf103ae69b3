"""A whole step of cuboids at once: on fake tensors, in one graph, and without a host read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tests.tiny import cuboid_env, differing, state_of
from tests.tracing.detectors import run_as_one_graph, run_on_fake_tensors, run_profiled
from torch._subclasses.fake_tensor import FakeTensorMode

from packing_env import kernels
from packing_env.engine.operations import ON_CELLS, new_outcome
from packing_env.envs import PackingEnv
from packing_env.kernels.step.entries import Observations, Outcome, State

pytestmark = pytest.mark.skipif(
    "numba" not in kernels.available_backends(), reason="numba is not installed"
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with torch.no_grad():
        yield
    torch._dynamo.reset()


def whole_env(num_envs: int = 3, **params: Any) -> PackingEnv:
    options = {"observation": ON_CELLS, **params}
    env = cuboid_env(num_envs, items={"grid": (5, 6), "height": 5}, **options)
    assert env.engine.name == "compiled"
    return env


DETECTORS: dict[str, Callable[..., Any]] = {
    "fake_tensors": run_on_fake_tensors,
    "profiler": lambda loop, root: run_profiled(loop, root, 20),
    "one_graph": lambda loop, root: run_as_one_graph(loop, root, num_steps=8),
}


@pytest.mark.parametrize("detector", DETECTORS)
@pytest.mark.parametrize(
    "params", [{"stability": "center_hull"}, {"action_mode": "multi_head", "num_visible": 2}]
)
def test_steps_without_host_reads(params: dict[str, Any], detector: str) -> None:
    env = whole_env(**params)

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
            return run_as_one_graph(loop, root, num_steps=14), state_of(env)
        for _ in range(16):
            root = loop(root)
        return root, state_of(env)

    (one, before), (other, after) = play(True), play(False)
    assert (after["episode"] > 0).all()
    assert not differing(one, other)
    assert not differing(before, after)


def test_the_number_of_operations_does_not_depend_on_the_batch() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Count(TorchDispatchMode):
        number = 0

        def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.number += 1
            return function(*args, **(kwargs or {}))

    counts = []
    for num_envs in (1, 7, 130):
        env = whole_env(num_envs)
        root = env.rand_action(env.reset())
        _, root = env.step_and_maybe_reset(root)
        env.rand_action(root)
        with Count() as count:
            env.step_and_maybe_reset(root)
        counts.append(count.number)
    assert len(set(counts)) == 1
    assert counts[0] <= 150


def given(num_envs: int = 4) -> tuple[list[Any], list[Any]]:
    """Arguments of the two operations."""
    env = whole_env(num_envs)
    action = env.rand_action(env.reset())["action"][:, None]
    engine, task = env.engine, env.engine.operations.task
    state = [env.state[key] for key in State._fields]
    observations, start = (
        [engine._buffers(num_envs, env.device)[key] for key in Observations._fields]
        for _ in range(2)
    )
    for value in (*observations, *start):
        value.zero_()
    found = new_outcome(num_envs, env.device)
    outcome = [found[key].zero_() for key in Outcome._fields]
    rows = torch.arange(num_envs) % 2 == 0
    metrics = [torch.ones(num_envs, 1) for _ in range(2)]
    constant = [state, task.items, task.pool, task.counts, task.lengths]
    return (
        [*constant, action, observations, start, outcome],
        [*constant, rows, observations, metrics],
    )


@pytest.mark.filterwarnings("ignore")
def test_the_custom_operators_are_well_formed() -> None:
    step, reset = given()
    tests = ("test_schema", "test_faketensor")
    torch.library.opcheck(torch.ops.packing_env.numba_step_advance.default, step, test_utils=tests)
    torch.library.opcheck(torch.ops.packing_env.numba_step_reset.default, reset, test_utils=tests)
    mask, uniform = torch.rand(3, 9) < 0.5, torch.rand(3)
    choose = torch.ops.packing_env.numba_choose_uniform.default
    torch.library.opcheck(choose, (mask, uniform), test_utils=tests)


def test_a_random_choice_on_fake_tensors() -> None:
    mask, uniform = torch.rand(2, 3, 9) < 0.5, torch.rand(2, 3)
    real = kernels.choose_uniform(mask, uniform)
    with FakeTensorMode() as mode:
        fake = kernels.choose_uniform(mode.from_tensor(mask), mode.from_tensor(uniform))
    assert (fake.shape, fake.dtype) == (real.shape, real.dtype)
