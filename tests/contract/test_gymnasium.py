"""The Gymnasium environments, as Gymnasium programs and TorchRL's wrappers use them."""

import warnings

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import RecordEpisodeStatistics
from tensordict import TensorDictBase
from torchrl.envs import GymEnv, GymWrapper, check_env_specs

import packing_env as pe
from packing_env.registration import FORMER, IDS, register_all

TINY = {"resolution": 8, "num_items": 5, "pool_size": 16, "orientations": "yaw"}
MODES = [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED]


def make(**options: object) -> gymnasium.Env:
    return gymnasium.make("packing_env:Packing-v2", **TINY | options)


def legal(mask: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw a random legal action per row."""
    return np.array([rng.choice(np.flatnonzero(row)) for row in np.atleast_2d(mask)])


def first_legal(tensordict: TensorDictBase) -> TensorDictBase:
    """Return a masked TorchRL policy; GymEnv's own random actions may be illegal."""
    mask = tensordict["action_mask"]
    return tensordict.set("action", mask.to(torch.int64).argmax(-1))


@pytest.mark.parametrize("name", FORMER)
def test_a_former_version_makes_its_preset_and_says_so(name: str) -> None:
    newest = "v2" if name.startswith("Packing-") else "v1"
    with pytest.warns(DeprecationWarning, match=f"out of date.*upgrading to version `{newest}`"):
        env = gymnasium.make(name, resolution=8, pool_size=2)
    assert gymnasium.spec(name).kwargs == {"task": FORMER[name]}
    assert isinstance(env.unwrapped, pe.PackingGymEnv)


@pytest.mark.parametrize("name", IDS)
def test_id_makes_its_preset(name: str) -> None:
    spec = gymnasium.spec(name)
    assert spec.kwargs == {"task": IDS[name]}
    assert gymnasium.envs.registration.load_env_creator(spec.entry_point) is pe.PackingGymEnv
    assert (
        gymnasium.envs.registration.load_env_creator(spec.vector_entry_point) is pe.PackingVectorEnv
    )
    register_all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"action_mode": "hierarchical", "num_visible": 2, "preview": 1},
        {"action_mode": "continuous", "illegal_action": "noop"},
        {"observation": ("heightmap", "item_maps")},
        {"illegal_action": "project", "stability": "none", "num_visible": 3},
    ],
    ids=str,
)
def test_check_env(options: dict) -> None:
    env = make(render_mode="rgb_array", **options)
    check_env(env.unwrapped, skip_render_check=bool(options))
    env.close()


def test_step_leaves_the_global_generators_alone() -> None:
    env = make()
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    _, info = env.reset(seed=1)
    env.step(int(info["action_mask"].argmax()))
    assert torch.equal(torch.rand(3), expected)


def test_episode_of_legal_actions() -> None:
    env = RecordEpisodeStatistics(make())
    _, info = env.reset(seed=0)
    total, done = 0.0, False
    while not done:
        assert np.array_equal(env.get_wrapper_attr("action_masks")(), info["action_mask"] == 1)
        action = env.action_space.sample(mask=info["action_mask"])
        observation, reward, terminated, truncated, info = env.step(action)
        assert np.array_equal(observation["action_mask"], info["action_mask"])
        total, done = total + reward, terminated or truncated
    assert info["illegal_actions"] == 0
    assert info["utilization"] == pytest.approx(total, abs=1e-6)
    assert info["episode"]["l"] == info["items_packed"]
    with pytest.warns(UserWarning, match="after the episode ended"):
        _, reward, terminated, _, _ = env.step(action)
    assert (reward, terminated) == (0.0, True)
    with pytest.warns(UserWarning, match="not in"):
        env.step(10**9)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # each warning is given once, also in another episode
        env.step(10**9)
        env.reset(options={})
        env.step(-1)
    for action in (None, "left"):
        with pytest.raises(TypeError, match=f"action={action!r}; .* takes whole numbers"):
            env.step(action)


def test_an_error_of_the_device_is_not_blamed_on_the_action(monkeypatch) -> None:
    env = make()
    env.reset(seed=0)
    monkeypatch.setattr(pe.PackingEnv, "device", torch.device("opencl"))  # on no machine
    with pytest.raises(RuntimeError, match="opencl"):
        env.step(0)


