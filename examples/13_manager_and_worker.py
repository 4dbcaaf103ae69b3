"""A manager that picks the item and a worker that places it: Huang et al., RA-L 2023.

python examples/13_manager_and_worker.py
"""

from functools import partial

import packing_env as pe
from agents import heuristics
from agents.algorithms.hierarchical import Hierarchical
from agents.loggers.logging import NullLogger
from agents.networks import HierarchicalNetworks
from agents.replay import DeviceReplay
from agents.training.evaluate import evaluate, paired_difference, table
from agents.training.rollout import DeviceCollector
from agents.training.trainer import Trainer

# Sizes for a CPU: the defaults, as in conf/network/hrl_small.yaml. hrl_paper has larger sizes.
SMALL = {
    "features": 32,
    "encoder_width": 8,
    "encoder_stages": 3,
    "encoder_blocks": 1,
    "hidden": 64,
    "view_size": 16,
    "worker_width": 8,
    "fold": 2,
    "condition": 32,
    "thumbnail": 4,
}


def main(frames: int = 6_000, instances: int = 32, **overrides: object) -> dict[str, float]:
    # The networks compute maps of the chosen item only, so the observation contains no maps.
    task = {
        "action_mode": "hierarchical",
        "num_visible": 5,
        "cell": 0.02,
        "orientations": "yaw",
        "observation": ("item_id", "item_features"),
    } | overrides
    env = pe.make_env("irregular", num_envs=32, reward={"objective": 10.0}, **task)
    agent = Hierarchical(
        env,
        network=partial(HierarchicalNetworks, **SMALL),
        batch_size=64,
        stage1_frames=frames // 2,  # the worker alone, largest item first; then both
        lr_joint=3e-4,
        epsilon_frames=frames // 4,
    )
    replay = DeviceReplay(env, capacity=10_000, n_steps=agent.n_steps, gamma=agent.gamma)
    trainer = Trainer(
        agent,
        DeviceCollector(env, agent.policy),
        replay,
        frames=frames,
        warmup=frames // 8,
        update_every=32,
    )
    trainer.run(NullLogger("."))

    held_out = pe.make_env("irregular", num_envs=instances, split="test", draw="sequential", **task)
    evaluations = {}
    for order, learned in (("manager's order", True), ("largest first", False)):
        agent.policy.learned_order = learned
        evaluations[order] = evaluate(held_out, agent.policy)
    gain = paired_difference(
        evaluations["manager's order"], evaluations["largest first"], "utilization"
    )
    evaluations["random_legal"] = evaluate(held_out, heuristics.build("random_legal", held_out))

    from rich.console import Console

    Console().print(table(evaluations))
    print(f"the manager's order is worth {gain} of utilization on these instances")
    return {name: e.estimate("utilization").mean for name, e in evaluations.items()}


if __name__ == "__main__":
    main()
