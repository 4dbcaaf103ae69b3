"""Observations are finite, bounded and right."""

import pytest
import torch
from tests.tiny import cuboid_env, play, play_once, stream, tiny_env

from packing_env.core import observation


def test_drop_height_is_one_where_illegal() -> None:
    root = play(tiny_env(4, num_visible=2), 6)
    seen, mask = root["observation", "drop_height"].flatten(2), root["action_mask"]
    assert (seen[~mask] == 1).all()
    assert (seen[mask] < 1).all()


def test_outside_a_footprint_top_is_0_and_bottom_1() -> None:
    env = tiny_env(4, num_visible=2, preview=1)
    root = env.reset()
    top = env.catalogue.top[root["observation", "item_id"]]
    outside = ~top.isfinite()
    assert (root["observation", "top"][outside] == 0).all()
    assert (root["observation", "bottom"][outside] == 1).all()
    inside = root["observation", "top"][~outside]
    assert torch.allclose(inside, (top[~outside] / env.params.height).clamp(0, 1))


def test_places_without_an_item_are_empty() -> None:
    env = tiny_env(3, num_items=4, num_visible=3, preview=1, container=(0.08, 0.07, 0.4))
    seen = play_once(env, 3, stream())[-1]["observation"]
    left = env.state["num_items"] - env.state["items_packed"]
    gone = torch.arange(4) >= left[:, None]
    assert gone.any()
    assert (seen["item_id"][gone] == -1).all()
    for name, filler in (("item_features", 0), ("orientation_features", 0), ("top", 0)):
        assert (seen[name][gone] == filler).all(), name
    assert (seen["bottom"][gone] == 1).all()


def test_item_features_by_hand() -> None:
    env = tiny_env(1, num_visible=1)
    root = env.reset()
    row = int(root["observation", "item_id"])
    names = observation.ITEM_FEATURES
    seen = dict(zip(names, root["observation", "item_features"][0, 0].tolist(), strict=True))
    dx, dy, dz = env.catalogue.extent[row].tolist()
    volume = float(env.catalogue.volume[row])
    assert seen["dx"] == pytest.approx(dx / max(env.params.container))
    assert seen["dz"] == pytest.approx(dz / max(env.params.container))
    assert seen["volume"] == pytest.approx(volume / env.params.container_volume)
    assert seen["fill"] == pytest.approx(min(1.0, volume / (dx * dy * dz)))
    assert seen["remaining"] == 1.0
    assert seen["there"] == 1.0


def test_packed_boxes_are_shares_of_the_sides_at_any_step() -> None:
    """With a step of two cells, x and y were divided by the number of steps."""
    env = cuboid_env(4, grid_step=2, observation=("heightmap", "boxes"), stability="none")
    play(env, 3)
    sides = torch.tensor([*env.params.grid, env.params.height_units] * 2)
    expected = (env.state["boxes"] / sides).float()
    boxes = observation.packed_boxes(dict(env.state.items()), env.params)
    assert torch.equal(boxes, expected)
    assert float(boxes[:, 0, 3:5].max()) > 0
