"""Heuristics against a plain loop over all placements, in NumPy."""

import copy
import pickle

import numpy as np
import pytest
import torch
from tests.tiny import differing, state_of, tiny_env

from agents.heuristics import HEURISTICS, ITEM_ORDERS, build
from packing_env.types import ParameterError

SCORED = [name for name, score in HEURISTICS.items() if score is not None]


def task(mode="placement", num_envs=6, **params):
    options = {"num_visible": 3, "preview": 1, "num_candidates": 40, **params}
    return tiny_env(num_envs, action_mode=mode, **options)


def rise(env, row, item, orientation, x, y, z):
    """Return by how much placing the item raises the sum of the heightmap, in cells."""
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
    """Return the action, by a loop in the order in which ties are broken."""
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
    """Return the action, by a loop over the state's candidates, which are lattice indices."""
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
@pytest.mark.parametrize(
    ("choice", "order"),
    [
        *((lattice_choice, order) for order in (None, "arrival", "largest_first")),
        *((candidate_choice, order) for order in (None, "largest_first")),
    ],
)
def test_choices_equal_a_loop(choice, name, order):
    mode = "placement" if choice is lattice_choice else "candidate"
    env = task(mode, grid_step=2 if order == "arrival" else 1)
    policy, td = build(name, env, order), env.reset()
    for _ in range(5):
        td = policy(td)
        assert td["action"].tolist() == [choice(env, td, row, name, order) for row in range(6)]
        _, td = env.step_and_maybe_reset(td)


def test_the_first_entry_of_the_list_is_the_generators_choice():
    env = task("candidate", num_candidates=40)
    shorter = task("candidate", num_candidates=1)
    policy, td, only = build("first_listed", env), env.reset(), shorter.reset()
    for _ in range(6):
        td = policy(td)
        assert td["action"].eq(0).all()
        _, td = env.step_and_maybe_reset(td)
        _, only = shorter.step_and_maybe_reset(only.set("action", torch.zeros_like(td["action"])))
        assert torch.equal(env.state["placement"], shorter.state["placement"])


@pytest.mark.parametrize(("mode", "order"), [("placement", None), ("candidate", "arrival")])
def test_the_first_entry_needs_a_list_and_no_order(mode, order):
    with pytest.raises(ParameterError, match="first_listed needs action_mode='candidate'"):
        build("first_listed", task(mode), order)


@pytest.mark.parametrize("mode", ["placement", "candidate"])
def test_a_score_that_is_no_number_per_placement_is_named(mode, monkeypatch):
    env = task(mode)
    td = env.reset()
    for returned in (torch.zeros(7, 3), None, "low"):
        monkeypatch.setitem(HEURISTICS, "mine", lambda placements, value=returned: value)
        with pytest.raises(ParameterError, match="must return one score per placement"):
            build("mine", env)(td)
    monkeypatch.setitem(HEURISTICS, "mine", lambda placements: 0)  # the same for all
    assert env.step(build("mine", env)(td))["next", "metrics", "illegal_actions"].eq(0).all()


ORDERS = [None, *ITEM_ORDERS]
PAIRS = [(name, ORDERS[i % len(ORDERS)]) for i, name in enumerate(HEURISTICS)]
PAIRS += [("lowest_z", order) for order in ORDERS if ("lowest_z", order) not in PAIRS]
"""Each heuristic, and each order."""


@pytest.mark.parametrize(("name", "order"), PAIRS)
def test_every_heuristic_plays_whole_episodes_of_candidates_legally(name, order):
    env = task("candidate", num_envs=(2, 3))
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


@pytest.mark.parametrize(("name", "order"), PAIRS[: len(HEURISTICS)])
def test_heuristics_play_the_same_placements_in_every_mode(name, order):
    """In modes without a mask of all placements, heuristics also play without observed maps."""
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


@pytest.mark.parametrize("order", [None, *ITEM_ORDERS])
def test_heuristics_that_read_observations_act_in_other_processes(order):
    env = task()
    policy, td = build("deepest_bottom_left", env, order), env.reset()
    sent = pickle.loads(pickle.dumps(policy))
    torch.manual_seed(0)
    action = policy(td.clone())["action"]
    torch.manual_seed(0)
    assert (sent(td.clone())["action"] == action).all()


@pytest.mark.parametrize("mode", ["candidate", "hierarchical"])
def test_heuristics_that_read_the_state_stay_with_their_environment(mode):
    env = task(mode)
    policy = build("deepest_bottom_left", env)
    with pytest.raises(ParameterError, match="another process"):
        pickle.dumps(policy)
    twin, td = copy.deepcopy(policy), env.reset()
    for _ in range(3):
        own, other = policy(td.clone()), twin(td)
        assert all((own[key] == other[key]).all() for key in env.action_keys)
        td = env.step_and_maybe_reset(other)[1]
