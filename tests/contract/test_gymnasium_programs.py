"""Tests of what programs for Gymnasium expect: seeds, flat vectors, wrappers, step limits."""

import importlib.util
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, MultiBinary
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import VectorEnv
from gymnasium.wrappers import FilterObservation, FlattenObservation, RecordVideo
from gymnasium.wrappers import vector as wrappers
from tests.contract.test_gymnasium import TINY, legal, make

import packing_env as pe

MANY = TINY | {"pool_size": 512}
MAKE = "packing_env:Packing-v2"


def vector(num_envs: int = 3, **options: Any) -> VectorEnv:
    return gymnasium.make_vec(MAKE, num_envs=num_envs, **TINY | options)


def first_items(env: pe.PackingVectorEnv | pe.PackingGymEnv) -> list[list[int]]:
    """Return all items of each row's instance."""
    return env.packing_env.get_state()["item_id"].tolist()


# ---------------------------------------------------------------------- seeds


@pytest.mark.parametrize(
    ("seed", "each"), [([5, 5, 6], [5, 5, 6]), (5, [5, 6, 7]), (np.array([9, 2, 9]), [9, 2, 9])]
)
def test_a_row_plays_what_a_single_environment_plays(seed: Any, each: list[int]) -> None:
    rows = pe.PackingVectorEnv(num_envs=3, autoreset_mode="NEXT_STEP", seed=4, **TINY)
    singles = [pe.PackingGymEnv(seed=4, **TINY) for _ in each]
    observation, info = rows.reset(seed=seed)
    alone = [env.reset(seed=s)[0] for env, s in zip(singles, each, strict=True)]
    rng = np.random.default_rng(1)
    restarted, over = 0, [False] * 3
    for _ in range(14):  # also the episodes that follow
        for row, expected in enumerate(alone):
            assert all(np.array_equal(observation[k][row], expected[k]) for k in expected)
        action = legal(info["action_mask"], rng)
        observation, reward, terminated, truncated, info = rows.step(action)
        for row, env in enumerate(singles):
            if over[row]:
                alone[row], over[row] = env.reset()[0], False
                restarted += 1
                continue
            alone[row], gained, *ends, _ = env.step(int(action[row]))
            over[row] = any(ends)
            assert (gained, ends) == (reward[row], [terminated[row], truncated[row]])
    assert restarted >= 3


def test_a_construction_seed_is_that_of_the_first_reset() -> None:
    made, told = (pe.PackingVectorEnv(num_envs=3, seed=4, **TINY) for _ in "ab")
    made.reset()
    told.reset(seed=4)
    assert first_items(made) == first_items(told)
    made.reset()
    assert first_items(made) != first_items(told)


def test_a_row_without_a_seed_goes_on_with_its_stream() -> None:
    some, every = (pe.PackingVectorEnv(num_envs=2, seed=0, **MANY) for _ in "ab")
    for env in (some, every):
        env.reset(seed=[1, 2])
    some.reset(seed=[1, None])
    every.reset()
    assert first_items(some)[1] == first_items(every)[1]
    assert first_items(some)[0] != first_items(every)[0]
    every.reset(seed=[1, 2])
    assert first_items(some)[0] == first_items(every)[0]


@pytest.mark.parametrize("seed", [-1, 2**70, 2**63, 1.5, True])
def test_seeds_out_of_range_are_named(seed: Any) -> None:
    single, rows = pe.PackingGymEnv(**TINY), pe.PackingVectorEnv(num_envs=2, **TINY)
    calls = [
        lambda: single.reset(seed=seed),
        lambda: rows.reset(seed=seed),
        lambda: rows.reset(seed=[0, seed]),
        lambda: single.packing_env.set_seed(seed),
    ]
    for call in calls:
        with pytest.raises(pe.ParameterError, match=f"seed={seed}") as raised:
            call()
        whole = not isinstance(seed, (bool, float))
        largest = 2**63 - (2 if call is calls[1] else 1)  # row 1 gets seed + 1
        assert not whole or f"at most {largest}" in str(raised.value)
        assert not whole or "at least 0" in str(raised.value)
    with pytest.raises(pe.ParameterError, match=f"seed={2**63 - 1}"):
        rows.reset(seed=2**63 - 1)


@pytest.mark.parametrize("rows", [(2, 2), 0, 2.0])
def test_rows_are_a_single_number(rows: Any) -> None:
    with pytest.raises(pe.ParameterError, match="num_envs"):
        pe.PackingVectorEnv(num_envs=rows, **TINY)


def test_the_rows_of_a_given_environment_are_named_again() -> None:
    env = pe.make_env("irregular", 3, **TINY)
    with pytest.raises(ValueError, match="num_envs is its number of rows"):
        pe.PackingVectorEnv(env)
    assert pe.PackingVectorEnv(env, num_envs=3).num_envs == 3


