"""`FlatObservation` and `ImageObservation`: spaces, contents, and the programs that take them."""

import importlib.util
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import RecordVideo
from tests.agents.conftest import TINY

import packing_env as pe


def make(**options: Any) -> Any:
    return gymnasium.make("packing_env:Packing-v2", **{**TINY, **options})


def test_a_vector_is_that_of_the_flat_observation() -> None:
    env, other = pe.FlatObservation(make()), make(observation="flat")
    seen, info = env.reset(seed=3)
    expected, _ = other.reset(seed=3)
    assert np.array_equal(seen, expected["observation"])
    assert env.observation_space == other.observation_space["observation"]
    assert env.observation_space.contains(seen)
    action = int(info["action_mask"].argmax())
    assert np.array_equal(env.step(action)[0], other.step(action)[0]["observation"])
    assert np.array_equal(pe.FlatObservation(other).reset(seed=3)[0], seen)
    assert env.get_wrapper_attr("action_masks")().any()


@pytest.mark.parametrize("grid_step", [1, 2])
def test_a_picture_shows_heights_and_where_items_come_to_rest(grid_step: int) -> None:
    plain = make(grid_step=grid_step)
    env = pe.ImageObservation(make(grid_step=grid_step))
    expected, info = plain.reset(seed=1)
    seen, _ = env.reset(seed=1)
    rest = expected["drop_height"]
    cells = expected["heightmap"].shape
    assert seen.shape == env.observation_space.shape == (1 + rest[..., 0, 0].size, *cells)
    assert seen.dtype == np.uint8
    assert not seen[0].any()
    last = rest.reshape(-1, *rest.shape[-2:])[-1]
    for x, y in np.ndindex(cells):
        value = last[x // grid_step, y // grid_step]
        assert abs(seen[-1, x, y] - 255 * value) <= 0.5
    seen = env.step(int(info["action_mask"].argmax()))[0]
    assert seen[0].any()


def test_what_cannot_be_wrapped_is_named() -> None:
    with pytest.raises(pe.ParameterError, match=r"drop_height.*observation=\["):
        pe.ImageObservation(make(observation=["heightmap"]))
    with pytest.raises(pe.ParameterError, match="heightmap"):
        pe.FlatObservation(make(observation=["item_id"]))
    with pytest.raises(pe.ParameterError, match="takes a Dict"):
        pe.ImageObservation(pe.FlatObservation(make()))
    with pytest.raises(pe.ParameterError, match="size=0"):
        pe.ImageObservation(make(), size=0)


@pytest.mark.skipif(
    importlib.util.find_spec("moviepy") is None, reason="moviepy (extra video) is not installed"
)
@pytest.mark.filterwarnings("ignore")
def test_gymnasium_records_a_video(tmp_path: Any) -> None:
    env = RecordVideo(make(render_mode="rgb_array"), str(tmp_path), episode_trigger=lambda _: True)
    env.reset(seed=0)
    env.step(0)
    env.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".mp4"]
