"""Candidates and their afterstates equal plain loops and the environment's steps."""

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDictBase

from packing_env import Afterstates, PackingEnv, kernels, make_env

OBSERVATION = ["heightmap", "item_id", "drop_height"]
TASKS: dict[str, dict[str, Any]] = {
    "cuboid_online": {},
    "cuboid_buffer": {"num_visible": 3},
    "cuboid_offline": {"num_visible": 6, "stability": "none"},
    "irregular": {"pool_size": 32},
    "sls_nesting": {"pool_size": 8, "num_visible": 2, "grid_step": 3},
}


def build(task: str, num_envs: int = 4, **options: Any) -> PackingEnv:
    chosen = TASKS[task] | {"observation": OBSERVATION} | options
    return make_env(task, num_envs=num_envs, seed=3, **chosen)


def arguments(root: TensorDictBase) -> list[torch.Tensor]:
    names = ("heightmap", "item_id", "drop_height")
    return [*(root["observation", name] for name in names), root["action_mask"]]


def check_backends(afterstates: Afterstates, root: TensorDictBase) -> None:
    """Assert that all backends give the same afterstates."""
    found = []
    for backend in kernels.available_backends():
        kernels.set_backend(backend)
        found.append(afterstates.compute(*arguments(root)))
    kernels.set_backend(None)
    for other in found[1:]:
        assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("task", TASKS)
def test_backends_agree_and_the_environment_steps_to_the_afterstate(task: str) -> None:
    env = build(task)
    afterstates, *fewer = (Afterstates(env, num) for num in (None, 1, 5))
    torch.manual_seed(1)
    root = env.reset()
    check_backends(afterstates, root[:0])
    moves = 0
    for step in range(30):
        if step % 3 == 0:
            for module in (afterstates, *fewer):
                check_backends(module, root)
        candidate, maps, _ = afterstates.compute(*arguments(root))
        assert root["action_mask"].gather(1, candidate.clamp(min=0))[candidate >= 0].all()
        pick = torch.randint(100, (len(candidate),)) % (candidate >= 0).sum(1).clamp(min=1)
        rows = torch.arange(len(pick))
        root["action"] = candidate[rows, pick].clamp(min=0)
        live = ~root["done"].squeeze(-1)
        root = env.step_mdp(env.step(root))
        after = afterstates.heights(root["observation", "heightmap"])
        apart = (after - maps[rows, pick]).abs().amax((1, 2))[live]
        assert (apart <= (0 if afterstates.cuboids else 1)).all()
        moves += int(live.sum())
    assert moves > 30


@pytest.mark.parametrize("options", [{}, {"num_visible": 2, "grid_step": 2}])
def test_candidates_of_other_items_are_blocked_and_in_order(options: dict[str, Any]) -> None:
    env = build("irregular", num_envs=2, **options)
    afterstates, compared = Afterstates(env, 10_000), 0
    torch.manual_seed(0)
    root = env.reset()
    for _ in range(10):
        candidate, _, dropped = afterstates.compute(*arguments(root))
        few = Afterstates(env, 9).compute(*arguments(root))
        for row in range(2):
            if root["done"][row]:
                continue
            wanted = plain_candidates(env, afterstates, root[row])
            assert candidate[row][: len(wanted)].tolist() == wanted
            assert (candidate[row][len(wanted) :] == -1).all()
            assert few[0][row].tolist() == [*wanted, *[-1] * 9][:9]
            assert few[2][row] == max(0, len(wanted) - 9)
            compared += len(wanted)
        assert not dropped.any()
        for _ in range(2):
            root = env.step_mdp(env.step(env.rand_action(root)))
    assert compared > 300