# ---------------------------------------------------------------------- flat vectors


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"action_mode": "candidate", "num_candidates": 6},
        {"action_mode": "multi_head", "num_visible": 2},
        {"action_mode": "hierarchical", "num_visible": 2},
        {"action_mode": "continuous", "num_visible": 2},
    ],
    ids=str,
)
def test_flat_is_one_box_and_the_mask(options: dict[str, Any]) -> None:
    flat = gymnasium.make(MAKE, observation="flat", **TINY | options)
    check_env(flat.unwrapped, skip_render_check=True)
    names = ("heightmap", "item_features", "orientation_features")
    plain = gymnasium.make(MAKE, observation=names, **TINY | options)
    observation, info = flat.reset(seed=3)
    entries, _ = plain.reset(seed=3)
    used = [*names, *(["candidates"] if "candidates" in entries else [])]
    joined = np.concatenate([entries[name].ravel() for name in used])
    assert np.array_equal(observation["observation"], joined)
    assert isinstance(flat.observation_space["observation"], Box)
    assert flat.observation_space["observation"].shape == joined.shape
    masks = set(flat.observation_space) - {"observation"}
    assert masks == set(info) & {"action_mask", "manager_action_mask"}
    assert all(isinstance(flat.observation_space[name], MultiBinary) for name in masks)


# ---------------------------------------------------------------------- wrappers


def played(env: VectorEnv, steps: int = 9) -> tuple[Any, int]:
    """The last observation, and how many episodes ended."""
    rng = np.random.default_rng(0)
    observation, info = env.reset(seed=0)
    ended = 0
    for _ in range(steps):
        action = legal(info["action_mask"], rng) if "action_mask" in info else None
        action = env.action_space.sample() if action is None else action
        observation, _, terminated, truncated, info = env.step(action)
        assert observation in env.observation_space
        ended += int((terminated | truncated).sum())
    return observation, ended


OBSERVATION_WRAPPERS = {
    "filter": lambda env: wrappers.FilterObservation(env, ["observation"]),
    "flatten": wrappers.FlattenObservation,
    "normalize": lambda env: wrappers.NormalizeObservation(
        wrappers.FlattenObservation(wrappers.FilterObservation(env, ["observation"]))
    ),
    "normalize a part": lambda env: wrappers.NormalizeObservation(
        wrappers.TransformObservation(
            env,
            lambda entries: entries["observation"],
            single_observation_space=env.single_observation_space["observation"],
        )
    ),
}


@pytest.mark.parametrize("wrap", OBSERVATION_WRAPPERS.values(), ids=OBSERVATION_WRAPPERS)
def test_observation_wrappers_take_next_step(wrap: Any) -> None:
    with pytest.raises(ValueError, match="NEXT_STEP"):  # the remedy stands in docs/how-to
        wrap(vector(observation="flat"))
    env = wrap(vector(observation="flat", autoreset_mode="NEXT_STEP"))
    assert played(env)[1] >= 3


def test_wrappers_of_one_container_give_the_flat_vector() -> None:
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
def test_gymnasium_records_a_video(tmp_path: Path) -> None:
    env = RecordVideo(make(render_mode="rgb_array"), str(tmp_path), episode_trigger=lambda _: True)
    env.reset(seed=0)
    env.step(0)
    env.close()
    assert [path.suffix for path in tmp_path.iterdir()] == [".mp4"]


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_statistics_rewards_and_infos_take_both(mode: str) -> None:
    env = wrappers.RecordEpisodeStatistics(vector(autoreset_mode=mode))
    assert played(env)[1] == env.episode_count >= 3
    assert all(0 < length <= TINY["num_items"] for length in env.length_queue)
    reward = wrappers.NormalizeReward(wrappers.ClipReward(vector(autoreset_mode=mode), 0, 1))
    assert played(reward)[1] >= 3
    listed = wrappers.DictInfoToList(vector(autoreset_mode=mode))
    infos = listed.reset(seed=0)[1]
    assert len(infos) == 3
    assert all(info["action_mask"].any() for info in infos)


@pytest.mark.parametrize("mode", ["NEXT_STEP", "SAME_STEP"])
def test_rescaled_actions_reach_the_box(mode: str) -> None:
    inner = vector(action_mode="continuous", autoreset_mode=mode)
    low, high = np.float32(0), np.float32(10)
    env = wrappers.RescaleAction(inner, low, high)
    env.reset(seed=0)
    *_, info = env.step(np.full((3, 3), 5, np.float32))
    assert not info["illegal_actions"].any()
    assert played(env)[1] >= 1


# ---------------------------------------------------------------------- step limits


@pytest.mark.filterwarnings("ignore:.*is not in Discrete")
@pytest.mark.parametrize(
    "options",
    [{}, {"max_steps": 3}, {"illegal_action": "noop"}],
    ids=str,
)
def test_the_spec_has_the_environments_own_limit(options: dict[str, Any]) -> None:
    env = gymnasium.make(MAKE, **TINY | options)
    limit = env.unwrapped.packing_env.params.step_limit
    assert env.spec.max_episode_steps == limit
    again = gymnasium.make(env.spec)
    assert again.spec.max_episode_steps == limit
    rows, sync = vector(**options), vector(vectorization_mode="sync", **options)
    assert rows.spec.max_episode_steps == limit
    assert sync.envs[0].spec.max_episode_steps == limit
    remade = gymnasium.make_vec(rows.spec)
    assert remade.packing_env.params.step_limit == limit
    assert remade.num_envs == 3
    _, info = again.reset(seed=0)
    for step in range(1, limit + 1):
        noop = "illegal_action" in options
        *_, terminated, truncated, info = again.step(-1 if noop else info["action_mask"].argmax())
        assert truncated is (step == limit)
        if terminated:
            break
