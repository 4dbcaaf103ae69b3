"""The environment for other libraries than TorchRL: Gymnasium, single and vectorised."""

from packing_env.shells.gymnasium_env import PackingGymEnv, PackingVectorEnv

__all__ = ["PackingGymEnv", "PackingVectorEnv"]
