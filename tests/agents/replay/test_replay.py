"""Device replay restores maps, its n-step returns equal a plain loop, and its memory stays."""

import logging

import pytest
import torch
from tensordict import TensorDict
from tests.agents.algorithms.test_every_agent import small_config
from tests.tiny import play, tiny_env

from agents.algorithms.dqn import DQN
from agents.config.build import build_replay
from agents.networks import CandidateScores, ScoreMaps
from agents.replay import (
    DevicePrioritizedSampler,
    DeviceReplay,
    RebuildMaps,
    TorchRLReplay,
)
from packing_env import make_env, memory
from packing_env.core.actions import MODES
from packing_env.memory import human
from packing_env.types import ParameterError

# Within the rounding of heights through h / H * H, in units of H.
CLOSE = 3e-7


def task(mode="placement", num_envs=4, **params):
    """Short episodes: some rows fill up, others reach the step limit."""
    short = {"items": {"height": 0.05}, "max_steps": 4, "num_candidates": 30}
    return tiny_env(num_envs, action_mode=mode, **short, **params)


def mask_of(env, seen, name="action_mask"):
    """The mode's mask, or what stands beside it."""
    (key,) = env.mode.mask_keys
    return seen[(*key[:-1], name) if isinstance(key, tuple) else name]


def rules(env, following):
    """Return the legal placements by the rules, also of finished rows."""
    seen = following["observation"]
    if env.params.action_mode == "candidate":
        return seen["candidates"][..., -1] > 0
    legal = seen["drop_height"] < 1
    return (
        legal.flatten(-3).any(-1) if env.params.action_mode == "hierarchical" else legal.flatten(-4)
    )


@pytest.mark.parametrize(
    ("mode", "num_envs"), [*((mode, 4) for mode in sorted(MODES)), ("placement", (2, 2))]
)
def test_rebuilt_states_equal_the_originals(mode, num_envs):
    env = task(mode, num_envs=num_envs, num_visible=2, preview=1)
    maps = RebuildMaps(env)
    whole = play(env, 20)
    compact = maps.inv(whole)
    assert ("observation", "drop_height") not in compact
    assert ("next", "observation", "top") not in compact
    back = maps(compact)
    kept = whole.exclude("metrics", ("next", "metrics"), "executed_action")
    if mode == "continuous":  # beside the action it is about
        assert torch.equal(back["executed_action"], kept["next", "executed_action"])
        kept = kept.exclude(("next", "executed_action"))
        back = back.exclude("executed_action")
    else:
        legal = mask_of(env, back["next"], "legal_mask")
        back = back.exclude(("next", "legal_mask"), ("next", "manager", "legal_mask"))
    assert set(back.keys(True, True)) == set(kept.keys(True, True))
    for key in kept.keys(True, True):
        if key[-1] == "drop_height" and mode != "hierarchical":
            assert torch.equal(back[key] < 1, kept[key] < 1)
            torch.testing.assert_close(back[key], kept[key], rtol=0, atol=CLOSE)
        else:
            assert torch.equal(back[key], kept[key]), key
    finished = whole["next", "done"].squeeze(-1)
    assert bool(finished.any())
    truncated = (whole["next", "truncated"] & ~whole["next", "terminated"]).squeeze(-1)
    assert bool(truncated.any())
    if mode == "continuous":
        return
    assert bool(mask_of(env, whole["next"])[finished & ~truncated].all())
    assert torch.equal(mask_of(env, whole["next"])[truncated], legal[truncated])
    allowed = rules(env, whole["next"])
    nothing = ~allowed.any(-1, keepdim=True)
    assert torch.equal(legal, allowed | nothing)
    assert not bool(nothing[truncated].any())


def test_the_executed_action_is_that_of_the_first_step_of_a_window():
    env = task("continuous", num_visible=2)
    torch.manual_seed(0)
    root, steps = env.reset(), []
    replay = DeviceReplay(env, 200, n_steps=3)
    for _ in range(12):
        step, root = env.step_and_maybe_reset(env.rand_action(root))
        steps.append(step.clone())
        replay.extend(step)
    stored = replay.maps(replay.buffer[:])
    steps = torch.stack(steps)[:10].reshape(-1)
    assert torch.equal(stored["action"], steps["action"])
    assert torch.equal(stored["executed_action"], steps["next", "executed_action"])
    assert bool((stored["steps_to_next_obs"] > 1).any())
    assert not torch.equal(stored["executed_action"], stored["action"])


