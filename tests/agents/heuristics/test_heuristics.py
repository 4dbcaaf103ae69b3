"""Heuristics against a plain loop over all placements, in NumPy."""

import numpy as np
import pytest
import torch
from tests.tiny import differing, play, state_of, tiny_env
from torch.profiler import ProfilerActivity, profile

from agents.heuristics import HEURISTICS, ITEM_ORDERS, build
from packing_env.core import scores
from packing_env.types import ParameterError

SCORED = [name for name, score in HEURISTICS.items() if score is not None]


def task(mode="placement", num_envs=6, **params):
    options = {"num_visible": 3, "preview": 1, "num_candidates": 40, **params}
    return tiny_env(num_envs, action_mode=mode, **options)


def rise(env, row, item, orientation, x, y, z):
    """Sum of the updated heightmap less the sum before, cells, by placing the item."""
    items, cell = env.catalogue.tensors(), env.params.cell
    before = env.state["heightmap"][row].double().numpy()
    after = before.copy()
    top = items["top"][item, orientation].double().numpy()
    for u, v in np.argwhere(np.isfinite(top)):
        after[x + u, y + v] = max(after[x + u, y + v], z * cell + top[u, v])
    return (after.sum() - before.sum()) / cell


def score(env, name, row, item, orientation, x, y, z):
    """The definitions of the module's table."""
    if name == "first_fit":
        return 0.0
    if name == "lowest_z":
        return 100 * z
    if name == "deepest_bottom_left":
        return x + y + 100 * z
    return x + y + 100 * rise(env, row, item, orientation, x, y, z)


def in_turn(env, seen, legal_items, order):
    """Visible items that may be scored, by the order."""
    volume = env.catalogue.tensors()["extent"].prod(-1)[seen["item_id"]].tolist()
    if order == "arrival":
        return [min(legal_items)]
    if order == "largest_first":
        return [max(legal_items, key=lambda slot: (volume[slot], -slot))]
    return sorted(legal_items)


def lattice_choice(env, td, row, name, order):
    """The action, by a loop in the order of ties."""
    params, seen = env.params, td["observation"][row]
    xs, ys = params.lattice
    legal = td["action_mask"][row].view(params.num_visible, -1, xs, ys)
    slots = in_turn(env, seen, legal.flatten(1).any(1).nonzero().squeeze(1).tolist(), order)
    z = seen["drop_height"].double().numpy() * params.height / params.cell
    best, choice = np.inf, None
    for x, y in np.ndindex(xs, ys):
        for slot in slots:
            for r in range(legal.shape[1]):
                if not legal[slot, r, x, y]:
                    continue
                item = int(seen["item_id"][slot])
                step = params.grid_step
                found = score(env, name, row, item, r, x * step, y * step, z[slot, r, x, y])
                if np.round(8 * found) < best:
                    best = np.round(8 * found)
                    choice = ((slot * legal.shape[1] + r) * xs + x) * ys + y
    return choice


def candidate_choice(env, td, row, name, order):
    """Likewise over the proposed placements, which the state holds as lattice indices."""
    params, seen = env.params, td["observation"][row]
    num_orientations = env.catalogue.tensors()["peak"].shape[1]
    shape = (params.num_visible, num_orientations, *params.lattice)
    places = [
        (k, *np.unravel_index(int(index), shape))
        for k, index in enumerate(env.state["candidate"][row])
        if index >= 0
    ]
    slots = in_turn(env, seen, {place[1] for place in places}, order)
    best, choice = np.inf, None
    for k, slot, r, x, y in sorted(places, key=lambda place: (*place[3:], *place[1:3])):
        if slot in slots:
            z = float(seen["candidates"][k, 2].double()) * params.height / params.cell
            item = int(seen["item_id"][slot])
            found = score(env, name, row, item, r, x, y, z)
            if np.round(8 * found) < best:
                best, choice = np.round(8 * found), k
    return choice


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("order", [None, "arrival", "largest_first"])
def test_placements_equal_a_loop(name, order):
    env = task(grid_step=2 if order == "arrival" else 1)
    policy, td = build(name, env, order), env.reset()
    for _ in range(5):
        td = policy(td)
        expected = [lattice_choice(env, td, row, name, order) for row in range(6)]
        assert td["action"].tolist() == expected
        _, td = env.step_and_maybe_reset(td)


@pytest.mark.parametrize("name", SCORED)
@pytest.mark.parametrize("order", [None, "largest_first"])
def test_candidates_equal_a_loop(name, order):
    env = task("candidate")
    policy, td = build(name, env, order), env.reset()
    for _ in range(5):
        td = policy(td)
        expected = [candidate_choice(env, td, row, name, order) for row in range(6)]
        assert td["action"].tolist() == expected
        _, td = env.step_and_maybe_reset(td)


