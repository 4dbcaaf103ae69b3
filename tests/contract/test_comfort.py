"""What a person sees at the prompt: the environment's text and picture, and warnings, once each."""

import warnings

import pytest
from tests.agents.conftest import TINY

import packing_env as pe


def test_gymnasium_warns_once_of_impossible_actions_and_of_steps_after_the_end():
    env = pe.PackingGymEnv("irregular", seed=0, **TINY)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="not in"):
        _, _, terminated, *_ = env.step(10**9)
    assert terminated
    with pytest.warns(UserWarning, match="after the episode ended"):
        env.step(0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.step(10**9)
        env.reset()
        env.step(-1)
