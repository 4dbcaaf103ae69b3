"""Heuristics for cuboids against plain loops over lists of boxes, in both geometries and modes."""

import itertools

import pytest
import torch
from tests.agents import plain_heuristics as plain
from tests.agents.heuristics.test_heuristics import SCORED
from tests.small_tasks import small_env

from agents.heuristics import build
from packing_env import make_env
from packing_env.items import Catalogue
from packing_env.types import Instances, ParameterError

GRID = (6, 5, 7)
EXTENTS = [box for box in itertools.product((1, 2, 3), repeat=3) if sum(box) > 3]
ROWS = 8


def task(mode="maps placement", rows=ROWS, extents=EXTENTS, grid=GRID, seed=0, **options):
    """Cuboids of whole units in a container of ``grid`` cells of 1.

    ``mode`` is geometry and action mode.
    """
    geometry, action_mode = mode.split()
    options = {
        "num_items": 14,
        "num_visible": 1,
        "num_spaces": 64,
        "stability": "none",
        "stability_metric": "none",
        "contact_tol": 0.0,
        "action_mode": action_mode,
        "geometry": geometry,
        "unit": None,
        "candidate_fallback": False,
        "observation": ("heightmap", "item_id", "drop_height")[: 3 - (geometry == "boxes")],
        **options,
    }
    unit = options["unit"] or 1.0
    if action_mode == "candidate":
        lattice = round(grid[0] / unit) * round(grid[1] / unit)
        options.setdefault("candidate_generator", "all_placements")
        options.setdefault("num_candidates", 6 * lattice * options["num_visible"])
    catalogue = Catalogue.from_cuboids(
        torch.tensor(extents, dtype=torch.float64) * unit,
        cell=unit,
        container=tuple(map(float, grid)),
        orientations=options.pop("orientations", "cuboid"),
        maps=geometry == "maps",
    )
    stream = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(extents), (rows, options["num_items"]), generator=stream)
    instances = Instances(drawn, torch.full((rows,), options["num_items"]))
    options["cell"] = 1.0
    return small_env(catalogue, rows, instances=instances, shell={"draw": "sequential"}, **options)


def shape_of(env):
    return (env.params.num_visible, env.catalogue.tensors()["peak"].shape[1], *env.params.lattice)


def place_of(env, index):
    """``(item, orientation, x, y)`` of an index."""
    place = []
    for count in reversed(shape_of(env)):
        index, rest = divmod(index, count)
        place.append(rest)
    return tuple(reversed(place))


def offered(env, td, row):
    """The placements that the environment offers, as a set, and by action."""
    mask = td["action_mask"][row]
    if env.params.action_mode == "placement":
        index = mask.nonzero().squeeze(1).tolist()
        return {place_of(env, i): i for i in index}
    listed = env.state["candidate"][row].tolist()
    return {place_of(env, i): k for k, i in enumerate(listed) if i >= 0}


def scene_of(env, td, row):
    """The plain view of one row; what is legal by a stability rule is taken from the mask."""
    items, state = env.catalogue.tensors(), env.state
    count = int(state["num_items"][row] - state["items_packed"][row])
    queue = state["queue"][row][: min(count, env.params.num_visible)]
    boxes = state["boxes"][row][: int(state["items_packed"][row])].tolist()
    spaces = [s for s in state["spaces"][row].tolist() if s[3] > s[0]]
    sizes = []
    for item in state["item_id"][row][queue].tolist():
        there = items["orientation_mask"][item]
        sizes.append([tuple(size) for size in items["cuboid"][item][there].tolist()])
    sides = (*env.params.lattice, env.params.height_units)
    kinds = [tuple(kind) for kind in items["cuboid"][:, 0].tolist()]
    types, volume = plain.br_types(kinds, sides, env.params.geometry)
    ruled = env.params.stability != "none"
    choices = offered(env, td, row)
    return plain.Scene(
        sides,
        boxes,
        spaces,
        sizes,
        (lambda choice: choice in choices) if ruled else (lambda choice: True),
        types,
        volume,
    )


def live_rows(td):
    return [row for row, done in enumerate(td["done"].squeeze(-1).tolist()) if not done]


def compare(env, names, steps):
    """Play, and compare every heuristic in every live state: more than 60 % of all states.

    Where the loops find nothing the policy must return -1.
    """
    policies = {name: build(name, env, fallback=False) for name in names}
    movers = [*policies.values(), build("random_legal", env)]
    td, states = env.reset(), 0
    for step in range(steps):
        live = live_rows(td)
        states += len(live)
        scenes = {row: (scene_of(env, td, row), offered(env, td, row)) for row in live}
        for name, policy in policies.items():
            actions = policy(td.clone())["action"].tolist()
            for row, (scene, actions_of) in scenes.items():
                choice = plain.RULES[name](scene)
                expected = -1 if choice is None else actions_of[choice]
                assert actions[row] == expected, (name, step, row)
        td = movers[step % len(movers)](td)
        chosen = td["action"]
        td["action"] = torch.where(chosen < 0, td["action_mask"].byte().argmax(1), chosen)
        _, td = env.step_and_maybe_reset(td)
    assert states > 0.6 * steps * len(td)