@pytest.mark.parametrize("mode", ["placement", "candidate"])
@pytest.mark.parametrize("order", [None, *ITEM_ORDERS])
@pytest.mark.parametrize("name", HEURISTICS)
def test_every_heuristic_plays_whole_episodes_legally(name, order, mode):
    env = task(mode, num_envs=(2, 3))
    policy, td = build(name, env, order), env.reset()
    finished = 0
    for _ in range(8):
        td = policy(td)
        assert td["action"].shape == (2, 3)
        assert td["action_mask"].gather(-1, td["action"][..., None]).all()
        step, td = env.step_and_maybe_reset(td)
        assert not step["next", "metrics", "illegal_actions"].any()
        finished += int(step["next", "done"].sum())
    assert finished


@pytest.mark.parametrize("order", [None, "largest_first"])
@pytest.mark.parametrize("name", HEURISTICS)
def test_heuristics_play_the_same_placements_in_every_mode(name, order):
    """Where there is no mask of all placements, without the maps among the observations too."""
    played = {}
    for mode in ("placement", "multi_head", "hierarchical", "continuous"):
        lean = {"observation": ("heightmap",)} if mode in ("hierarchical", "continuous") else {}
        env = task(mode, num_envs=(2, 3), **lean)
        policy, td = build(name, env, order), env.reset()
        assert set(policy.out_keys) == set(env.action_keys)
        torch.manual_seed(0)
        for _ in range(8):
            _, td = env.step_and_maybe_reset(policy(td))
        assert not env.state["illegal_actions"].any()
        assert env.state["episode"].any()
        played[mode] = state_of(env)
    assert not any(differing(state, played["placement"]) for state in played.values())


@pytest.mark.parametrize("mode", ["placement", "candidate"])
def test_random_choices_spread(mode):
    torch.manual_seed(0)
    env = task(mode, num_envs=1)
    td = env.reset()
    mask = td["action_mask"][0]
    policy = build("random_legal", env)
    drawn = {int(policy(td.clone())["action"]) for _ in range(400)}
    assert len(drawn) > 0.4 * min(400, int(mask.sum()))
    if mode == "placement":
        offered = mask.view(3, -1).any(1).nonzero().squeeze(1).tolist()
        policy = build("lowest_z", env, "random")
        slots = {int(policy(td.clone())["action"]) // (len(mask) // 3) for _ in range(60)}
        assert slots == set(offered)


def test_stored_observations_are_enough_on_the_lattice():
    """In placement mode nothing but the TensorDict is read: any order of rows will do."""
    env = task()
    steps = play(env, 4).reshape(-1)
    policy = build("heightmap_minimization", env, "largest_first")
    together = policy(steps.clone())["action"]
    order = torch.randperm(len(steps))
    assert torch.equal(policy(steps[order].clone())["action"], together[order])


def test_spectra_in_parts(monkeypatch):
    env = task()
    td = env.reset()
    policy = build("heightmap_minimization", env)
    at_once = policy(td.clone())["action"]
    monkeypatch.setattr(scores, "_SPECTRUM_BYTES", 1)
    assert torch.equal(policy(td.clone())["action"], at_once)


@pytest.mark.parametrize("mode", ["placement", "candidate"])
def test_no_host_read(mode):
    env = task(mode)
    td = env.reset()
    policies = [build(name, env, order) for name in HEURISTICS for order in (None, "random")]
    with profile(activities=[ProfilerActivity.CPU]) as record:
        for policy in policies:
            policy(td)
    names = {event.key for event in record.key_averages()}
    assert not names & {"aten::item", "aten::_local_scalar_dense", "aten::nonzero"}


def test_a_newcomer_adds_one_function(monkeypatch):
    monkeypatch.setitem(HEURISTICS, "far_corner", lambda placements: -placements.x - placements.y)
    env = task()
    td = env.reset()
    far = build("far_corner", env)(td.clone())["action"]
    near = build("deepest_bottom_left", env)(td.clone())["action"]
    xs, ys = env.params.lattice
    assert torch.all(far % (xs * ys) > near % (xs * ys))


def test_what_cannot_be_built_is_named():
    env = task()
    with pytest.raises(ParameterError, match="tetris"):
        build("tetris", env)
    with pytest.raises(ParameterError, match="largest_first"):
        build("lowest_z", env, "heaviest")
    with pytest.raises(ParameterError, match="drop_height"):
        build("lowest_z", task(observation=("heightmap", "item_id")))
    build("random_legal", task(observation=("heightmap", "item_id")))
