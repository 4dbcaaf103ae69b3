"""The environment as a TorchRL ``EnvBase``: a thin shell around the core."""

from packing_env.envs.torchrl_env import PackingEnv

__all__ = ["PackingEnv"]
