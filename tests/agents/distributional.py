"""Small agents that learn distributions, with batches for them, in both modes that they act in."""

from functools import partial
from typing import Any

import torch
from tensordict import TensorDictBase
from tests.agents import learning
from tests.agents.learning import shaken
from tests.tiny import tiny_env

from agents.networks import CandidateScores, ScoreMaps
from packing_env import PackingEnv

NETWORKS = {
    "placement": partial(ScoreMaps, channels=8, precision="fp32"),
    "candidate": partial(CandidateScores, width=16, attention_heads=2, precision="fp32"),
}
MODES = list(NETWORKS)


def small_env(mode: str, num_envs: Any = 8, **params: Any) -> PackingEnv:
    """Two visible items on a lattice of 8 x 7, or up to 16 candidates."""
    corners = {"num_candidates": 16, "candidate_generator": "corner_points"}
    listed = corners if mode == "candidate" else {}
    return tiny_env(num_envs, num_items=4, num_visible=2, action_mode=mode, **listed, **params)


def make_agent(cls: type, env: PackingEnv, **options: Any) -> Any:
    """An agent away from its start, its target away from its online network."""
    torch.manual_seed(1)
    agent = cls(env, network=NETWORKS[env.params.action_mode], **options)
    shaken(agent.network)
    with torch.no_grad():
        for value in agent.objective.target_value_network_params.values(True, True):
            if value.numel() > 1:  # each by its own amount; buffers are set right again below
                value.data.add_(0.1 * torch.randn_like(value))
        buffers = dict(agent.network.named_buffers())
        for name, value in buffers.items():
            agent.objective.target_value_network_params[tuple(name.split("."))].copy_(value)
    return agent


def sampled(agent: Any, env: PackingEnv, size: int = 64) -> TensorDictBase:
    """Three-step transitions, some of them of finished rows."""
    return learning.sampled(env, agent.policy, agent.gamma, size=size)
