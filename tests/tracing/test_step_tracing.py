"""Whole steps, on both grounds: one graph plays what eager plays, and operators are well formed."""

from typing import Any

import pytest
import torch
from tests.engine.engines import needs_numba
from tests.tiny import cuboid_env, differing, state_of, tiny_env
from tests.tracing.detectors import run_as_one_graph

from packing_env import kernels
from packing_env.engine.operations import ON_CELLS, new_outcome
from packing_env.envs import PackingEnv
from packing_env.kernels.step.entries import Ahead, Observations, Outcome, State

pytestmark = pytest.mark.usefixtures("quiet")
GROUNDS = ("whole cells", "heightmaps")


def env_on(ground: str, num_envs: int = 3, **params: Any) -> PackingEnv:
    if ground == "whole cells":
        options = {"observation": ON_CELLS, **params}
        env = cuboid_env(num_envs, items={"grid": (5, 6), "height": 5}, **options)
    else:
        env = tiny_env(num_envs, items={"grid": (5, 6), "height": 0.05}, **params)
    if env.engine.name == "compiled":
        assert env.engine.ground == ground
    return env


@needs_numba
@pytest.mark.parametrize("ground", GROUNDS)
def test_the_graph_plays_what_eager_plays(ground: str) -> None:
    def play(run: bool) -> tuple[Any, Any]:
        env = env_on(ground)

        def loop(root):
            action = root["action_mask"].int().argmax(-1)
            return env._step_and_maybe_reset(root.set("action", action))[1]

        root = loop(env.reset())
        if run:
            return run_as_one_graph(loop, root, num_steps=12), state_of(env)
        for _ in range(14):
            root = loop(root)
        return root, state_of(env)

    (one, before), (other, after) = play(True), play(False)
    assert (after["episode"] > 0).any()
    assert not differing(one, other)
    assert not differing(before, after)


def arguments(ground: str, num_envs: int = 4) -> dict[str, list[Any]]:
    """Arguments of the operations of a step."""
    env = env_on(ground, num_envs)
    action = env.rand_action(env.reset())["action"][:, None]
    engine, task = env.engine, env.engine.operations.task
    state = [env.state[key] for key in State._fields]
    found = new_outcome(num_envs, env.device)
    outcome = [found[key].zero_() for key in Outcome._fields]
    seen = [
        [engine._buffers(num_envs, env.device)[key].zero_() for key in Observations._fields]
        for _ in range(2)
    ]
    constant = [state, task.items, task.pool, task.counts, task.lengths]
    if ground == "whole cells":
        return {"advance": [*constant, action, *seen, outcome]}
    ahead = engine.operations.ahead(num_envs, env.device)
    under = torch.zeros(num_envs, dtype=torch.float64)
    kernels.decide_heights(task, env.state, action, ahead, under, found)
    z = engine.operations._drop_height(env.state, ahead["plane"])
    judged = engine.operations._judge(z, env.state, ahead)
    found["after"].zero_()
    return {
        "decide": [*constant, action, under, [ahead[key] for key in Ahead._fields], outcome],
        "close_lid": [judged[0], ahead["peak"], 0.05],
        "observe_places": [*constant, under, [*judged, ahead["peak"]], *seen, outcome],
    }


@needs_numba
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ground", GROUNDS)
def test_the_custom_operators_are_well_formed(ground: str) -> None:
    tests = ("test_schema", "test_faketensor")
    for name, given in arguments(ground).items():
        operation = getattr(torch.ops.packing_env, f"numba_step_{name}").default
        torch.library.opcheck(operation, given, test_utils=tests)
    mask, uniform = torch.rand(3, 9) < 0.5, torch.rand(3)
    choose = torch.ops.packing_env.numba_choose_uniform.default
    torch.library.opcheck(choose, (mask, uniform), test_utils=tests)
