"""Candidates and their afterstates: plain loops, the environment's steps, every backend alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tensordict import TensorDictBase

from agents import heuristics
from packing_env import Afterstates, PackingEnv, ParameterError, kernels, make_env

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


def played(env: PackingEnv, steps: int, seed: int = 0) -> list[TensorDictBase]:
    """Roots of a random episode, finished rows included."""
    torch.manual_seed(seed)
    root, roots = env.reset(), []
    for _ in range(steps):
        roots.append(root.clone())
        root = env.step_mdp(env.step(env.rand_action(root)))
    return roots


@pytest.mark.parametrize("task", TASKS)
def test_backends_agree_in_every_state(task: str) -> None:
    env = build(task)
    for num in (1, 5, None):
        afterstates = Afterstates(env, num)
        for root in played(env, 40)[::3]:
            found = []
            for backend in kernels.available_backends():
                kernels.set_backend(backend)
                found.append(afterstates.compute(*arguments(root)))
            kernels.set_backend(None)
            for other in found[1:]:
                assert all(torch.equal(a, b) for a, b in zip(found[0], other, strict=True))


@pytest.mark.parametrize("task", ["cuboid_buffer", "sls_nesting"])
def test_max_items_proposes_the_first_items_that_fit(task: str) -> None:
    """Those of all visible items, without what belongs to later ones."""
    env = build(task, num_visible=4)
    every, first = Afterstates(env, 4096, max_items=4), Afterstates(env, 4096, max_items=2)
    per_item, skipped = every.num_actions // 4, 0
    for root in played(env, 40)[::4]:
        there = root["action_mask"].unflatten(1, (4, per_item)).any(2)
        there &= root["observation", "item_id"][:, :4] >= 0
        rank = there.cumsum(1)
        skipped += int((~there).sum())
        for row, (wanted, found) in enumerate(
            zip(every.compute(*arguments(root))[0], first.compute(*arguments(root))[0], strict=True)
        ):
            kept = [c for c in wanted.tolist() if c >= 0 and rank[row, c // per_item] <= 2]
            assert sorted(c for c in found.tolist() if c >= 0) == sorted(kept)
    assert skipped or task == "sls_nesting"


@pytest.mark.parametrize("task", TASKS)
def test_the_environment_steps_to_the_afterstate(task: str) -> None:
    env = build(task)
    afterstates = Afterstates(env)
    torch.manual_seed(1)
    root = env.reset()
    moves = 0
    for _ in range(30):
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


def test_cuboids_that_touch_come_first_then_lower_ones() -> None:
    env = build("cuboid_buffer", num_envs=3)
    afterstates = Afterstates(env, 10_000)
    size = env.catalogue.tensors()["size"]
    for root in played(env, 20)[::4]:
        candidate, _, dropped = afterstates.compute(*arguments(root))
        heights = afterstates.heights(root["observation", "heightmap"]).numpy()
        for row in range(3):
            keys = []
            legal = root["action_mask"][row].nonzero().flatten().tolist()
            if root["done"][row]:
                continue
            for action in legal:
                place = np.unravel_index(action, env.mode.shape)
                item = int(root["observation", "item_id"][row, place[0]])
                w, h = size[item, place[1]].tolist()
                keys.append((*plain_key(heights[row], place[2], place[3], w, h), action))
            wanted = [key[-1] for key in sorted(keys)]
            assert candidate[row][: len(wanted)].tolist() == wanted
            assert (candidate[row][len(wanted) :] == -1).all()
            few = Afterstates(env, 4).compute(*arguments(root))
            touching = sum(not key[0] for key in keys)
            assert few[2][row] == max(0, touching - 4)
        assert not dropped.any()


def plain_key(heights: np.ndarray, x: int, y: int, w: int, h: int) -> tuple[bool, int]:
    """Whether the cuboid does not touch in both axes, and its rest height."""
    z = int(heights[x : x + w, y : y + h].max())
    padded = np.pad(heights, 1, constant_values=-1)
    beside_x = [*padded[x, y + 1 : y + h + 1], *padded[x + w + 1, y + 1 : y + h + 1]]
    beside_y = [*padded[x + 1 : x + w + 1, y], *padded[x + 1 : x + w + 1, y + h + 1]]
    return not (any(n != z for n in beside_x) and any(n != z for n in beside_y)), z


@pytest.mark.parametrize("options", [{}, {"num_visible": 2, "grid_step": 2}])
def test_candidates_of_other_items_are_blocked_and_in_order(options: dict[str, Any]) -> None:
    env = build("irregular", num_envs=2, **options)
    afterstates, compared = Afterstates(env, 10_000), 0
    for root in played(env, 20)[::2]:
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
    assert compared > 300


def test_no_candidates_at_all_are_refused() -> None:
    env = build("irregular", num_envs=2)
    module = Afterstates(env, 8)
    heightmap, item, rest, legal = arguments(env.reset())
    with pytest.raises(ValueError, match="num=0 should be at least 1"):
        kernels.afterstates(
            heightmap,
            rest,
            legal,
            item,
            module.top,
            module.size,
            num=0,
            stride=1,
            units=module.units,
            cells=30.0,
            edges=False,
        )


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


@pytest.mark.parametrize("heuristic", ["deepest_bottom_left"])
@pytest.mark.parametrize("task", ["irregular", "sls_nesting", "cuboid_online"])
def test_the_choice_of_the_heuristic_is_a_candidate(task: str, heuristic: str) -> None:
    env = build(task, num_envs=8)
    afterstates, policy = Afterstates(env, 512), heuristics.build(heuristic, env)
    root, compared = env.reset(), 0
    for _ in range(12):
        root = policy(root)
        live = ~root["done"].squeeze(-1)
        candidate, _, _ = afterstates.compute(*arguments(root))
        assert (candidate == root["action"][:, None]).any(1)[live].all()
        compared += int(live.sum())
        root = env.step_mdp(env.step(root))
    assert compared > 40


def test_the_module_takes_any_batch_and_reads_its_tensordict_alone() -> None:
    env = build("cuboid_online", num_envs=6)
    module = Afterstates(env)
    root = played(env, 8)[-1]
    flat = module(root.clone())
    batched = module(root.clone().reshape(2, 3))
    assert flat["afterstate"].shape == (6, 48, 10, 10)
    for key in module.out_keys:
        assert torch.equal(batched[key].flatten(0, 1), flat[key])
    env.reset()  # another episode
    assert torch.equal(module(root.clone())["candidate"], flat["candidate"])


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


def test_tasks_that_it_does_not_serve_are_refused() -> None:
    with pytest.raises(ParameterError, match="action_mode='placement' and 'candidate'"):
        Afterstates(make_env("cuboid_online", action_mode="multi_head"))
    with pytest.raises(ParameterError, match="are those of cuboids"):
        Afterstates(make_env("irregular", action_mode="candidate", pool_size=8))
    with pytest.raises(ParameterError, match=r"set env\.num_candidates"):
        Afterstates(make_env("cuboid_online", action_mode="candidate"), 5)
    with pytest.raises(ParameterError, match="drop_height"):
        Afterstates(make_env("cuboid_online", observation=["heightmap", "item_id"]))
