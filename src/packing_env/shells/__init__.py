"""Adapters to other libraries: Gymnasium, single and vectorised, and TorchRL's Hydra groups."""

from packing_env.shells.gymnasium_env import PackingGymEnv, PackingVectorEnv

__all__ = ["PackingGymEnv", "PackingVectorEnv"]
