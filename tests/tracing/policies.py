"""The policies that the tracing tests put into the loop."""

from collections.abc import Callable
from typing import Any

from tensordict import TensorDictBase
from tests.agents.networks.test_hierarchical_networks import SMALL

from packing_env.envs import PackingEnv

Policy = Callable[[TensorDictBase], TensorDictBase]


def _agent(name: str, **options: Any) -> Callable[[PackingEnv], Policy]:
    def build(env: PackingEnv) -> Policy:
        from agents import build_policy

        return build_policy(name, env, **options)

    return build


def _heuristic(name: str) -> Callable[[PackingEnv], Policy]:
    def build(env: PackingEnv) -> Policy:
        from agents import heuristics

        return heuristics.build(name, env)

    return build


POLICIES: dict[str, Callable[[PackingEnv], Policy]] = {
    "rand_action": lambda env: env.rand_action,
    "dqn": _agent("dqn"),
    "rainbow": _agent("rainbow"),
    "iqn": _agent("iqn"),
    "ppo": _agent("ppo"),
    "ppo candidate": _agent("ppo"),
    "branching": _agent("branching"),
    "hierarchical": _agent("hierarchical", stage1_frames=0, **SMALL),
    "ddpg": _agent("ddpg", channels=8, width=32, heads=2),
    "sac": _agent("sac", channels=8, width=32, heads=2),
    "lowest_z": _heuristic("lowest_z"),
    "heightmap_minimization": _heuristic("heightmap_minimization"),
}
"""Every policy here is run through every detector; add one per line."""
OPTIONS: dict[str, dict[str, Any]] = {
    "ppo candidate": {"action_mode": "candidate", "num_visible": 2, "num_candidates": 8},
    "branching": {"action_mode": "multi_head", "num_visible": 2},
    "hierarchical": {"action_mode": "hierarchical", "num_visible": 2},
    "ddpg": {"action_mode": "continuous", "num_visible": 2},
    "sac": {"action_mode": "continuous", "num_visible": 2},
}
"""Options of the environment, for policies of other action modes."""
