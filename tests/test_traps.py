"""Traps that published programs and packages fell into; each test says whose and what comes of it.

What is asserted is how this program behaves. Where that is not obvious the trap's own reading is
computed beside it, to show that the situation tells the two apart.
"""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.one_container import GEOMETRIES, env_of, may_put, place_of, put
from tests.tiny import state_of

from agents import heuristics
from packing_env.core import metrics
from packing_env.items import Catalogue, Mesh, mesh_from_arrays
from packing_env.plan import check_plan, make_plan, packing_of
from packing_env.testing import small_env

# ---------------------------------------------------------------------- rotated or not


def test_the_first_index_past_the_unrotated_places_is_rotated() -> None:
    """Online-3D-BPP-DRL asks ``idx > area`` where it means ``idx >= area`` (``bin3D.py``).

    The first rotated place would be taken for an unrotated one outside the container.
    """
    env = env_of([(3, 1, 2)], (10, 10, 10))
    area = 100
    state = put(env, 1, 0, 0)
    assert place_of(env, 1, 0, 0) == area
    assert state["placement"][0, 0].tolist() == [0, 1, 0, 0]
    assert state["heightmap"][0].nonzero().tolist() == [[0, 0], [0, 1], [0, 2]]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_the_last_rotated_place_is_the_last_corner(geometry: str) -> None:
    env = env_of([(3, 1, 2)], (10, 10, 10), geometry=geometry)
    assert may_put(env, 1, 9, 7)
    assert not may_put(env, 1, 9, 8)
    state = put(env, 1, 9, 7)
    assert state["placement"][0, 0].tolist() == [0, 1, 9, 7]
    assert state["heightmap"][0].nonzero().tolist() == [[9, 7], [9, 8], [9, 9]]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_every_candidate_is_placed_as_it_is_listed(geometry: str) -> None:
    """GOPT takes ``idx >= k - 1`` for rotated (``env.py``): off by one the other way round.

    Its last unrotated candidate would be placed rotated, at the last place of the list.
    """
    sides, size = (2, 1, 1), 4
    task = {"action_mode": "candidate", "candidate_generator": "all_placements"}
    count = 2 * (size - 1) * size
    env = env_of([sides], (size, size, size), geometry=geometry, **task, num_candidates=count)
    listed = env.state["candidate"][0].tolist()
    corners = itertools.product(range(2), range(size), range(size))
    expected = [
        (r, x, y) for r, x, y in corners if x + sides[r] <= size and y + sides[1 - r] <= size
    ]
    assert [place_of(env, *corner) for corner in expected] == listed
    for r, x, y in expected:
        env.reset()
        state = put(env, r, x, y)
        w, h = sides[r], sides[1 - r]
        assert state["heightmap"][0, x : x + w, y : y + h].tolist() == [[1.0] * h] * w
        assert int(state["heightmap"].sum()) == w * h


def tetrahedron() -> Mesh:
    """With legs of 2, 3 and 4 cm: no rotation maps it onto itself."""
    points = np.array([[0, 0, 0], [0.02, 0, 0], [0, 0.03, 0], [0, 0, 0.04]])
    return mesh_from_arrays(points, np.array([[0, 2, 1], [0, 1, 3], [0, 3, 2], [1, 2, 3]]))


def test_a_set_of_rotations_has_no_repetitions() -> None:
    """IrregularPacking_DRL tries 64 triples of Euler angles, among them only 24 rotations.

    Repeated ones cost time, and random choice prefers them.
    """
    corner = tetrahedron()
    one = {"cell": 0.01, "container": (0.1, 0.1, 0.1), "use_cache": False}
    found = Catalogue.from_meshes(corner, orientations="pi/2", **one)
    assert found.rotation.shape == (1, 24, 3, 3)
    assert len({tuple(map(tuple, r)) for r in found.rotation[0].tolist()}) == 24


@pytest.mark.parametrize("geometry", GEOMETRIES)
@pytest.mark.parametrize(("candidate_range", "last"), [("container", 8), ("pct", 5)])
def test_the_turned_item_may_go_where_the_unturned_would_stick_out(
    geometry: str, candidate_range: str, last: int
) -> None:
    """PCT's ``heuristic.py`` lets the corner range over where the *unrotated* item fits.

    So a bar along y is never put next to the far wall in x. It is the published setting of several
    tables, and here on request (``candidate_range="pct"``).
    """
    bar, container = [(4, 1, 1)], (9, 6, 5)
    env = env_of(bar, container, geometry=geometry, candidate_range=candidate_range)
    assert [x for x in range(9) if may_put(env, 1, x, 0)] == list(range(last + 1))
    assert [y for y in range(6) if may_put(env, 1, 0, y)] == [0, 1, 2]
    assert [x for x in range(9) if may_put(env, 0, x, 5)] == list(range(6))
    assert int(put(env, 1, 8, 2)["items_packed"]) == (candidate_range == "container")


# ---------------------------------------------------------------------- heuristics and candidates