FINE = [(1, 3, 2), (5, 2, 3), (4, 4, 1), (3, 3, 5), (2, 2, 4)]
BOTH = ("maps placement", "boxes candidate")


@pytest.mark.parametrize(
    ("mode", "steps", "options"),
    [
        *((mode, 21, {}) for mode in (*BOTH, "maps candidate")),
        *((mode, 12, {"stability": "center_hull"}) for mode in BOTH),
        *((mode, 8, {"num_visible": 3}) for mode in BOTH),
        ("boxes candidate", 12, {"extents": FINE, "grid": (4, 3, 4), "unit": 0.5}),
    ],
)
def test_heuristics_equal_loops(mode, steps, options):
    """The last lattice is finer than the cells."""
    compare(task(mode, **options), list(plain.RULES), steps)


@pytest.mark.parametrize("name", SCORED)
def test_scores_choose_alike_in_both_geometries(name):
    """Among the same candidates; those of maps are compared with loops in `test_heuristics.py`."""
    played = []
    for mode in ("maps candidate", "boxes candidate"):
        env = task(mode, rows=6, seed=2)
        policy, td, chosen = build(name, env), env.reset(), []
        for _ in range(14):
            td = policy(td)
            chosen.append(env.state["candidate"].gather(1, td["action"][:, None]))
            _, td = env.step_and_maybe_reset(td)
        played.append(torch.stack(chosen))
    assert torch.equal(*played)


GENERATOR = {
    "online_bph": "split_space_drops",
    "lsah": "split_spaces",
    "br": "split_spaces",
    "best_fit": "split_spaces",
}
"""What proposes all that a heuristic may choose."""
MORE = [(name, "split_space_drops") for name in ("lsah", "br")]  # more than it may choose


@pytest.mark.parametrize(("name", "generator"), [*GENERATOR.items(), *MORE])
def test_with_a_generator_that_proposes_all_it_may_choose(name, generator):
    """The choice equals that of loops that ignore the candidate list."""
    options = {"candidate_generator": generator, "num_candidates": 400}
    env = task("boxes candidate", **options)
    compare(env, [name], 12)
    assert not env.state["overflow"].any()


# ---------------------------------------------------------------------- what else is promised


def test_without_a_proposal():
    """A heuristic without a proposal plays the first legal action, or none and ends the episode."""
    # The corner of the only space lies between two points of the lattice.
    extents = [(1, 2, 2), (2, 2, 1)]
    options = {"num_items": 2, "orientations": "none", "grid_step": 2}
    env = task(rows=1, extents=extents, grid=(4, 2, 2), **options)
    env.instances.item_id[:] = torch.arange(2)
    root = env.reset().set("action", torch.tensor([0]))  # the first box, in the corner
    _, td = env.step_and_maybe_reset(root)
    assert place_of(env, int(build("lsah", env)(td.clone())["action"])) == (0, 0, 1, 0)
    stop = build("lsah", env, fallback=False)(td)
    assert stop["action"].tolist() == [-1]
    step = env.step(stop)["next"]
    assert bool(step["terminated"])
    assert int(step["metrics", "items_packed"]) == 1


def test_br_plays_an_instance_alike_whatever_the_pool():
    """The pools have 960 and 1,040 cuboids; the heightmap's cells do not matter either."""
    played, counted = [], []
    for pool_size, cell in ((12, 0.01), (13, 0.01), (12, 0.1)):
        env = make_env(
            "cuboid_continuous", 4, pool_size=pool_size, draw="sequential", cell=cell, seed=1
        )
        policy, td, actions = build("br", env), env.reset(), []
        counted.append(policy.types)
        for _ in range(12):
            td = policy(td)
            kept = env.state["candidate"].gather(1, td["action"][:, None])
            actions.append(kept.squeeze(1))
            _, td = env.step_and_maybe_reset(td)
        played.append(torch.stack(actions))
    assert all(torch.equal(types, counted[0]) for types in counted)
    assert all(torch.equal(actions, played[0]) for actions in played)


@pytest.mark.parametrize(
    ("name", "generator"),
    [("online_bph", "split_spaces"), *((name, "lowest_z") for name in GENERATOR)],
)
def test_a_generator_that_leaves_places_out_is_refused(name, generator):
    mode = "maps candidate" if generator == "lowest_z" else "boxes candidate"
    env = task(mode, rows=1, candidate_generator=generator, num_candidates=50)
    remedy = f"set candidate_generator='{GENERATOR[name]}'"
    with pytest.raises(ParameterError, match=f"'{generator}' does not propose; {remedy}"):
        build(name, env)
    assert build(name, task(rows=1, candidate_generator=generator)).params  # asks for none