@pytest.mark.parametrize(
    ("build", "options", "message"),
    [
        (gymnasium.make, {"reset_masks": [True]}, "reads no options"),
        (gymnasium.make, {1: 2, "a": 3}, "options \\['1', 'a'\\]"),
        (gymnasium.make_vec, {"reset_masks": [True]}, "mean reset_mask"),
    ],
)
def test_an_option_that_reset_does_not_read_is_named_once(build, options, message) -> None:
    env = build("PackingCuboid-v1", pool_size=4)
    with pytest.warns(UserWarning, match=message):
        env.reset(options=options)
    env.reset(options=options)


@pytest.mark.filterwarnings("ignore:.*is not in Discrete")
@pytest.mark.parametrize("action", [-1, 10**9, "illegal"], ids=str)
def test_illegal_action_ends_the_episode_without_raising(action: object) -> None:
    env = make()
    _, info = env.reset(seed=0)
    chosen = int(np.flatnonzero(info["action_mask"] == 0)[0]) if action == "illegal" else action
    _, reward, terminated, _, info = env.unwrapped.step(chosen)
    assert terminated
    assert reward == 0.0
    assert info["illegal_actions"] == 1


@pytest.mark.parametrize("to_torch", [False, True], ids=["numpy", "torch"])
@pytest.mark.parametrize("action_mode", ["multi_head", "hierarchical", "continuous"])
def test_the_same_packing_in_every_mode(action_mode: str, to_torch: bool) -> None:
    """A vector environment and a single one give the same packing as placement mode."""
    plain = pe.PackingVectorEnv(num_envs=3, **TINY)
    envs = pe.PackingVectorEnv(num_envs=3, action_mode=action_mode, to_torch=to_torch, **TINY)
    alone = pe.PackingGymEnv(action_mode=action_mode, **TINY)
    _, info = plain.reset(seed=3)
    envs.reset(seed=3)
    alone.reset(seed=3)
    over = False
    for _ in range(8):
        action = legal(info["action_mask"], np.random.default_rng(0))
        placement = plain.packing_env.mode.decode({"action": torch.from_numpy(action)}, {})
        parts = envs.packing_env.mode.encode(placement)
        given = {key if isinstance(key, str) else key[0]: v for key, v in parts.items()}
        given = given if to_torch else {key: v.numpy() for key, v in given.items()}
        one = {key: np.asarray(v)[0] for key, v in given.items()}
        (given, one) = (given["action"], one["action"]) if len(given) == 1 else (given, one)
        assert to_torch or given in envs.action_space
        observation, reward, terminated, _, info = plain.step(action)
        found = envs.step(given)
        assert np.array_equal(np.asarray(found[0]["heightmap"]), observation["heightmap"])
        assert np.array_equal(np.asarray(found[1]), reward)
        assert np.array_equal(np.asarray(found[2]), terminated)
        if not over:
            assert one in alone.action_space
            (seen, again, over, _, last) = alone.step(one)
            assert (again, over) == (reward[0], terminated[0])
            assert seen in alone.observation_space
        if action_mode == "continuous":
            assert np.array_equal(np.asarray(found[4]["executed_action"])[~terminated],
                                  np.asarray(given)[~terminated])  # fmt: skip
            assert last["executed_action"].shape == (3,)
    assert over


def test_masks_of_the_modes() -> None:
    options = {"num_visible": 2, **TINY}
    joint = make(action_mode="multi_head", **options)
    _, info = joint.reset(seed=0)
    assert np.array_equal(joint.unwrapped.action_masks(), info["action_mask"] == 1)
    assert info["action_mask"].shape == (int(joint.action_space.nvec.prod()),)
    managed = make(action_mode="hierarchical", **options)
    seen, info = managed.reset(seed=0)
    assert np.array_equal(info["manager_action_mask"], seen["placeable"])
    assert info["manager_action_mask"].tolist() == [1, 1]
    with pytest.raises(pe.ParameterError, match="its masks: manager_action_mask"):
        managed.unwrapped.action_masks()
    with pytest.raises(pe.ParameterError, match="every action is legal"):
        make(action_mode="continuous", **TINY).unwrapped.action_masks()
    with pytest.raises(TypeError, match="dict of manager and worker"):
        managed.unwrapped.step(3)


def test_torchrl_round_trip() -> None:
    options = {**TINY, "illegal_action": "project"}  # GymEnv's random actions ignore the mask
    env = GymEnv("packing_env:Packing-v2", categorical_action_encoding=True, **options)
    check_env_specs(env)
    assert env.rollout(6, first_legal)["next", "heightmap"].max() > 0


