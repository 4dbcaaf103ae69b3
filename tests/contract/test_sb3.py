"""The adapter for Stable-Baselines3; most tests need that package (extra ``sb3``)."""

import importlib
import importlib.util
import sys
from typing import Any

import numpy as np
import pytest
from tests.contract.test_gymnasium import TINY, legal

import packing_env as pe

INSTALLED = importlib.util.find_spec("stable_baselines3") is not None
needs_sb3 = pytest.mark.skipif(not INSTALLED, reason="stable-baselines3 is not installed")


def adapter(num_envs: int = 3, **options: Any) -> Any:
    from packing_env.shells.sb3_vec_env import PackingSB3VecEnv

    return PackingSB3VecEnv(num_envs=num_envs, **TINY | options)


def test_without_the_package_the_import_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", None)
    monkeypatch.delitem(sys.modules, "packing_env.shells.sb3_vec_env", raising=False)
    with pytest.raises(ImportError, match="pip install stable-baselines3"):
        importlib.import_module("packing_env.shells.sb3_vec_env")


@needs_sb3
def test_steps_equal_those_of_the_vector_environment() -> None:
    env = adapter(seed=2)
    other = pe.PackingVectorEnv(num_envs=3, seed=2, observation="flat", **TINY)
    env.seed(6)
    seen = env.reset()
    expected, info = other.reset(seed=6)
    rng, ended = np.random.default_rng(0), 0
    for _ in range(9):
        assert np.array_equal(seen, expected["observation"])
        assert np.array_equal(np.stack(env.env_method("action_masks")), info["action_mask"] == 1)
        assert env.observation_space.contains(seen[0])
        action = legal(info["action_mask"], rng)
        seen, reward, done, infos = env.step(action)
        expected, gained, terminated, truncated, info = other.step(action)
        assert np.array_equal(reward, gained)
        assert np.array_equal(done, terminated | truncated)
        for row in range(3):
            if not done[row]:
                assert infos[row] == {}
                continue
            ended += 1
            final = info["final_obs"][row]["observation"]
            assert np.array_equal(infos[row]["terminal_observation"], final)
            assert infos[row]["TimeLimit.truncated"] == (truncated[row] and not terminated[row])
            assert infos[row]["utilization"] == info["final_info"]["utilization"][row]
    assert ended >= 3


@needs_sb3
def test_modes_that_do_not_fit_say_so() -> None:
    with pytest.raises(pe.ParameterError, match="use placement, candidate, multi_head"):
        adapter(action_mode="hierarchical", num_visible=2)
    heads = adapter(action_mode="multi_head")
    heads.reset()
    with pytest.raises(pe.ParameterError, match="'placement' or 'candidate'"):
        heads.env_method("action_masks")
    named = adapter(observation=("heightmap", "item_features"))
    seen = named.reset()
    assert set(seen) == set(named.observation_space) == {"heightmap", "item_features"}


@needs_sb3
@pytest.mark.parametrize("action_mode", ["placement", "candidate"])
def test_maskable_ppo_learns_with_legal_actions(action_mode: str) -> None:
    contrib = pytest.importorskip("sb3_contrib")
    from stable_baselines3.common.vec_env import VecMonitor

    env = VecMonitor(adapter(action_mode=action_mode), info_keywords=("illegal_actions",))
    agent = contrib.MaskablePPO("MlpPolicy", env, n_steps=16, batch_size=24, n_epochs=1, seed=0)
    agent.learn(96)
    assert len(agent.ep_info_buffer) > 5
    assert all(episode["illegal_actions"] == 0 for episode in agent.ep_info_buffer)


@needs_sb3
def test_continuous_actions_train_sac() -> None:
    from stable_baselines3 import SAC

    agent = SAC("MlpPolicy", adapter(action_mode="continuous"), learning_starts=12, batch_size=8,
                buffer_size=99, seed=0)  # fmt: skip
    agent.learn(30)
    assert agent.num_timesteps >= 30