def test_what_an_agent_reads_is_rebuilt_by_default():
    config = small_config("dqn")
    for env, network, expected in (
        (task(), ScoreMaps, {"orientation_features", "drop_height"}),
        (task("candidate"), CandidateScores, set()),
        (make_env("cuboid_continuous", 2, pool_size=4), CandidateScores, set()),
    ):
        replay = build_replay(config, env, DQN(env, network=network))
        assert set(replay.maps.rebuilt) == expected


def n_step_oracle(steps: TensorDict, n_steps: int, gamma: float) -> list[tuple]:
    """(t, row, return, m, discount) by a loop over rows and steps."""
    reward, done, terminated = (
        steps["next", name].squeeze(-1).tolist() for name in ("reward", "done", "terminated")
    )
    out = []
    for t in range(len(reward)):
        for row in range(len(reward[0])):
            total, m = 0.0, 0
            while m < n_steps and t + m < len(reward):
                total += gamma**m * reward[t + m][row]
                m += 1
                if done[t + m - 1][row]:
                    break
            ended = terminated[t + m - 1][row]
            out.append((t, row, total, m, 0.0 if ended else gamma**m))
    return out


@pytest.mark.parametrize("n_steps", [1, 3])
def test_n_step_equals_a_loop(n_steps):
    env = task()
    steps = play(env, 25)
    replay = DeviceReplay(env, 1_000, n_steps=n_steps, gamma=0.9)
    written = [replay.extend(step) for step in steps]
    assert [index is None for index in written] == [t < n_steps - 1 for t in range(25)]
    assert len(replay) == 4 * (25 - n_steps + 1)
    stored = replay.maps(replay.buffer[:])
    assert bool((steps["next", "truncated"] & ~steps["next", "terminated"]).any())
    assert bool(steps["next", "terminated"].any())
    oracle = n_step_oracle(steps, n_steps, 0.9)[: len(replay)]
    for index, (t, row, total, m, discount) in enumerate(oracle):
        found, true, end = stored[index], steps[t, row], steps[t + m - 1, row]["next"]
        assert float(found["next", "reward"]) == pytest.approx(total, abs=1e-6)
        assert int(found["steps_to_next_obs"]) == m
        assert float(found["discount"]) == pytest.approx(discount, rel=1e-6)
        assert torch.equal(found["action"], true["action"])
        for name in ("heightmap", "item_id", "item_features"):
            assert torch.equal(found["observation", name], true["observation", name])
            assert torch.equal(found["next", "observation", name], end["observation", name])
        for flag in ("done", "terminated", "truncated"):
            assert torch.equal(found["next", flag], end[flag])
        assert torch.equal(found["next", "action_mask"], end["action_mask"])


def test_a_state_of_another_capacity_is_refused():
    env = task()
    one = DeviceReplay(env, 30, n_steps=3)
    for step in play(env, 5):
        one.extend(step)
    with pytest.raises(ParameterError, match="capacity=10"):
        DeviceReplay(env, 10).load_state_dict(one.state_dict())
    DeviceReplay(env, 10).load_state_dict(DeviceReplay(env, 10).state_dict())


def filled(kind, env, steps, capacity=40, **options):
    replay = kind(env, capacity, n_steps=3, gamma=0.9, **options)
    for step in steps:
        replay.extend(step)
    return replay


def drawn(replay, size=64):
    torch.manual_seed(7)
    return replay.sample(size)


# ---------------------------------------------------------------------- whole transitions


