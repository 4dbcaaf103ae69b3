"""Adapters to other libraries: Gymnasium, Stable-Baselines3 and TorchRL's Hydra groups."""

from packing_env.shells.gymnasium_env import PackingGymEnv
from packing_env.shells.gymnasium_vector_env import PackingVectorEnv

__all__ = ["PackingGymEnv", "PackingVectorEnv"]
