"""What a person sees at the prompt: the environment's text and picture, and warnings, once each."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from tests.agents.conftest import TINY

import packing_env as pe


def test_the_text_of_an_environment_says_what_it_is():
    said = repr(pe.make_env("irregular", num_envs=3, **TINY))
    for part in ("0.08 x 0.08 x 0.06", "4 x 4 cells", "com_hull", "placement", "[3]", "cpu"):
        assert part in said


def test_an_environment_draws_its_containers():
    env = pe.make_env("irregular", num_envs=2, **TINY)
    env.rollout(3, break_when_any_done=False)
    assert env.render().shape == env.render(1).shape
    assert env.render().dtype == np.uint8
    with pytest.raises(pe.ParameterError, match=r"row=2 must be .* at most 1"):
        env.render(2)
    bare = pe.PackingEnv(env.params, env.catalogue, env.instances)
    with pytest.raises(pe.ParameterError, match=r"packing_env\.render\.frame"):
        bare.render()


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


def test_the_vector_environment_warns_as_well():
    env = pe.PackingVectorEnv("irregular", num_envs=2, seed=0, autoreset_mode="DISABLED", **TINY)
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="not in"):
        _, _, terminated, *_ = env.step(np.array([10**9, -1]))
    assert terminated.all()
    with pytest.warns(UserWarning, match="after the episode ended"):
        env.step(np.array([0, 0]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        env.step(np.array([10**9, 0]))
        again = pe.PackingVectorEnv("irregular", num_envs=2, seed=0, **TINY)
        again.reset(seed=0)
        again.step(again.action_masks().argmax(1))
