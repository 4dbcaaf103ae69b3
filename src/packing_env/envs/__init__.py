"""The environment as a TorchRL ``EnvBase``: a thin shell around the core."""

from packing_env.envs.afterstates import Afterstates
from packing_env.envs.torchrl_env import PackingEnv
from packing_env.envs.worker_maps import WorkerMaps

__all__ = ["Afterstates", "PackingEnv", "WorkerMaps"]
