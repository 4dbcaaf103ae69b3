"""Each constraint's mask equals the reference program, on random states and placements."""

from typing import Any

import pytest
import torch
from tests.one_container import env_of, may_put, put
from tests.small_tasks import small_env
from tests.tiny import act, catalogue, cuboids, maps_of, play_beside_reference, state_of, stream

from packing_env import Afterstates, PackingEnv, kernels, make_env
from packing_env.core import constraints, feasibility
from packing_env.core.orientation import decode_placement, visible_items
from packing_env.items.handling import read_handling
from packing_env.types import ParameterError, to_float32

HANDLING = {
    "weight": {"uniform": [0.5, 5]},
    "max_load": {"uniform": [1, 9], "seed": 1},
    "stackable": {"share": 0.5, "seed": 2},
    "fragile": {"share": 0.4, "seed": 3},
    "group": {"uniform": [1, 3], "seed": 4},
}
WHEEL_ARCH = [0.0, 0.0, 0.0, 0.025, 0.03, 0.02]
RULES: dict[str, dict[str, Any]] = {
    "no_stacking": {"no_stacking": True},
    "max_load": {"max_load": True},
    "fragile last": {"fragile": "last"},
    "fragile on top": {"fragile": "top"},
    "last in, first out": {"lifo": True},
    "weight limit": {"weight_limit": 9.0},
    "balance": {"balance": 0.1},
    "clearance": {"clearance": 0.01},
    "clearance of items alone": {"clearance": 0.012, "wall_clearance": 0.0},
    "clearance of walls alone": {"wall_clearance": 0.005},
    "pre-placed": {"preplaced": [WHEEL_ARCH, [0.05, 0.05, 0.02, 0.01, 0.01, 0.01]]},
    "all": {
        "no_stacking": True,
        "max_load": True,
        "fragile": "last",
        "lifo": True,
        "weight_limit": 15.0,
        "balance": 0.3,
        "clearance": 0.01,
        "preplaced": [[0.0, 0.0, 0.0, 0.02, 0.02, 0.01]],
    },
}
BOXES = {"geometry": "boxes", "action_mode": "candidate", "observation": ["boxes"]}


BACKENDS = [name for name in kernels.available_backends() if name in ("numba", "eager")]
"""Those whose masks `tests/contract/test_constraints.py` compares, for every constraint."""


def unconstrained(env: PackingEnv) -> torch.Tensor:
    """Return the legality of all placements without the constraints."""
    state, items = state_of(env), env.catalogue.tensors()
    visible = visible_items(state, env.params.num_visible)
    return feasibility.placement_maps(state["heightmap"], *visible, items, env.params).legal


def compare(env: PackingEnv, num_steps: int, seed: int = 0) -> int:
    """Compare all placements of random episodes; return how many a rule refuses in the last state.

    A placement that is judged alone has the verdict of the maps. So has an empty container.
    """
    env.reset()
    visible, there = visible_items(state_of(env), env.params.num_visible)
    floor = feasibility.legal_on_floor(env.catalogue.tensors(), env.params)[visible]
    assert torch.equal(maps_of(env).legal.flatten(3).any(3), floor & there[..., None])
    play_beside_reference(env, num_steps, None, seed)
    legal, orientations = maps_of(env).legal, env.mode.num_orientations
    one = torch.randint(0, legal[0].numel(), (len(legal),), generator=stream(seed))
    place = decode_placement(one, orientations, env.params)
    alone = feasibility.judge(state_of(env), place, env.catalogue.tensors(), env.params)
    assert torch.equal(alone, legal.flatten(1).gather(1, one[:, None])[:, 0])
    return int((unconstrained(env) & ~legal).sum())


@pytest.mark.parametrize("name", RULES)
def test_masks_equal_the_reference(name: str) -> None:
    """Irregular items: one visible item, and three on every second cell."""
    index = list(RULES).index(name)
    items = catalogue(seed=index, grid=(8, 7), num_items=8).with_handling(HANDLING)
    refused = 0
    for task in ({}, {"num_visible": 3, "grid_step": 2, "stability": "none"}):
        task = {"contact_tol": 0.005, "constraints": RULES[name], "num_items": 10, **task}
        refused += sum(compare(small_env(items, 3, **task), steps, index) for steps in (3, 6))
    assert (refused > 0) or name == "pre-placed"  # that is in the heightmap


