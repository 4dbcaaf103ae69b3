"""`Rollout` returns the played steps, in memory that never moves."""

import pytest
import torch
from tensordict import TensorDict
from tests.agents.replay.test_replay import task
from tests.counting import host_reads
from tests.tiny import play

from agents.replay import Rollout

HORIZON = 5


def steps(env, count: int) -> TensorDict:
    """Random play ``[T, *batch]``, with what a policy would write."""
    torch.manual_seed(0)
    played = play(env, count)
    written = {"action_log_prob": torch.randn(*played.shape, 4)}
    return played.update(written | {"state_value": torch.randn(*played.shape, 1)})


@pytest.mark.parametrize("num_envs", [3, (2, 2)])
@pytest.mark.parametrize("mode", ["placement", "candidate", "multi_head"])
def test_a_rollout_is_what_was_played(mode, num_envs) -> None:
    env = task(mode, num_envs=num_envs, num_visible=2)
    rollout, played = Rollout(env, HORIZON), steps(env, HORIZON)
    whole = played.flatten(1).transpose(0, 1)
    for step in played:
        assert not rollout.full
        rollout.extend(step)
    assert rollout.full
    found = rollout.take()
    assert found.batch_size == whole.batch_size
    assert whole["next", "truncated"].any()
    for key in ("action", "action_log_prob", "state_value", ("next", "reward"), ("next", "done")):
        assert torch.equal(found[key], whole[key]), key
    for part, states in ((found, whole), (found["next"], whole["next"])):
        seen = rollout.maps.expand(part)
        assert torch.equal(seen["action_mask"], states["action_mask"])
        assert torch.equal(seen["observation", "heightmap"], states["observation", "heightmap"])
        rest = seen["observation", "drop_height"]
        assert torch.equal(rest < 1, states["observation", "drop_height"] < 1)
    assert ("observation", "drop_height") not in found


def test_its_memory_never_moves_and_nothing_is_read() -> None:
    env = task()
    rollout = Rollout(env, HORIZON)
    played = steps(env, 3 * HORIZON)
    for step in played[:HORIZON]:
        rollout.extend(step)
    first = rollout.take()
    places = {key: value.data_ptr() for key, value in first.items(True, True)}
    rollout.extend(played[HORIZON])
    assert not host_reads(lambda: [rollout.extend(step) for step in played[HORIZON + 1 : -HORIZON]])
    second = rollout.take()
    assert {key: value.data_ptr() for key, value in second.items(True, True)} == places
    expected = played[HORIZON : 2 * HORIZON]["action"].transpose(0, 1)
    assert torch.equal(second["action"], expected)
    stored = sum(value.numel() * value.element_size() for value in second.values(True, True))
    policys = second["action_log_prob"].nbytes + second["state_value"].nbytes
    assert rollout.num_bytes == stored - policys
