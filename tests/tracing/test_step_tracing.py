"""Whole steps, on both grounds: one graph plays what eager plays; operators are well formed."""

from typing import Any

import pytest
import torch
from tests.engine.engines import needs_numba
from tests.kernels.piles import DISCRETE, random_case
from tests.tiny import cuboid_env, differing, state_of, tiny_env
from tests.tracing.detectors import run_as_one_graph
from torch import Tensor

from packing_env import kernels
from packing_env.engine.operations import ON_CELLS, new_outcome
from packing_env.envs import PackingEnv
from packing_env.kernels.step.entries import Ahead, Observations, Outcome, State

pytestmark = pytest.mark.usefixtures("quiet")
GROUNDS = ("whole cells", "heightmaps")
CHECKS = ("test_schema", "test_faketensor")


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
def test_the_operators_of_steps_are_well_formed(ground: str) -> None:
    for name, given in arguments(ground).items():
        operation = getattr(torch.ops.packing_env, f"numba_step_{name}").default
        torch.library.opcheck(operation, given, test_utils=CHECKS)
    mask, uniform = torch.rand(3, 9) < 0.5, torch.rand(3)
    choose = torch.ops.packing_env.numba_choose_uniform.default
    torch.library.opcheck(choose, (mask, uniform), test_utils=CHECKS)


def map_inputs() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    heightmap = torch.rand(2, 7, 8, generator=generator)
    bottom = torch.rand(2, 3, 3, 4, generator=generator)
    bottom[:, 1, 2:] = torch.inf
    bottom[:, 2] = torch.inf
    com = torch.randint(0, 180, (2, 3, 2), generator=generator)
    return heightmap, bottom, com


def operators() -> list[tuple[Any, tuple[Any, ...]]]:
    """Custom operators, and arguments for each."""
    known, (heightmap, bottom, com) = torch.ops.packing_env, map_inputs()
    case = random_case(1, DISCRETE, rows=3, capacity=6, count=4)
    boxes = (case.boxes, case.lower, case.size)
    rested = kernels.box_drop(*boxes)
    rules = kernels.BOX_RULES[1:]  # "none" needs no operator
    listed = [(known.eager_box_stable, (*boxes, rested, rule)) for rule in rules]
    if "numba" not in kernels.available_backends():
        return listed
    placed = (heightmap, bottom, kernels.drop_height(heightmap, bottom))
    listed += [(known.numba_box_stable, (*boxes, rested, rule)) for rule in rules]
    listed += [(known.numba_com_hull, (*placed, com, 0.3, 1, centres)) for centres in (0, 1)]
    return [
        *listed,
        (known.numba_box_drop, boxes),
        (known.numba_drop_height, (heightmap, bottom, 1)),
        (known.numba_support_count, (*placed, 0.3, 1)),
    ]


@pytest.mark.filterwarnings("ignore")
def test_the_operators_of_kernels_are_well_formed() -> None:
    for operator, given in operators():
        torch.library.opcheck(operator.default, given, test_utils=CHECKS)
