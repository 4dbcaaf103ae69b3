"""PPO on candidates, and PPO with a head each for item, orientation, x and y.

python examples/11_policy_gradient.py
"""

from functools import partial

import packing_env as pe
from agents import heuristics
from agents.algorithms.ppo import PPO
from agents.loggers.logging import NullLogger
from agents.networks import CandidateActorCritic, MultiHeadActorCritic
from agents.replay import Rollout
from agents.training.evaluate import Evaluation, evaluate, table
from agents.training.rollout import DeviceCollector
from agents.training.trainer import OnPolicyTrainer

# An action mode is an encoding of the decision; the packing task is the same.
NETWORKS = {
    "candidate": partial(CandidateActorCritic, width=32),
    "multi_head": partial(MultiHeadActorCritic, channels=16),
}


def main(frames: int = 6_000, instances: int = 32, **overrides: object) -> dict[str, float]:
    reward = {"utilization": 1.0, "height": 0.2}
    evaluations: dict[str, Evaluation] = {}
    for mode, network in NETWORKS.items():
        task = {"action_mode": mode, "num_visible": 2, "grid_step": 2} | overrides
        env = pe.make_env("irregular", num_envs=32, reward=reward, **task)
        agent = PPO(env, network=network, batch_size=128, lr=2e-3)
        collector = DeviceCollector(env, agent.policy)
        rollout = Rollout(env, horizon=16)
        OnPolicyTrainer(agent, collector, rollout, frames=frames).run(NullLogger("."))

        held_out = pe.make_env(
            "irregular", num_envs=instances, split="test", draw="sequential", **task
        )
        evaluations[f"ppo {mode}"] = evaluate(held_out, agent.policy)
        # Uniform over the actions of the mode. Candidates are preselected, so the modes differ.
        uniform = heuristics.build("random_legal", held_out)
        evaluations[f"random {mode}"] = evaluate(held_out, uniform)

    from rich.console import Console

    Console().print(table(evaluations))
    return {name: e.estimate("utilization").mean for name, e in evaluations.items()}


if __name__ == "__main__":
    main()
