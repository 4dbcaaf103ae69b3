"""No step of the environment, with a policy in the loop, reads a value back to the host."""

from collections.abc import Callable, Container
from typing import Any

import pytest
import torch
from tensordict import TensorDictBase
from tests.tiny import cuboid_env, play_by_the_rules, tiny_env
from tests.tracing.conftest import CUBOIDS, TASKS
from tests.tracing.detectors import (
    HostReadError,
    Loop,
    run_as_one_graph,
    run_on_fake_tensors,
    run_profiled,
)
from tests.tracing.policies import OPTIONS, POLICIES

from packing_env import kernels
from packing_env.envs import PackingEnv
from packing_env.testing import KNOWN_RULES

pytestmark = pytest.mark.usefixtures("quiet")
DETECTORS = {
    "fake_tensors": run_on_fake_tensors,
    "profiler": lambda loop, root: run_profiled(loop, root, 20),
    "one_graph": run_as_one_graph,
}


def stepping(env: PackingEnv, policy: Callable[[TensorDictBase], TensorDictBase]) -> Loop:
    """One decision per row, resets included."""

    def loop(root: TensorDictBase) -> TensorDictBase:
        return env._step_and_maybe_reset(policy(root))[1]

    return loop


def started(env: PackingEnv, loop: Loop) -> TensorDictBase:
    """Return the root after a real step, because specs and kernels are built on first use."""
    return loop(env.reset())


def quick(detector: str, name: str, one_graph: Container[str], profiled: Container[str]) -> bool:
    """Return True if a combination is in every test run, not a slow test."""
    names = {"fake_tensors": (name,), "profiler": profiled, "one_graph": one_graph}
    return name in names[detector]


ONE_GRAPH = ("candidate", "hierarchical", "boxes, split_spaces")
"""Tasks that are compiled in every test run."""
ALONE = ("ppo", "ppo candidate", "hierarchical", "sac")
"""Policies that are compiled without the step, which is compiled with others of their modes."""


@pytest.mark.parametrize(
    ("env", "detector"),
    [
        pytest.param(
            name,
            detector,
            marks=[] if quick(detector, name, ONE_GRAPH, ("placement",)) else pytest.mark.slow,
        )
        for name in (*TASKS, *CUBOIDS)
        for detector in DETECTORS
    ],
    indirect=["env"],
)
def test_no_host_reads(env: PackingEnv, detector: str) -> None:
    loop = stepping(env, env.rand_action)
    DETECTORS[detector](loop, started(env, loop))


ALIKE = {"stability": "none", "stability_metric": "none", "observation": ("heightmap",)}
"""Leaves out what a step on cuboids has in common with one on maps."""


@pytest.mark.parametrize(
    ("make", "options"), [(tiny_env, TASKS["buffer"]), (cuboid_env, ALIKE)], ids=["maps", "cuboids"]
)
def test_one_graph_without_compiled_kernels(
    make: Callable[..., PackingEnv], options: dict[str, Any]
) -> None:
    env = make(3, items={"grid": (5, 5)}, **options)
    kernels.set_backend("eager")
    loop = stepping(env, env.rand_action)
    run_as_one_graph(loop, started(env, loop))


def test_a_reset_traced_in_inference_mode_binds_no_later_step() -> None:
    env = cuboid_env(3)
    with torch.inference_mode():
        torch.compile(env.reset, backend="eager")()
    taken, _ = env.step_and_maybe_reset(env.rand_action())
    assert bool((taken["next", "metrics", "items_packed"] == 1).all())


@pytest.mark.parametrize(
    ("policy", "detector"),
    [
        pytest.param(
            name,
            detector,
            marks=[]
            if quick(detector, name, ("ppo", *OPTIONS), ("iqn", "lowest_z"))
            else pytest.mark.slow,
        )
        for name in POLICIES
        for detector in DETECTORS
    ],
)
def test_no_host_reads_with_a_policy(policy: str, detector: str) -> None:
    env = tiny_env(3, items={"grid": (5, 5), "height": 0.05}, **OPTIONS.get(policy, {}))
    chosen = POLICIES[policy](env)
    loop = stepping(env, chosen)
    root = started(env, loop)
    DETECTORS[detector](chosen if detector == "one_graph" and policy in ALONE else loop, root)


@pytest.mark.parametrize("action_mode", ["hierarchical", "continuous"])
def test_no_host_reads_with_a_heuristic_that_reads_the_state(action_mode: str) -> None:
    env = tiny_env(3, items={"grid": (5, 5)}, action_mode=action_mode, num_visible=2)
    loop = stepping(env, POLICIES["lowest_z"](env))
    run_profiled(loop, started(env, loop), 10)


@pytest.mark.parametrize(
    ("fault", "detector"),
    [
        ("item", "fake_tensors"),
        ("item", "profiler"),
        ("item", "one_graph"),
        ("boolean_index", "fake_tensors"),
    ],
    indirect=["fault"],
)
def test_a_planted_read_is_found(
    fault: str, detector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_by_the_rules(monkeypatch)
    # Without a rule, whose operations take most of the time to trace.
    rule = {"stability": "none", "stability_metric": "none"}
    env = tiny_env(3, items={"grid": (5, 5), "height": 0.05}, **rule)
    loop = stepping(env, env.rand_action)
    root = started(env, loop)
    with pytest.raises(HostReadError):
        DETECTORS[detector](loop, root)


def test_env_compile_gives_one_graph() -> None:
    """TorchRL's own ``env.compile``."""
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    env = tiny_env(3, items={"grid": (5, 5), "height": 0.05})
    env.compile(warmup=3, fullgraph=True, backend=backend)
    env.rollout(20, break_when_any_done=False)
    assert len(graphs) == 1
    assert (env.state["episode"] > 0).any()


@pytest.mark.parametrize("stability", KNOWN_RULES)
def test_every_rule_runs_on_tensors_without_values(
    stability: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_by_the_rules(monkeypatch)
    kernels.set_backend("eager")
    env = tiny_env(3, stability=stability, num_visible=2)
    loop = stepping(env, env.rand_action)
    run_on_fake_tensors(loop, started(env, loop), num_steps=1)
