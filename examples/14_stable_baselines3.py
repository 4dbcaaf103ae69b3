"""MaskablePPO of sb3-contrib on a batch of containers, through the adapter of this package.

pip install stable-baselines3 sb3-contrib
python examples/14_stable_baselines3.py
"""

from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import VecMonitor

from packing_env.shells.sb3_vec_env import PackingSB3VecEnv


def main(
    num_envs: int = 16, frames: int = 20_000, episodes: int = 32, **overrides: object
) -> float:
    # All containers are rows of one environment: no loop over them, no other processes. The
    # observation is one vector (observation="flat"); MaskablePPO gets the masks separately.
    env = VecMonitor(PackingSB3VecEnv("cuboid_online", num_envs=num_envs, seed=0, **overrides))
    agent = MaskablePPO("MlpPolicy", env, n_steps=max(256 // num_envs, 2), batch_size=128, seed=0)
    agent.learn(frames)

    # The same items, but instances that training has not seen.
    held_out = PackingSB3VecEnv(
        "cuboid_online", num_envs=num_envs, seed=0, split="test", **overrides
    )
    mean, deviation = evaluate_policy(agent, VecMonitor(held_out), n_eval_episodes=episodes)
    print(f"utilization of {episodes} held-out episodes: {mean:.3f} +- {deviation:.3f}")
    return mean


if __name__ == "__main__":
    main()
