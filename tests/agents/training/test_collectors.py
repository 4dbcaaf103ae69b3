"""Every collector: the same transitions for the same seed and actions."""

import pytest
import torch
from tests.tiny import differing, tiny_env
from torch import nn

from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from agents.training.rollout import DeviceCollector, TorchRLCollector
from agents.training.workers import WorkerCollector, device_collector
from packing_env import PackingEnv, make_env
from packing_env.types import ParameterError


class Heights(nn.Module):
    """Values that depend on the state, so that a stale one would show."""

    in_keys, out_keys = (("observation", "heightmap"), "action_mask"), ("action_value",)

    def forward(self, td):
        mask = td.get("action_mask")
        peak = td.get(("observation", "heightmap")).flatten(-2).mean(-1, keepdim=True)
        rank = torch.arange(mask.shape[-1], device=mask.device) * 0.37
        return td.set("action_value", torch.sin(rank + 100 * peak))


def task(num_envs: int | tuple[int, ...] = 4, **params: object) -> PackingEnv:
    return tiny_env(num_envs, items={"height": 0.05}, max_steps=4, **params)


def policy() -> PolicyWrapper:
    """Return a policy whose actions are at first random with probability a half."""
    return PolicyWrapper(Heights(), epsilon=EpsilonSchedule(0.5, 0.1, 40))


def stepped(collector, seed: int, count: int) -> list:
    torch.manual_seed(seed)
    return [collector.step() for _ in range(count)]


@pytest.mark.parametrize("num_envs", [(4,), (2, 2)])
@pytest.mark.parametrize("mode", ["placement", "candidate"])
def test_torchrls_collector_plays_what_ours_plays(mode, num_envs):
    ours, torchrls = (
        kind(task(num_envs, action_mode=mode, num_candidates=20), policy())
        for kind in (DeviceCollector, TorchRLCollector)
    )
    steps, others = stepped(ours, 11, 18), stepped(torchrls, 11, 18)
    torchrls.close()
    assert any(bool(step["next", "done"].any()) for step in steps)
    for step, other in zip(steps, others, strict=True):
        assert step.batch_size == other.batch_size == num_envs
        assert "action_value" not in step.keys()  # noqa: SIM118
        keys = set(step.keys(True, True))
        assert not differing(step, other.select(*keys))
        assert all("collector" in key for key in set(other.keys(True, True)) - keys)


@pytest.mark.usefixtures("spawned")
def test_two_processes_play_what_one_plays_and_resume_each_other() -> None:
    """Rows [E, A] are divided, episodes end, and instances are drawn anew."""
    small = {"num_items": 5, "pool_size": 16}
    one, many = (
        device_collector(make_env("cuboid_online", (2, 2), **small), policy(), num_workers=number)
        for number in (1, 2)
    )
    assert isinstance(one, DeviceCollector)
    assert isinstance(many, WorkerCollector)
    assert many.state_dict() == {}
    played = [stepped(collector, 11, 7) for collector in (one, many)]
    assert any(bool(step["next", "done"].any()) for step in played[0])
    for step, other in zip(*played, strict=True):  # all of them: none was written over
        assert other.batch_size == (2, 2)
        assert not differing(step, other)
    single, several = one.state_dict(), many.state_dict()
    assert not differing(single, several)
    one.load_state_dict(several)
    many.load_state_dict(single)
    for step, other in zip(*(stepped(each, 12, 3) for each in (one, many)), strict=True):
        assert not differing(step, other)
    for collector in (one, many):
        collector.redraw(4)
    for step, other in zip(*(stepped(each, 13, 7) for each in (one, many)), strict=True):
        assert not differing(step, other)
    many.close()


def test_instances_in_order_need_one_process() -> None:
    env = tiny_env(4, shell={"draw": "sequential"})
    with pytest.raises(ParameterError, match="that are drawn at random"):
        device_collector(env, policy(), num_workers=2)