def test_masks_of_cuboids_equal_the_reference() -> None:
    items = cuboids(num_items=8).with_handling(HANDLING)
    rules = {**RULES["all"], "clearance": 1.0, "balance": 0.4, "fragile": "top"}
    rules["preplaced"] = [[0.0, 0.0, 0.0, 2.0, 1.0, 2.0]]
    for number in range(3):
        chosen = {k: v for i, (k, v) in enumerate(rules.items()) if (i + number) % 3}
        env = small_env(items, 3, constraints=chosen, contact_tol=0.0)
        assert compare(env, 4, number) > 0


BETWEEN = [[0.0, 0.0, 0.0, 2.6, 1.3, 1.4], [4.5, 2.2, 1.0, 1.5, 2.3, 0.75]]
"""Pre-placed boxes whose sides, corners and tops are no whole numbers of cells of 1."""


def test_pre_placed_boxes_between_cells_are_those_of_the_reference() -> None:
    env = small_env(cuboids(num_items=8), 3, constraints={"preplaced": BETWEEN}, contact_tol=0.0)
    compare(env, 6)


def test_a_cuboid_stands_on_the_exact_top_of_a_pre_placed_box() -> None:
    slab = {"constraints": {"preplaced": [[0.0, 0.0, 0.0, 5.0, 5.0, 1.4]]}}
    tall = env_of([(1.0, 1.0, 4.0), (1.0, 1.0, 3.0)], (5.0, 5.0, 5.0), **slab)
    assert not may_put(tall, 0, 0, 0)
    low = env_of([(1.0, 1.0, 3.0), (1.0, 1.0, 1.0)], (5.0, 5.0, 5.4), **slab)
    state = put(low, 0, 0, 0)
    assert float(state["placement_z"][0, 0]) == to_float32(1.4)
    assert float(state["heightmap"][0, 0, 0]) == to_float32(4.4)
    assert may_put(low, 0, 0, 0)  # exactly up to the lid


def test_a_top_that_is_whole_but_for_rounding_is_whole() -> None:
    """Rounding may put a whole height just below itself; truncation must not then lose a cell."""
    slab = {"constraints": {"preplaced": [[0.0, 0.0, 1.0, 5.0, 5.0, 0.9999999]]}}
    env = env_of([(1.0, 1.0, 4.0), (1.0, 1.0, 3.0)], (5.0, 5.0, 5.0), **slab)
    assert env.state["heightmap"].unique().tolist() == [2.0]
    assert not may_put(env, 0, 0, 0)


def test_lists_of_packed_cuboids_refuse_pre_placed_boxes_between_cells() -> None:
    for option in ({"num_spaces": 8}, {"observation": ["heightmap", "boxes"]}):
        with pytest.raises(ParameterError, match=r"preplaced: the top of the box .*2\.6.*num_spac"):
            small_env(cuboids(), 2, constraints={"preplaced": BETWEEN}, contact_tol=0.0, **option)
        whole = {"preplaced": [[0.0, 0.0, 0.0, 2.6, 1.3, 2.0]]}
        small_env(cuboids(), 2, constraints=whole, contact_tol=0.0, **option)


def test_afterstates_have_heights_between_cells() -> None:
    env = small_env(cuboids(), 2, constraints={"preplaced": BETWEEN}, contact_tol=0.0)
    root, states = env.reset(), Afterstates(env)
    heights = states.heights(root["observation", "heightmap"]) * states.unit
    assert float((heights - env.state["heightmap"]).abs().max()) <= states.unit / 2 < 0.04


@pytest.mark.parametrize("mode", ["candidate", "multi_head", "continuous"])
def test_every_mode_keeps_the_constraints(mode: str) -> None:
    items = catalogue(seed=3, grid=(8, 7), num_items=8).with_handling(HANDLING)
    rules = {"max_load": True, "lifo": True, "clearance": 0.01}
    env = small_env(items, 8, constraints=rules, num_items=10, action_mode=mode)
    root, generator = env.reset(), stream()
    for _ in range(12):
        step, root = env.step_and_maybe_reset(act(env, root, generator))
        assert not step["next", "metrics", "illegal_actions"].any()


