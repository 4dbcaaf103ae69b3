"""Policies over candidates and over several heads, with the environment, are one graph each."""

from collections.abc import Callable, Iterator

import pytest
import torch
from tensordict import TensorDictBase
from tests.tiny import tiny_env
from tests.tracing.detectors import run_as_one_graph

from agents.algorithms.branching import Branching
from agents.algorithms.ppo import PPO
from agents.networks import CandidateActorCritic, MultiHeadActorCritic

AGENTS: dict[str, tuple[Callable, str, Callable]] = {
    "ppo_candidate": (PPO, "candidate", CandidateActorCritic),
    "branching": (Branching, "multi_head", MultiHeadActorCritic),
}


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with torch.no_grad():
        yield
    torch._dynamo.reset()


@pytest.mark.parametrize("name", AGENTS)
def test_one_graph(name: str) -> None:
    agent, mode, network = AGENTS[name]
    shape = {"items": {"grid": (5, 5), "height": 0.05}, "num_visible": 2, "num_candidates": 8}
    env = tiny_env(3, action_mode=mode, **shape)
    policy = agent(env, network=network).policy

    def loop(root: TensorDictBase) -> TensorDictBase:
        return env._step_and_maybe_reset(policy(root))[1]

    run_as_one_graph(loop, loop(env.reset()))