@pytest.mark.parametrize("action_mode", ["placement", "candidate"])
def test_heightmap_minimization_sums_the_whole_map(action_mode: str) -> None:
    """IR-BPP sums the updated heights over the item's window alone (``space.py``).

    That counts what was there before, so it shuns stacking. Over the whole map a slab raises the
    sum by its volume wherever it lies flat, and the corner next to the origin wins: on the block.
    """
    env = env_of(
        [(2, 2, 2), (2, 2, 1)],
        (5, 5, 9),
        action_mode=action_mode,
        candidate_generator="all_placements",
    )
    put(env, 0, 0, 0)
    heights = state_of(env)["heightmap"][0].numpy()
    window_only = {}
    for x, y in itertools.product(range(4), range(4)):
        under = heights[x : x + 2, y : y + 2]
        window_only[x, y] = x + y + 100 * 4 * (under.max() + 1)
    assert min(window_only, key=window_only.__getitem__) == (0, 2)
    policy = heuristics.build("heightmap_minimization", env)
    root = env.reset(env.get_state(), set_state=True)
    env.step(policy(root))
    assert state_of(env)["placement"][0, 1].tolist() == [1, 0, 0, 0]


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_what_does_not_fit_into_a_list_is_counted(geometry: str) -> None:
    """Jumanji's BinPack drops empty spaces beyond its capacity and says nothing.

    A plan that needed one of them becomes impossible, and nobody learns why.
    """
    short = {"action_mode": "candidate", "candidate_generator": "all_placements"}
    sides = [(1, 1, 1)] * 3
    env = env_of(sides, (3, 3, 3), geometry=geometry, **short, num_candidates=5, num_spaces=2)
    root = env.rand_action(env.reset())
    assert root["metrics", "overflow"].item() == 9 - 5
    env.step(root.set("action", torch.tensor([4])))  # in the middle: five spaces for two places
    assert state_of(env)["placement"][0, 0, 2:].tolist() == [1, 1]
    assert int(state_of(env)["overflow"]) == (9 - 5) + (9 - 5) + (5 - 2)
    roomy = env_of(sides, (3, 3, 3), geometry=geometry, **short, num_candidates=9, num_spaces=16)
    put(roomy, 0, 1, 1)
    assert int(state_of(roomy)["overflow"]) == 0


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_an_item_too_wide_for_a_space_rests_on_what_is_beside_it(geometry: str) -> None:
    """OnlineBPH in PCT's ``heuristic.py`` does not ask whether the item fits into the space.

    Its program drops the item at the space's corner all the same. Taken at its word, the space
    would put the item into its neighbour.
    """
    env = env_of(
        [(1, 1, 1), (1, 1, 2), (2, 1, 1)],
        (3, 1, 5),
        geometry=geometry,
        orientations="none",
        action_mode="candidate",
        candidate_generator="split_space_drops",
        candidate_fallback=False,
        num_spaces=16,
    )
    put(env, 0, 0, 0)
    state = put(env, 0, 1, 0)
    assert [0, 0, 1, 1, 1, 5] in state["spaces"][0].tolist()  # one wide, beside the taller one
    assert state["candidate"][0, :2].tolist() == [place_of(env, 0, 0, 0), -1]
    assert state["candidate_z"][0, 0] == 2.0


# ---------------------------------------------------------------------- what no plan may hold


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_nothing_is_packed_above_the_container(geometry: str) -> None:
    """enzoruiz/3dbinpacking #1: items at z = 36 in a bin of height 4; #30: outside the walls."""
    env = env_of([(2, 2, 3), (1, 1, 2)], (2, 2, 4), geometry=geometry, illegal_action="noop")
    before = put(env, 0, 0, 0)
    assert bool(before["terminated"])  # nothing has room left
    env = env_of([(2, 2, 3), (1, 1, 2)], (3, 2, 4), geometry=geometry, illegal_action="noop")
    before = put(env, 0, 0, 0)
    assert not may_put(env, 0, 0, 0)
    after = put(env, 0, 0, 0)
    assert torch.equal(after["heightmap"], before["heightmap"])
    assert int(after["items_packed"]) == 1
    assert int(after["illegal_actions"]) == 1
    after = put(env, 0, 2, 1)
    assert int(after["items_packed"]) == 2


@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_three_items_at_one_place_are_a_stack(geometry: str, tmp_path: Path) -> None:
    """Janet-19/3d-bin-packing-problem #1: three items at the same coordinates.

    Here the second comes to rest on the first; and a plan that says otherwise is refused.
    """
    env = env_of([(1, 1, 1)] * 3, (3, 3, 3), geometry=geometry)
    for _ in range(3):
        state = put(env, 0, 1, 1)
    assert state["placement_z"][0].tolist() == [0.0, 1.0, 2.0]
    plan = make_plan(packing_of(env))
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(plan))
    assert check_plan(path).holds
    for item in plan["items"]:
        item["z"] = item["translation"][2] = 0.0
    path.write_text(json.dumps(plan))
    assert not check_plan(path).holds


def test_compactness_is_over_the_container_not_over_what_is_used() -> None:
    """IrregularPacking_DRL divides by the occupied rectangle: one item alone would be all dense."""
    env = env_of([(1, 2, 2), (1, 1, 1)], (4, 5, 6))
    measured = metrics.measure(put(env, 0, 0, 0), env.params)
    assert measured["compactness"].item() == pytest.approx(4 / (4 * 5 * 2))
    assert measured["utilization"].item() == pytest.approx(4 / (4 * 5 * 6))
    assert measured["pyramidality"].item() == pytest.approx(1.0)


def test_an_episode_may_be_longer_than_the_catalogue() -> None:
    """IrregularPacking_DRL asks for 50 objects of 16 meshes and silently packs 16."""
    env = small_env(num_items=40, num_envs=2)
    assert len(env.catalogue) == 6
    env.reset()
    assert env.state["num_items"].tolist() == [40, 40]