@pytest.mark.parametrize("mode", ["SAME_STEP", "DISABLED"])
def test_torchrl_wraps_the_vector_env(mode: str) -> None:
    def wrapped() -> GymWrapper:
        vector = gymnasium.make_vec("Packing-v2", num_envs=3, autoreset_mode=mode, **TINY)
        return GymWrapper(vector, categorical_action_encoding=True)

    check_env_specs(wrapped())
    # A wrapper of its own: after a rollout that ends with an episode's end, torchrl 0.14 answers
    # the next reset() with the observation it had kept from there.
    env = wrapped()
    rollout = env.rollout(12, break_when_any_done=False)
    done = rollout["next", "done"].squeeze(-1)
    assert done.any()
    # The terminal observation holds the packed items; the next episode starts empty.
    packed = rollout["next", "heightmap"].flatten(2).amax(-1) > 0
    legal = rollout["action_mask"].gather(-1, rollout["action"][..., None]).squeeze(-1) == 1
    assert packed[done & legal].all()
    assert not rollout["heightmap"][:, 1:][done[:, :-1]].any()


def test_make_vec_in_both_ways() -> None:
    vector = gymnasium.make_vec("Packing-v2", num_envs=3, **TINY)
    assert isinstance(vector, pe.PackingVectorEnv)
    assert vector.metadata["autoreset_mode"] is vector.autoreset_mode
    sync = gymnasium.make_vec("Packing-v2", num_envs=3, vectorization_mode="sync", **TINY)
    assert vector.single_observation_space == sync.single_observation_space
    assert vector.observation_space == sync.observation_space
    for envs in (vector, sync):
        observation, info = envs.reset(seed=1)
        for _ in range(8):
            assert observation in envs.observation_space
            action = legal(info["action_mask"], np.random.default_rng(0))
            observation, reward, terminated, _, info = envs.step(action)
            assert reward.shape == terminated.shape == (3,)
    short = gymnasium.make_vec("Packing-v2", num_envs=2, max_episode_steps=1, **TINY)
    _, info = short.reset(seed=0)
    assert short.step(legal(info["action_mask"], np.random.default_rng(0)))[3].all()


@pytest.mark.parametrize("mode", MODES, ids=lambda mode: mode.name)
@pytest.mark.parametrize("to_torch", [False, True], ids=["numpy", "torch"])
def test_autoreset_modes(mode: AutoresetMode, to_torch: bool) -> None:
    envs = pe.PackingVectorEnv(num_envs=4, autoreset_mode=mode, to_torch=to_torch, **TINY)
    envs.reset(seed=2)
    before = np.zeros(4, bool)
    for _ in range(12):
        action = legal(np.asarray(envs.action_masks()), np.random.default_rng(3))
        observation, reward, terminated, truncated, info = envs.step(action)
        assert all(isinstance(v, torch.Tensor) is to_torch for v in observation.values())
        done, empty = np.asarray(terminated | truncated), _empty(observation["heightmap"])
        if mode is AutoresetMode.SAME_STEP:
            assert np.array_equal(empty, done)
            _check_final(info, done, to_torch)
        elif mode is AutoresetMode.NEXT_STEP:
            assert np.array_equal(empty, before)
            assert not done[before].any()
            assert not np.asarray(reward)[before].any()
        else:
            assert not empty.any()
            assert done[before].all()
        before = done
        if mode is AutoresetMode.DISABLED and done.any():
            mask = torch.as_tensor(done) if to_torch else done
            renewed, _ = envs.reset(options={"reset_mask": mask})
            assert np.array_equal(_empty(renewed["heightmap"]), done)
            before = np.zeros(4, bool)


def _empty(heightmap: np.ndarray | torch.Tensor) -> np.ndarray:
    return np.asarray(heightmap).max((1, 2)) == 0


def _check_final(info: dict, done: np.ndarray, to_torch: bool) -> None:
    if not done.any() and not to_torch:
        assert "final_obs" not in info
        return
    assert np.array_equal(np.asarray(info["_final_obs"]), done)
    for row in np.flatnonzero(done):
        last = (
            info["final_obs"]["heightmap"][row] if to_torch else info["final_obs"][row]["heightmap"]
        )
        assert last.max() > 0
        assert info["final_info"]["items_packed"][row] > 0
        assert info["items_packed"][row] == 0
