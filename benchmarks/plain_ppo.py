"""Learning curves of plain PPO on irregular items, from two libraries, in two action modes.

    python benchmarks/plain_ppo.py [--seconds 60] [--modes candidate placement]

The programs are `examples/15_cleanrl_ppo.py` and MaskablePPO with its default network, on one
thread and one seed. A point is the mean utilization of the last 200 episodes of training. Needs the
extra `sb3`.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
from collections import deque
from pathlib import Path
from typing import Any

import torch
from provenance import provenance, write_json
from sb3_contrib import MaskablePPO
from stable_baselines3.common.callbacks import BaseCallback

from agents.config.build import build_heuristics
from agents.training.evaluate import evaluate
from packing_env import make_env
from packing_env.shells.sb3_vec_env import PackingSB3VecEnv

EXAMPLE = Path(__file__).parents[1] / "examples/15_cleanrl_ppo.py"
TASKS = {"irregular": "Packing-v2", "cuboid_online": "PackingCuboid-v1"}
Point = dict[str, float]


class Curve(BaseCallback):
    """Record a point per rollout; stop at the first point after the time is up."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds, self.points = seconds, list[Point]()
        self.filled: deque[float] = deque(maxlen=200)

    def _on_training_start(self) -> None:
        self.start = time.perf_counter()

    def _on_step(self) -> bool:
        infos = zip(self.locals["infos"], self.locals["dones"], strict=True)
        self.filled.extend(info["utilization"] for info, done in infos if done)
        return not self.points or time.perf_counter() - self.start < self.seconds

    def _on_rollout_end(self) -> None:
        mean = sum(self.filled) / max(1, len(self.filled))
        seconds = time.perf_counter() - self.start
        self.points.append({"frames": self.num_timesteps, "seconds": seconds, "utilization": mean})


def sb3(task: str, mode: str, seconds: float) -> list[Point]:
    """Train MaskablePPO with its default network."""
    env = PackingSB3VecEnv(task, num_envs=64, seed=0, action_mode=mode)
    agent = MaskablePPO("MlpPolicy", env, n_steps=32, batch_size=512, n_epochs=4, seed=0)
    curve = Curve(seconds)
    agent.learn(10**8, callback=curve)
    return curve.points


def cleanrl(task: str, mode: str, seconds: float) -> list[Point]:
    """Train the example."""
    spec = importlib.util.spec_from_file_location("cleanrl_ppo", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    program: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    points: list[Point] = []
    program.main(TASKS[task], updates=10**6, log=points.append, seconds=seconds, action_mode=mode)
    return points


def main() -> None:
    """Train every program in every mode, compare with a heuristic, write the result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--task", choices=TASKS, default="irregular")
    parser.add_argument("--modes", nargs="+", default=["candidate", "placement"])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--instances", type=int, default=256)
    parser.add_argument("--out", default="benchmarks/results/plain_ppo.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    env = make_env(options.task, min(64, options.instances), split="test", draw="sequential")
    env.rollout(2)  # compiles
    policies = build_heuristics(["random_legal", "deepest_bottom_left"], env)
    rules = {
        name: vars(evaluate(env, policy, options.instances).estimate("utilization"))
        for name, policy in policies.items()
    }
    curves = {
        f"{program.__name__} {mode}": program(options.task, mode, options.seconds)
        for program in (cleanrl, sb3)
        for mode in options.modes
    }
    write_json(options.out, provenance(options) | {"heuristics": rules, "curves": curves})
    for name, points in curves.items():
        print(name, points[-1])


if __name__ == "__main__":
    main()