def test_a_state_is_restored_with_its_owners() -> None:
    items = catalogue(seed=1, num_items=8).with_handling(HANDLING)
    env = small_env(items, 4, constraints={"max_load": True})
    root, generator = env.reset(), stream()
    for _ in range(3):
        _, root = env.step_and_maybe_reset(act(env, root, generator))
    mask = root["action_mask"].clone()
    assert torch.equal(env.reset(env.get_state(), set_state=True)["action_mask"], mask)


def test_masks_read_nothing_back() -> None:
    """The mask is one graph: static shapes, and no value decides what is computed."""
    items = catalogue(seed=0, num_items=8).with_handling(HANDLING)
    env = small_env(items, 4, constraints=RULES["all"], num_items=10)
    env.reset()
    kernels.set_backend("eager")
    with torch.device("meta"):
        state = {k: torch.empty_like(v, device="meta") for k, v in state_of(env).items()}
        tensors = {
            k: torch.empty_like(v, device="meta") for k, v in env.catalogue.tensors().items()
        }
        item_id = torch.empty(4, 1, dtype=torch.int64)
        z = torch.empty(4, 1, env.mode.num_orientations, *env.params.lattice)
        found = constraints.allowed_maps(state, item_id, z, tensors, env.params)
    assert found.shape == z.shape


def test_the_weight_passes_down() -> None:
    """A tower of three: the lowest bears both others, and a fourth would be too much."""
    task = {"container": (2.0, 2.0, 8.0), "cell": 1.0, "num_items": 6, "action_mode": "placement"}
    env = make_env(
        "cuboid_online",
        items={"source": "cuboids", "extents": [[2, 2, 1]]},
        generator="uniform",
        constraints={"max_load": True},
        handling={"weight": 2.0, "max_load": 5.0},
        pool_size=4,
        **task,
    )
    root = env.reset()
    for count in range(3):
        assert int(env.state["items_packed"]) == count
        step, root = env.step_and_maybe_reset(act(env, root, stream()))
    assert step["next", "terminated"].item()
    assert step["next", "metrics", "items_packed"].item() == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"constraints": {"clearence": 1.0}}, "did you mean clearance"),
        ({"constraints": {"fragile": "first"}}, "choose one of"),
        ({"constraints": {"weight_limit": -1.0}}, "constraints.weight_limit=-1.0"),
        ({"constraints": {"weight_limit": 5.0}}, "read the attribute weight of the items"),
        ({"constraints": {"clearance": 5.0}}, "leaves no room .* give less than"),
        ({"constraints": {"preplaced": [[0, 0, 0, 9, 1, 1]]}}, "reaches out of the container"),
        ({"constraints": {"lifo": True}, **BOXES}, "need geometry='maps'"),
        ({"constraints": {"weight_limit": 1.0}, "action_mode": "hierarchical"}, "hierarchical"),
        # They hold for orders of boxes.
        ({"constraints": {"support": 0.8}}, r"\.support.*orders of boxes"),
        ({"constraints": {"door": "rear"}}, r"\.door.*orders of boxes"),
        ({"handling": {"layers": 2}}, r"\.layers.*orders of boxes"),
        ({"handling": {"on_like": True}}, r"\.on_like.*orders of boxes"),
        ({"handling": {"wieght": 1.0}}, "did you mean weight"),
        ({"handling": {"fragile": 1}}, "must be true or false"),
        ({"handling": {"fragile": {"density": 1.0}}}, "must be a mapping of share"),
        ({"handling": {"weight": [1.0, 2.0]}}, "has 2 values for"),
    ],
)
def test_mistakes_are_named(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make_env(
            "irregular_com_hull", items={"source": "shapes", "families": ["household"]}, **options
        )


def test_handling_of_an_item_of_an_order() -> None:
    entries = {"layers": 3, "on_like": True, "weight": 2.0}
    assert read_handling(entries) == entries
    assert read_handling({"layers": None, "on_like": False}) == {}
    for wrong in ({"layers": 0}, {"layers": 1.5}, {"on_like": 1}, {"weight": [1.0]}):
        with pytest.raises(ParameterError, match=f"handling.{next(iter(wrong))}="):
            read_handling(wrong)
    with pytest.raises(ParameterError, match="layers"):
        read_handling({"layer": 3})
