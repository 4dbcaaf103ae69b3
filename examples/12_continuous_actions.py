"""SAC on continuous actions; the environment moves an action to the nearest legal placement.

python examples/12_continuous_actions.py
"""

from functools import partial

import packing_env as pe
from agents import heuristics
from agents.algorithms.sac import SAC
from agents.loggers.logging import NullLogger
from agents.networks import ContinuousActorCritic
from agents.replay import DeviceReplay
from agents.training.evaluate import evaluate, table
from agents.training.rollout import DeviceCollector
from agents.training.trainer import Trainer


def main(frames: int = 4_000, instances: int = 32, **overrides: object) -> dict[str, float]:
    # An action is x, y and the orientation (boxes have two), in [-1, 1]. DDPG and AC-IQN use the
    # same mode.
    task = {"action_mode": "continuous", "observation": pe.tasks.LEAN} | overrides
    reward = {"utilization": 10.0, "height": 2.0}
    env = pe.make_env("cuboid_online", num_envs=32, reward=reward, **task)

    state = env.reset()
    state["action"] = env.full_action_spec["action"].rand()
    step = env.step(state)["next"]
    for action, executed in zip(state["action"][:2], step["executed_action"][:2], strict=True):
        print(f"action {action.tolist()}, placed at {executed.tolist()}")

    # The critics learn from the executed placement, not from the raw action.
    network = partial(ContinuousActorCritic, channels=16, width=64, fold=2)
    agent = SAC(env, network=network, epsilon_frames=frames // 2)
    replay = DeviceReplay(env, capacity=10_000, n_steps=agent.n_steps, gamma=agent.gamma)
    collector = DeviceCollector(env, agent.policy)
    Trainer(agent, collector, replay, frames=frames, warmup=frames // 8).run(NullLogger("."))

    held_out = pe.make_env(
        "cuboid_online", num_envs=instances, split="test", draw="sequential", **task
    )
    evaluations = {
        "sac": evaluate(held_out, agent.policy, instances),
        "random_legal": evaluate(held_out, heuristics.build("random_legal", held_out), instances),
    }

    from rich.console import Console

    Console().print(table(evaluations))
    return {name: e.estimate("utilization").mean for name, e in evaluations.items()}


if __name__ == "__main__":
    main()
