"""`Rollout` returns the played steps, in memory that never moves."""

import pytest
import torch
from tests.counting import host_reads
from tests.tiny import tiny_env

from agents.replay import Rollout

HORIZON = 5


def task(num_envs=3, **params):
    return tiny_env(num_envs, items={"height": 0.05}, max_steps=4, num_visible=2, **params)


def steps(env, count: int) -> list:
    """Random play, with what a policy would write."""
    root, played = env.reset(), []
    torch.manual_seed(0)
    for _ in range(count):
        root = env.rand_action(root)
        root.set("action_log_prob", torch.randn(*env.batch_size, 4))
        root.set("state_value", torch.randn(*env.batch_size, 1))
        step, root = env.step_and_maybe_reset(root)
        played.append(step.clone())
    return played


@pytest.mark.parametrize("num_envs", [3, (2, 2)])
@pytest.mark.parametrize("mode", ["placement", "candidate", "multi_head"])
def test_a_rollout_is_what_was_played(mode, num_envs) -> None:
    env = task(num_envs, action_mode=mode, num_candidates=8)
    rollout = Rollout(env, HORIZON)
    whole = torch.stack([step.reshape(-1) for step in steps(env, HORIZON)], 1)
    for step in whole.unbind(1):
        assert not rollout.full
        rollout.extend(step if isinstance(num_envs, int) else step.reshape(env.batch_size))
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
    expected = torch.stack([step["action"] for step in played[HORIZON : 2 * HORIZON]], 1)
    assert torch.equal(second["action"], expected)
    stored = sum(value.numel() * value.element_size() for value in second.values(True, True))
    policys = second["action_log_prob"].nbytes + second["state_value"].nbytes
    assert rollout.num_bytes == stored - policys
