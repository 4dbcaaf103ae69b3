"""Frames per CPU second in Stable-Baselines3, with our adapter and with its own DummyVecEnv.

    python benchmarks/sb3_adapter.py [--tasks irregular_com_hull cuboid_online] [--rows 16]

Both play one preset with the observation `flat` and random legal actions, and fetch masks as
MaskablePPO does. Then MaskablePPO trains on each for some frames; this second figure includes the
time of the network. Times are CPU times of the process, on one thread. Needs the extra `sb3`.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import torch
from gymnasium.wrappers import FilterObservation
from provenance import provenance, write_json
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import get_action_masks
from stable_baselines3.common.vec_env import DummyVecEnv, VecEnv

from packing_env import PackingGymEnv
from packing_env.shells.sb3_vec_env import PackingSB3VecEnv

POLICIES = {"adapter": "MlpPolicy", "dummy_vec_env": "MultiInputPolicy"}


def build(kind: str, task: str, rows: int) -> VecEnv:
    """Build one of the two environments; rows of both have the seeds 0, 1, 2, ..."""
    env: VecEnv
    if kind == "adapter":
        env = PackingSB3VecEnv(task, num_envs=rows, seed=0)
    else:

        def single() -> Any:
            task_env = PackingGymEnv(task, seed=0, observation="flat")
            return FilterObservation(task_env, ["observation"])

        env = DummyVecEnv([single for _ in range(rows)])
    env.seed(0)
    return env


def rate(frames: int, work: Callable[[], Any]) -> float:
    """Return frames per CPU second."""
    start = time.process_time()
    work()
    return frames / (time.process_time() - start)


def play(env: VecEnv, frames: int) -> float:
    """Play random legal actions; return the sum of rewards."""
    random, total = np.random.default_rng(0), 0.0
    env.reset()
    for _ in range(frames // env.num_envs):
        masks = get_action_masks(env)
        _, reward, _, _ = env.step((random.random(masks.shape) * masks).argmax(1))
        total += float(reward.sum())
    return total


def measure(kind: str, task: str, rows: int, frames: int) -> dict[str, Any]:
    """Measure one environment, after a warm-up that compiles."""
    env = build(kind, task, rows)
    play(env, 8 * rows)
    env.seed(0)
    rewards: list[float] = []
    steps = rate(frames, lambda: rewards.append(play(env, frames)))
    batch = max(512 // rows, 1)
    agent = MaskablePPO(
        POLICIES[kind], env, n_steps=batch, batch_size=256, n_epochs=2, seed=0, device="cpu"
    )
    agent.learn(batch * rows)
    total = frames // (batch * rows) * batch * rows
    learned = rate(total, lambda: agent.learn(total, reset_num_timesteps=False))
    return {
        "frames_per_cpu_second": steps,
        "training_frames_per_cpu_second": learned,
        "sum_of_rewards": rewards[0],
        "parameters": sum(parameter.numel() for parameter in agent.policy.parameters()),
    }


def main() -> None:
    """Measure all tasks and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", nargs="+", default=["irregular_com_hull", "cuboid_online"])
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--frames", type=int, default=4096)
    parser.add_argument("--out", default="benchmarks/results/sb3_adapter.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = {
        task: {kind: measure(kind, task, options.rows, options.frames) for kind in POLICIES}
        for task in options.tasks
    }
    sb3 = {name: version(name) for name in ("stable-baselines3", "sb3-contrib")}
    write_json(options.out, provenance(options) | sb3 | {"results": results})


if __name__ == "__main__":
    main()
