"""Scores of placements, and the candidate generators that offer the best by a score."""

import pytest
import torch
from tests.tiny import maps_of, stream, tiny_env

from agents.heuristics import build
from packing_env.core import candidates, scores
from packing_env.core.orientation import visible_items
from packing_env.types import PackingParams

NAMES = ("deepest_bottom_left", "heightmap_minimization")


def scene_of(env):
    state = dict(env.state.items())
    item_id, there = visible_items(state, env.params.num_visible)
    items = env.catalogue.tensors()
    return candidates.Scene(state, item_id, there, maps_of(env), items, env.params)


@pytest.mark.parametrize("name", NAMES)
def test_the_best_by_a_score_in_the_order_of_ties(name):
    """Each next candidate is what the heuristic plays when those before it are taken away."""
    env = tiny_env(3, num_visible=2, num_candidates=12)
    policy, td = build(name, env), env.reset()
    for _ in range(4):
        found = candidates.get_generator(name)(scene_of(env))
        assert not found.dropped.any()
        left = td.clone()
        for index in found.index.unbind(1):
            some = left["action_mask"].any(1)
            expected = torch.where(some, policy(left)["action"], -1)
            assert torch.equal(index, expected)
            taken = torch.nn.functional.one_hot(index.clamp(min=0), left["action_mask"].shape[1])
            left["action_mask"] &= taken == 0
        _, td = env.step_and_maybe_reset(build("random_legal", env)(td))


@pytest.mark.parametrize("name", NAMES)
def test_offered_as_candidates(name):
    """The heuristic finds its choice among them, first in the list."""
    free = tiny_env(4, num_visible=2)
    short = tiny_env(4, num_visible=2, action_mode="candidate", candidate_generator=name)
    policies = build(name, free), build(name, short)
    seen = free.reset(), short.reset()
    for _ in range(6):
        one, other = (policy(td) for policy, td in zip(policies, seen, strict=True))
        assert not other["action"].any()
        assert torch.equal(short.state["candidate"][:, 0], one["action"])
        seen = free.step_and_maybe_reset(one)[1], short.step_and_maybe_reset(other)[1]
        assert torch.equal(free.state["heightmap"], short.state["heightmap"])


def test_ties_and_what_is_not_legal():
    score = torch.tensor([[0.0, 0.05, 0.2, torch.inf, torch.nan, -3.0]])
    legal = torch.tensor([[True, True, True, False, False, True]])
    never = scores.NEVER
    assert scores.ticks(score, legal).tolist() == [[0, 0, 2, never, never, -24]]


@pytest.mark.parametrize("pitches", [1, 4])
def test_boxes_raise_the_cells_they_touch(pitches):
    """By a loop over the raster's cells."""
    params = PackingParams(
        container=(5.0, 4.0, 6.0), cell=1.0, unit=1 / pitches, geometry="boxes",
        action_mode="candidate", observation=("heightmap",),
    )  # fmt: skip
    random = stream(3)
    heights = torch.randint(0, 6 * pitches, (2, 5, 4), generator=random).double()
    size = torch.randint(1, 2 * pitches + 1, (2, 30, 3), generator=random)
    lower = torch.randint(0, 2 * pitches, (2, 30, 2), generator=random)
    z = torch.randint(0, 4 * pitches, (2, 30), generator=random).double()
    found = scores.summed_rise_of_boxes(heights, lower, size, z, params)
    for row in range(2):
        for k in range(30):
            rise = 0.0
            top = float(z[row, k] + size[row, k, 2])
            for x in range(5):
                for y in range(4):
                    touches = all(
                        int(lower[row, k, a]) < (cell + 1) * pitches
                        and int(lower[row, k, a] + size[row, k, a]) > cell * pitches
                        for a, cell in enumerate((x, y))
                    )
                    rise += touches * max(0.0, top - float(heights[row, x, y]))
            assert float(found[row, k]) == rise
