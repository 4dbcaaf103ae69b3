"""Rows in several processes: the same transitions, resumed by any number of them."""

import pytest
import torch
from tests.agents.training.test_collectors import Heights
from tests.tiny import differing, tiny_env

from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from agents.training.rollout import DeviceCollector
from agents.training.workers import WorkerCollector, device_collector
from packing_env import PackingEnv
from packing_env.types import ParameterError


def task(num_envs: int | tuple[int, int] = 4) -> PackingEnv:
    return tiny_env(num_envs, items={"height": 0.05}, max_steps=4)


def policy() -> PolicyWrapper:
    return PolicyWrapper(Heights(), epsilon=EpsilonSchedule(0.5, 0.5, 0))


def test_two_processes_play_what_one_plays_and_resume_each_other() -> None:
    """Half of the actions are random, rows [E, A] are divided, episodes end."""
    one = device_collector(task((2, 2)), policy())
    many = device_collector(task((2, 2)), policy(), num_workers=2)
    assert isinstance(one, DeviceCollector)
    assert isinstance(many, WorkerCollector)
    assert many.state_dict() == {}
    played = []
    for collector in (one, many):
        torch.manual_seed(11)
        played.append([collector.step() for _ in range(7)])
    assert any(bool(step["next", "done"].any()) for step in played[0])
    for step, other in zip(*played, strict=True):  # all of them: none was written over
        assert other.batch_size == (2, 2)
        assert not differing(step, other)
    single, several = one.state_dict(), many.state_dict()
    assert not differing(single, several)
    one.load_state_dict(several)
    many.load_state_dict(single)
    for collector, steps in zip((one, many), played, strict=True):
        torch.manual_seed(12)
        steps[:] = [collector.step() for _ in range(3)]
    assert not any(differing(*pair) for pair in zip(*played, strict=True))
    many.close()


def test_instances_in_order_need_one_process() -> None:
    env = tiny_env(4, shell={"draw": "sequential"})
    with pytest.raises(ParameterError, match="that are drawn at random"):
        device_collector(env, policy(), num_workers=2)
