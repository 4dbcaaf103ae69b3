"""All placements at once equal one placement at a time."""

import pytest
import torch
from tests.tiny import play_once, state_of, stream, tiny_env

from packing_env.core import feasibility
from packing_env.core.orientation import decode_placement, visible_items
from packing_env.testing import KNOWN_RULES


@pytest.mark.parametrize(("grid_step", "candidate_range"), [(1, "container"), (2, "pct")])
@pytest.mark.parametrize("stability", KNOWN_RULES)
def test_maps_equal_single_placements(stability: str, grid_step: int, candidate_range: str) -> None:
    env = tiny_env(
        3,
        num_visible=2,
        stability=stability,
        grid_step=grid_step,
        candidate_range=candidate_range,
    )
    play_once(env, 3, stream())
    state, items = state_of(env), env.catalogue.tensors()
    item_id, there = visible_items(state, 2)
    maps = feasibility.placement_maps(state["heightmap"], item_id, there, items, env.params)
    z, legal = maps.z.flatten(1), maps.legal.flatten(1)
    for index in range(0, env.mode.num_actions, 3):
        place = decode_placement(torch.full((3,), index), env.mode.num_orientations, env.params)
        assert torch.equal(feasibility.judge(state, place, items, env.params), legal[:, index])
        chosen = item_id.gather(1, place.slot[:, None]).squeeze(1)
        rest = feasibility.ground(items, env.params).at_rest(state, chosen, place)
        good = legal[:, index]
        assert torch.equal(rest.z[good], z[good, index])


def test_padding_orientations_are_never_legal() -> None:
    env = tiny_env(2, num_visible=3)
    env.reset()
    state, items = state_of(env), env.catalogue.tensors()
    item_id, there = visible_items(state, 3)
    maps = feasibility.placement_maps(state["heightmap"], item_id, there, items, env.params)
    padding = ~items["orientation_mask"][item_id]
    assert padding.any()
    assert not maps.legal[padding].any()
    assert maps.z[padding].isinf().all()


@pytest.mark.parametrize("grid_step", [1, 2])
def test_range_pct_is_that_of_the_unrotated_item(grid_step: int) -> None:
    """With "pct", orientation 0 must also be inside at the lower corner; rest heights stay."""
    env = tiny_env(3, num_visible=2, grid_step=grid_step)
    play_once(env, 3, stream())
    state, items = state_of(env), env.catalogue.tensors()
    item_id, there = visible_items(state, 2)
    quirk = env.params.evolve(candidate_range="pct")
    given = (state["heightmap"], item_id, there, items)
    free, kept = (feasibility.placement_maps(*given, params) for params in (env.params, quirk))
    assert torch.equal(free.z, kept.z)
    assert 0 < kept.legal.sum() < free.legal.sum()
    w, h = items["size"][item_id, 0].unbind(-1)
    for x in range(free.z.shape[3]):
        for y in range(free.z.shape[4]):
            fits = (x * grid_step + w <= env.params.grid[0]) & (
                y * grid_step + h <= env.params.grid[1]
            )
            expected = free.legal[..., x, y] & fits[..., None]
            assert torch.equal(kept.legal[..., x, y], expected)


def test_the_lid_is_closed_just_above_a_micrometre() -> None:
    """float32(z + peak) <= float32(H + 1e-6)."""
    env = tiny_env(1, stability="none")
    items = dict(env.catalogue.tensors())
    zero = torch.zeros(1, dtype=torch.int64)
    ground = torch.zeros(1, *env.params.grid)
    for above, legal in ((0.0, True), (0.9e-6, True), (3e-6, False)):
        items["peak"] = torch.full_like(items["peak"], env.params.height + above)
        item, there = zero[:, None], zero[:, None] == 0
        found = feasibility.placement_maps(ground, item, there, items, env.params)
        assert bool(found.legal[0, 0, 0, 0, 0]) is legal
