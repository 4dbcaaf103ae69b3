"""Manager, maps of the chosen item and worker are one graph."""

import torch
from tests.agents.algorithms.test_hierarchical import agent_of
from tests.agents.networks.test_hierarchical_networks import env_of
from tests.tracing.detectors import run_as_one_graph
from torchrl.envs.utils import ExplorationType, set_exploration_type


def test_the_policy_is_one_graph() -> None:
    env = env_of(4)
    agent = agent_of(env, stage1_frames=0)
    with torch.no_grad(), set_exploration_type(ExplorationType.RANDOM):
        run_as_one_graph(lambda root: agent.policy(root.clone()), env.reset(), num_steps=2)
    torch._dynamo.reset()
