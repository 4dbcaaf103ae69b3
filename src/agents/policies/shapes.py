"""The shapes of observations that a policy expects."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from packing_env.envs import PackingEnv
from packing_env.types import ParameterError


class ShapeCheck:
    """Forward pre-hook that names the entry whose shape differs from the environment's.

    It compares all axes after the batch, on the host and without reading tensors.
    """

    def __init__(self, policy: TensorDictModuleBase, env: PackingEnv) -> None:
        specs = env.observation_spec
        keys = [key for key in policy.in_keys if key in specs.keys(True, True)]
        self.shapes = {key: specs[key].shape[len(env.batch_size) :] for key in keys}

    def __call__(self, policy: Any, arguments: tuple[Any, ...]) -> None:
        """Raise a ParameterError if an entry of the first argument has another shape."""
        tensordict = arguments[0] if arguments else None
        if torch.compiler.is_compiling() or not isinstance(tensordict, TensorDictBase):
            return
        for key, expected in self.shapes.items():
            entry = tensordict.get(key, None)
            shape = expected if entry is None else entry.shape[entry.dim() - len(expected) :]
            if shape != expected:
                name = "/".join(key) if isinstance(key, tuple) else key
                raise ParameterError(
                    f"{name} has shape {list(shape)} per row, but this {type(policy).__name__} "
                    f"was built for {list(expected)}; build or load it with the environment that "
                    "it plays"
                )


def with_shape_check(policy: TensorDictModuleBase, env: PackingEnv) -> TensorDictModuleBase:
    """Return the policy, which from now on refuses observations of other shapes than ``env``'s."""
    policy.register_forward_pre_hook(ShapeCheck(policy, env))
    return policy
