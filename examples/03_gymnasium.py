"""The environment in Gymnasium: one container with NumPy, or a batch of containers.

python examples/03_gymnasium.py
"""

import gymnasium as gym
import numpy as np


def main(num_envs: int = 8, steps: int = 30, **overrides: object) -> float:
    # One container. info["action_mask"] is True for legal actions; env.unwrapped.action_masks()
    # returns the same mask, and is the method that sb3-contrib's MaskablePPO calls.
    env = gym.make("packing_env:Packing-v2", **overrides)
    observation, info = env.reset(seed=0)
    total, done = 0.0, False
    while not done:
        action = env.action_space.sample(mask=info["action_mask"].astype(np.int8))
        observation, reward, terminated, truncated, info = env.step(action)
        total, done = total + reward, terminated or truncated
    print(f"one episode, return {total:.3f}; observations: {sorted(observation)}")
    env.close()

    # A batch of containers in one process: the batched environment itself, not a pool of workers.
    vector = gym.make_vec("packing_env:Packing-v2", num_envs=num_envs, **overrides)
    random = np.random.default_rng(0)
    observation, info = vector.reset(seed=0)
    rewards = []
    for _ in range(steps):
        chances = random.random(info["action_mask"].shape) * info["action_mask"]
        observation, reward, terminated, truncated, info = vector.step(chances.argmax(-1))
        rewards.append(reward)
    vector.close()
    print(f"{steps} steps of {num_envs} containers, mean reward {np.mean(rewards):.4f}")
    return total


if __name__ == "__main__":
    main()
