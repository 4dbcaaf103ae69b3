"""Both collectors: the same transitions for the same seed and actions."""

import pytest
import torch
from tests.tiny import tiny_env
from torch import nn

from agents.policies.policy_wrapper import EpsilonSchedule, PolicyWrapper
from agents.training.rollout import DeviceCollector, TorchRLCollector

STEPS = 18


class Heights(nn.Module):
    """Values that depend on the state, so that a stale one would show."""

    in_keys, out_keys = (("observation", "heightmap"), "action_mask"), ("action_value",)

    def forward(self, td):
        mask = td.get("action_mask")
        peak = td.get(("observation", "heightmap")).flatten(-2).mean(-1, keepdim=True)
        rank = torch.arange(mask.shape[-1], device=mask.device) * 0.37
        return td.set("action_value", torch.sin(rank + 100 * peak))


def task(mode, num_envs=4):
    return tiny_env(
        num_envs, items={"height": 0.05}, action_mode=mode, num_candidates=20, max_steps=4
    )


def play(kind, mode, num_envs=4):
    env = task(mode, num_envs)
    collector = kind(env, PolicyWrapper(Heights(), epsilon=EpsilonSchedule(0.5, 0.5, 0)))
    torch.manual_seed(11)
    steps = [collector.step() for _ in range(STEPS)]
    collector.close()
    return env, steps


@pytest.mark.parametrize("num_envs", [4, (2, 2)])
@pytest.mark.parametrize("mode", ["placement", "candidate"])
def test_exploring_policies_act_alike_in_both_collectors(mode, num_envs):
    _, steps = play(DeviceCollector, mode, num_envs)
    _, others = play(TorchRLCollector, mode, num_envs)
    shape = steps[0].batch_size
    assert shape == ((4,) if num_envs == 4 else (2, 2))
    assert any(bool(step["next", "done"].any()) for step in steps)
    for step, other in zip(steps, others, strict=True):
        assert other.batch_size == shape
        assert "action_value" not in step.keys()  # noqa: SIM118
        keys = set(step.keys(True, True))
        extra = set(other.keys(True, True)) - keys
        assert all("collector" in key for key in extra)
        for key in keys:
            assert torch.equal(step[key], other[key]), key