@pytest.mark.parametrize(("mode", "num_envs"), [("placement", (2, 2)), ("candidate", 4)])
def test_torchrl_replay_gives_the_same_samples(mode, num_envs):
    env = task(mode, num_envs=num_envs)
    steps = list(play(env, 15))
    compact = filled(DeviceReplay, env, steps)
    whole = filled(TorchRLReplay, env, steps)
    expected, found = drawn(compact), drawn(whole)
    assert set(found.keys(True, True)) == set(expected.keys(True, True))
    assert bool((found == expected).all())
    assert ("next", "legal_mask") in found.keys(True)
    assert ("observation", "drop_height") in whole.buffer.storage[:].keys(True)
    assert whole.bytes_per_transition > 1.5 * compact.bytes_per_transition
    for one, other in ((compact, DeviceReplay), (whole, TorchRLReplay)):
        copy = filled(other, env, steps[:2])
        copy.load_state_dict(one.state_dict())
        assert bool((drawn(copy) == drawn(one)).all())


# ---------------------------------------------------------------------- memory


def addresses(replay):
    """Return the addresses of all memory that a replay holds."""
    held = replay.n_step._ring
    sampler = vars(replay.buffer.sampler).items()
    return {
        **{k: v.data_ptr() for k, v in replay.buffer.storage._storage.items(True, True)},
        **{("held", k): v.data_ptr() for k, v in held.items(True, True)},
        **{k: v.data_ptr() for k, v in sampler if isinstance(v, torch.Tensor)},
    }


@pytest.mark.parametrize("kind", [DeviceReplay, TorchRLReplay])
def test_no_memory_moves_after_the_first_step(kind):
    env = task()
    steps = list(play(env, 30))
    replay = kind(env, 30, n_steps=3, sampler=DevicePrioritizedSampler(30))
    stored = {k: v.data_ptr() for k, v in replay.buffer.storage._storage.items(True, True)}
    replay.extend(steps[0])
    before = addresses(replay)
    assert stored.items() <= before.items()
    for step in steps[1:]:
        replay.extend(step)
        if len(replay):
            index = replay.sample(8)["index"]
            replay.update_priority(index, torch.rand(8))
    saved = {key: value for key, value in replay.state_dict().items() if key != "rows"}
    saved["rows"] = {k: v.clone() for k, v in replay.state_dict()["rows"].items()}
    replay.load_state_dict(saved)
    assert addresses(replay) == before


@pytest.mark.parametrize("kind", [DeviceReplay, TorchRLReplay])
def test_the_estimate_is_what_is_taken_and_is_said_before(kind, caplog):
    env = task()
    with caplog.at_level(logging.INFO, "packing_env.memory"):
        replay = kind(env, 100, n_steps=3)
    said = [r.getMessage() for r in caplog.records if r.name == "packing_env.memory"]
    assert len(said) == 1
    assert said[0].startswith("replay.capacity=100 (")
    assert f"needs {human(replay.num_bytes)} on" in said[0]
    replay.extend(play(env, 1)[0])
    taken = list(replay.buffer.storage._storage.values(True, True))
    taken += list(replay.n_step._ring.values(True, True))
    size = sum(x.numel() * x.element_size() for x in taken)
    assert size == pytest.approx(replay.num_bytes, rel=0.02)


def test_what_cannot_fit_is_refused_before_anything_is_taken(monkeypatch):
    env = task()
    replay = DeviceReplay(env, 1_000)
    monkeypatch.setattr(memory, "TRIFLE", 0)
    monkeypatch.setattr(memory, "free_memory", lambda device: replay.num_bytes)
    with pytest.raises(ParameterError, match=r"replay.capacity=") as refused:
        DeviceReplay(env, 1_000)
    message = str(refused.value)
    assert "GiB" not in message  # in units that fit
    fits = int(message.split("use replay.capacity=")[1].split()[0])
    assert 800 < fits < 1_000
    assert DeviceReplay(env, fits).capacity == fits
    with pytest.raises(ParameterError, match=f"use replay.capacity={fits} or less"):
        DeviceReplay(env, fits + 2)
    monkeypatch.setattr(memory, "TRIFLE", 0)
    monkeypatch.setattr(memory, "free_memory", lambda device: 2**20)
    monkeypatch.setattr("agents.replay.device_replay.LazyTensorStorage", None)  # not even begun
    with pytest.raises(ParameterError, match="or less, or a coarser"):
        DeviceReplay(env, 10**6)
