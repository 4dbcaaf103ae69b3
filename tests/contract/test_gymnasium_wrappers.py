"""Gymnasium's own wrappers of one container."""

import importlib.util
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.wrappers import FilterObservation, FlattenObservation, RecordVideo
from tests.agents.conftest import TINY


def make(**options: Any) -> Any:
    return gymnasium.make("packing_env:Packing-v2", **{**TINY, **options})


def test_gymnasiums_wrappers_give_the_flat_vector() -> None:
    plain = make(observation="flat")
    env = FlattenObservation(FilterObservation(make(observation="flat"), ["observation"]))
    seen, info = env.reset(seed=3)
    assert np.array_equal(seen, plain.reset(seed=3)[0]["observation"])
    action = int(info["action_mask"].argmax())
    assert np.array_equal(env.step(action)[0], plain.step(action)[0]["observation"])
    assert env.get_wrapper_attr("action_masks")().any()


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
