"""What a replay keeps: whole or compact, heights in 16 bits, n-step windows, and its memory."""

import logging

import pytest
import torch
from tests.agents.replay.test_replay import task
from tests.tiny import play

from agents.replay import (
    DevicePrioritizedSampler,
    DeviceReplay,
    TorchRLReplay,
)
from packing_env import memory
from packing_env.memory import human
from packing_env.types import ParameterError


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
