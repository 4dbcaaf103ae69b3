"""No step of the environment, with a policy in the loop, reads a value back to the host."""

from collections.abc import Callable, Container

import pytest
import torch
from tensordict import TensorDictBase
from tests.agents.algorithms.test_hierarchical import agent_of
from tests.agents.networks.test_hierarchical_networks import env_of
from tests.tiny import cuboid_env, play_by_the_rules, state_of, tiny_env
from tests.tracing.conftest import TASKS
from tests.tracing.detectors import (
    HostReadError,
    Loop,
    run_as_one_graph,
    run_on_fake_tensors,
    run_profiled,
)
from tests.tracing.policies import OPTIONS, POLICIES
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from packing_env import WorkerMaps, kernels
from packing_env.core import candidates, feasibility, metrics, observation, transition
from packing_env.core.actions import MANAGER, MANAGER_MASK, WORKER, get_mode
from packing_env.core.orientation import decode_placement, visible_items
from packing_env.core.random import choose_uniform
from packing_env.engine.rules import LEGALITY
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


@pytest.mark.parametrize(
    ("env", "detector"),
    [
        pytest.param(
            name,
            detector,
            marks=[]
            if quick(detector, name, ("candidate", "hierarchical", "buffer"), ("placement",))
            else pytest.mark.slow,
        )
        for name in TASKS
        for detector in DETECTORS
    ],
    indirect=["env"],
)
def test_no_host_reads(env: PackingEnv, detector: str) -> None:
    loop = stepping(env, env.rand_action)
    DETECTORS[detector](loop, started(env, loop))


@pytest.mark.parametrize("geometry", ["maps", "cuboids"])
def test_one_graph_without_compiled_kernels(geometry: str) -> None:
    env = tiny_env(3, items={"grid": (5, 5)}) if geometry == "maps" else cuboid_env(3)
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
    loop = stepping(env, POLICIES[policy](env))
    DETECTORS[detector](loop, started(env, loop))


def test_manager_maps_and_worker_are_one_graph() -> None:
    env = env_of(4)
    agent = agent_of(env, stage1_frames=0)
    with set_exploration_type(ExplorationType.RANDOM):
        run_as_one_graph(lambda root: agent.policy(root.clone()), env.reset(), num_steps=2)


@pytest.mark.parametrize("detector", DETECTORS)
def test_no_host_reads_between_manager_and_worker(detector: str) -> None:
    """The maps of the chosen item in the loop, and a worker that takes the first legal place."""
    env = tiny_env(3, items={"grid": (5, 5)}, action_mode="hierarchical", num_visible=2)
    maps = WorkerMaps(env)

    def choose(root: TensorDictBase) -> TensorDictBase:
        root[MANAGER] = root[MANAGER_MASK].int().argmax(-1)
        root = maps(root)
        root[WORKER] = root["worker", "action_mask"].int().argmax(-1)
        return root.exclude(*(key for key in maps.out_keys))

    loop = stepping(env, choose)
    root = started(env, loop)
    for _ in range(5):
        root = loop(root)
    assert not env.state["illegal_actions"].any()
    DETECTORS[detector](loop, root)


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
        ("branch_on_any", "fake_tensors"),
        ("boolean_index", "one_graph"),
    ],
    indirect=["fault"],
)
def test_a_planted_read_is_found(
    fault: str, detector: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_by_the_rules(monkeypatch)
    env = tiny_env(3, items={"grid": (5, 5), "height": 0.05})
    loop = stepping(env, env.rand_action)
    root = started(env, loop)
    with pytest.raises(HostReadError):
        DETECTORS[detector](loop, root)


def test_a_read_planted_in_the_policy_is_found() -> None:
    env = tiny_env(3)

    def peeking(root: TensorDictBase) -> TensorDictBase:
        if root["action_mask"].any():
            root["observation", "heightmap"].max().item()
        return env.rand_action(root)

    loop = stepping(env, peeking)
    for detector in DETECTORS.values():
        root = started(env, loop)
        with pytest.raises(HostReadError):
            detector(loop, root)


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


BACKENDS = [None, *kernels.available_backends()]


@pytest.mark.parametrize(
    ("stability", "backend"),
    [(rule, BACKENDS[i % len(BACKENDS)]) for i, rule in enumerate(KNOWN_RULES)],
)
def test_the_rules_run_on_the_meta_device(stability: str, backend: str | None) -> None:
    """Meta tensors have no storage, so any read and any copy to the CPU raises."""
    env = tiny_env(3, stability=stability, num_visible=2)
    env.reset()
    state = {key: value.to("meta") for key, value in state_of(env).items()}
    items = {key: value.to("meta") for key, value in env.catalogue.tensors().items()}
    params = env.params
    kernels.set_backend(backend)
    after, maps = meta_step(env, state, items)
    kernels.set_backend(None)
    real = env.step(env.rand_action(env.reset()))
    assert real["next", "done"].shape == (3, 1)
    for key, value in state_of(env).items():
        if key in after:
            assert after[key].is_meta
            assert (after[key].shape, after[key].dtype) == (value.shape, value.dtype), key
    item_id, there = visible_items(after, params.num_visible)
    found = candidates.propose(candidates.Scene(after, item_id, there, maps, items, params))
    for value in (*metrics.measure(after, params).values(), found.index, found.z, found.overflow):
        assert value.is_meta
    for value in observation.observe(after, maps, items, params).values():
        assert value.is_meta


def meta_step(
    env: PackingEnv, state: dict[str, Tensor], items: dict[str, Tensor]
) -> tuple[dict[str, Tensor], feasibility.Maps]:
    item_id, there = visible_items(state, env.params.num_visible)
    maps = feasibility.placement_maps(state["heightmap"], item_id, there, items, env.params)
    action = choose_uniform(maps.legal.flatten(1), torch.rand(3, device="meta"))
    placement = decode_placement(action, env.mode.num_orientations, env.params)
    mode = get_mode(env.params.action_mode)(env.params, items)
    legal = feasibility.judge(state, placement, items, env.params)
    after, _ = transition.decide(state, placement, legal, items, env.params)
    found = feasibility.maps_in(after, items, env.params)
    assert found is not None
    outlook = mode.outlook(after, found)
    after |= outlook.entries
    after = transition.finish(state, after, legal, outlook.playable, env.params)
    fresh = transition.begin(
        state["item_id"], state["num_items"], state["seed"], state["row"], state["episode"],
        env.params,
    )  # fmt: skip
    fresh |= {key: state[key] for key in (*LEGALITY, "overflow")}
    transition.draw_instance(state["seed"], state["row"], state["episode"], 100)
    return transition.select(transition.is_done(after), fresh, after), found


def test_a_planted_read_fails_on_the_meta_device(fault: str) -> None:
    env = tiny_env(3)
    env.reset()
    state = {key: value.to("meta") for key, value in state_of(env).items()}
    items = {key: value.to("meta") for key, value in env.catalogue.tensors().items()}
    with pytest.raises((RuntimeError, NotImplementedError)):
        meta_step(env, state, items)