def plain_candidates(env: PackingEnv, afterstates: Afterstates, root: TensorDictBase) -> list[int]:
    """The candidates of one state, in order."""
    xs, ys = env.mode.shape[2:]
    stride, per_cell = env.params.grid_step, round(env.params.cell / afterstates.unit)
    legal = root["action_mask"].view(env.mode.shape).numpy()
    rest = root["observation", "drop_height"].view(env.mode.shape).numpy()
    z = np.rint(rest * np.float32(afterstates.units)).astype(int)
    heights = afterstates.heights(root["observation", "heightmap"]).numpy()
    corners: list[tuple[int, int]] = []
    queues: list[list[tuple[int, int]]] = [[] for _ in range(env.mode.shape[0])]

    def higher(place: tuple[int, ...], beside: tuple[int, ...]) -> bool:
        outside = not (0 <= beside[2] < xs and 0 <= beside[3] < ys)
        return outside or not legal[beside] or z[beside] > z[place]

    for action in np.flatnonzero(legal).tolist():
        place = tuple(int(part) for part in np.unravel_index(action, env.mode.shape))
        slot, r, i, j = place
        item, x, y = int(root["observation", "item_id"][slot]), i * stride, j * stride
        z_cells = float(rest[place]) * env.params.height / env.params.cell
        corners.append((round(8 * (100.0 * z_cells + (x + y))), action))
        along_x = [higher(place, (slot, r, i + step, j)) for step in (-1, 1)]
        along_y = [higher(place, (slot, r, i, j + step)) for step in (-1, 1)]
        if not (any(along_x) and any(along_y)):
            continue
        w, h = afterstates.size[item, r].tolist()
        top = afterstates.top[item, r].numpy()[:w, :h]
        below = (z[place] - heights[x : x + w, y : y + h])[top >= 0]
        walls = sum(min(a, side - a) for a, side in zip((x, y), free(env, w, h), strict=True))
        peak = int(z[place]) + int(top.max())
        queues[slot].append((2 * int(below.sum()) // len(below) + peak + per_cell * walls, action))
    first = min(corners)[1]
    others = [[action for _, action in sorted(queue) if action != first] for queue in queues]
    turns = [
        (turn, slot, action)
        for slot, queue in enumerate(others)
        for turn, action in enumerate(queue)
    ]
    return [first, *[action for _, _, action in sorted(turns)]]


def free(env: PackingEnv, w: int, h: int) -> tuple[int, int]:
    """Cells in x and y by which an item of some sides can be moved."""
    return env.params.grid[0] - w, env.params.grid[1] - h


CANDIDATES: dict[str, tuple[str, dict[str, Any]]] = {
    "whole cells": ("cuboid_online", {"num_candidates": 30}),
    "two in view": ("cuboid_buffer", {"num_visible": 2}),
    "boxes": (
        "cuboid_online",
        {
            "geometry": "boxes",
            "candidate_generator": "split_spaces",
            "num_spaces": 96,
            "stability": "stacking_tree",
            "stability_metric": "none",
        },
    ),
    "a raster of boxes": ("cuboid_continuous", {"cell": 0.04}),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_afterstates_of_candidates_are_the_next_states(name: str) -> None:
    task, options = CANDIDATES[name]
    options = {"observation": ["heightmap", "item_id"], "action_mode": "candidate"} | options
    env = make_env(task, num_envs=4, pool_size=8, seed=3, **options)
    module, compared = Afterstates(env), 0
    torch.manual_seed(0)
    root = env.reset()
    for _ in range(25):
        found = module(root.clone())
        live = ~root["done"].flatten() & root["action_mask"].any(1)
        root = env.rand_action(root)
        stepped = env.step(root.clone())
        following = stepped["next"]
        chosen = found["afterstate"][torch.arange(4), root["action"]]
        reached = module.heights(following["observation", "heightmap"])
        assert torch.equal(found["candidate"] >= 0, root["action_mask"])
        assert torch.equal(chosen[live], reached[live])
        offered = root["observation", "candidates"]
        slot = module.slots(root["action"][:, None], offered).squeeze(1)
        item = root["observation", "item_id"].gather(1, slot[:, None]).squeeze(1)
        grown = (following["metrics", "utilization"] - root["metrics", "utilization"]).flatten()
        share = env.catalogue.tensors()["volume"][item.clamp(min=0)] / env.params.container_volume
        assert torch.allclose(grown[live].double(), share[live].double(), atol=1e-6)
        compared += int(live.sum())
        root = env.step_mdp(stepped)
    assert compared > 20
