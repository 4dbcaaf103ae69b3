"""Values of placements: DQN, Rainbow and IQN on a list of candidates, and a risk-averse IQN.

python examples/10_value_based.py
"""

from functools import partial

import packing_env as pe
from agents import heuristics
from agents.algorithms.dqn import DQN
from agents.algorithms.iqn import IQN
from agents.algorithms.rainbow import Rainbow
from agents.loggers.logging import NullLogger
from agents.networks import CandidateScores
from agents.replay import DevicePrioritizedSampler, DeviceReplay
from agents.training.evaluate import Evaluation, evaluate, table
from agents.training.rollout import DeviceCollector
from agents.training.trainer import Trainer

# One network serves all three: the agent determines whether its output per candidate is a value, a
# distribution or quantiles. `ScoreMaps`, which scores all placements, can replace it.
NETWORK = partial(CandidateScores, width=32)
AGENTS = {
    "dqn": partial(DQN, network=NETWORK, epsilon_frames=1_000),
    "rainbow": partial(Rainbow, network=NETWORK, mixture=None),
    "iqn": partial(IQN, network=NETWORK, epsilon_frames=1_000),
    # IQN that maximizes the mean of the worst quarter of the returns (CVaR).
    "cautious iqn": partial(IQN, network=NETWORK, epsilon_frames=1_000, risk=0.25),
}


def main(frames: int = 4_000, instances: int = 32, **overrides: object) -> dict[str, float]:
    task = {"action_mode": "candidate", "num_candidates": 32, "grid_step": 2} | overrides
    reward = {"utilization": 1.0, "height": 0.2}
    env = pe.make_env("irregular", num_envs=16, reward=reward, **task)
    held_out = pe.make_env("irregular", num_envs=instances, split="test", draw="sequential", **task)
    evaluations: dict[str, Evaluation] = {}
    for name, make in AGENTS.items():
        agent = make(env, batch_size=32)
        sampler = DevicePrioritizedSampler(4_096) if name == "rainbow" else None
        replay = DeviceReplay(
            env,
            capacity=4_096,
            n_steps=agent.n_steps,
            gamma=agent.gamma,
            sampler=sampler,
            rebuild=(),  # this network reads no maps
        )
        collector = DeviceCollector(env, agent.policy)
        trainer = Trainer(
            agent, collector, replay, frames=frames, warmup=frames // 8, update_every=32
        )
        trainer.run(NullLogger("."))
        evaluations[name] = evaluate(held_out, agent.policy)
    evaluations["random_legal"] = evaluate(held_out, heuristics.build("random_legal", held_out))

    from rich.console import Console

    Console().print(table(evaluations))
    return {name: e.estimate("utilization").mean for name, e in evaluations.items()}


if __name__ == "__main__":
    main()
