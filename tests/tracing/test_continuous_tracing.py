"""The policies of the continuous mode: one graph, environment included, and no read."""

from collections.abc import Callable

import pytest
import torch
from tests.agents.continuous import NETWORK, small_env
from tests.tracing.detectors import run_as_one_graph, run_on_fake_tensors, run_profiled
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.policies.continuous import ContinuousPolicy, NoiseSchedule, TanhGaussian
from agents.policies.policy_wrapper import EpsilonSchedule
from packing_env.envs import PackingEnv

DETECTORS = {
    "fake_tensors": run_on_fake_tensors,
    "profiler": lambda loop, root: run_profiled(loop, root, 10),
    "one_graph": lambda loop, root: run_as_one_graph(loop, root, 5),
}


def noisy(env: PackingEnv) -> ContinuousPolicy:
    actor = NETWORK(env).actor()
    return ContinuousPolicy(
        actor,
        action_spec=env.action_spec,
        noise=NoiseSchedule(0.2, 0.2, 0),
        epsilon=EpsilonSchedule(0.2, 0.2, 0),
    )


def drawn(env: PackingEnv) -> ContinuousPolicy:
    actor = NETWORK(env).actor(stochastic=True)
    return ContinuousPolicy(actor, action_spec=env.action_spec, distribution=TanhGaussian)


@pytest.mark.parametrize(
    ("detector", "make", "mode"),
    [
        ("fake_tensors", noisy, ExplorationType.RANDOM),
        ("fake_tensors", drawn, ExplorationType.DETERMINISTIC),
        ("profiler", drawn, ExplorationType.RANDOM),
        ("one_graph", noisy, ExplorationType.DETERMINISTIC),
        ("one_graph", drawn, ExplorationType.RANDOM),
    ],
)
def test_no_host_reads(
    detector: str, make: Callable[[PackingEnv], ContinuousPolicy], mode: ExplorationType
) -> None:
    env = small_env(3, num_visible=2)
    policy = make(env)

    def loop(root):
        return env.step_and_maybe_reset(policy(root))[1]

    with torch.no_grad(), set_exploration_type(mode):
        DETECTORS[detector](loop, loop(env.reset()))
    torch._dynamo.reset()
