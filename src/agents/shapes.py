"""The shapes of observations that a policy expects."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase

from packing_env.envs import PackingEnv
from packing_env.types import ParameterError


class ShapeCheck:
    """Forward pre-hook that refuses entries which are missing or have other shapes than in ``env``.

    It compares shapes only, so it reads nothing from the device.

    Args:
        policy: A policy. If it reads the environment's state instead of observations, all
            observations of the input are compared.
        env: The environment for which the policy was built.
        rows: Whether the batch must be the environment's rows, because the policy reads their
            state. Otherwise only the axes after the batch are compared.
    """

    def __init__(
        self, policy: TensorDictModuleBase, env: PackingEnv, *, rows: bool = False
    ) -> None:
        specs, batch = env.observation_spec, len(env.batch_size)
        known = list(specs.keys(True, True))
        self.read = [key for key in policy.in_keys if key in known]
        self.rows = batch if rows else 0
        self.shapes = {key: specs[key].shape[batch - self.rows :] for key in self.read or known}

    def __call__(self, policy: Any, arguments: tuple[Any, ...]) -> None:
        """Raise a ParameterError if an entry of the first argument does not fit."""
        tensordict = arguments[0] if arguments else None
        if torch.compiler.is_compiling() or not isinstance(tensordict, TensorDictBase):
            return
        for key, expected in self.shapes.items():
            entry = tensordict.get(key, None)
            if entry is None and key not in self.read:
                continue
            shape = None if entry is None else entry.shape[entry.dim() - len(expected) :]
            if shape != expected:
                name = "/".join(key) if isinstance(key, tuple) else key
                unit = "" if self.rows else " per row"
                differs = "is missing" if shape is None else f"has shape {list(shape)}{unit}"
                raise ParameterError(
                    f"{name} {differs}, but this {type(policy).__name__} was built for "
                    f"{list(expected)}; build or load it for the environment in which it acts"
                )


def with_shape_check(policy: TensorDictModuleBase, env: PackingEnv) -> TensorDictModuleBase:
    """Make a policy refuse observations whose shapes differ from those of ``env``; return it."""
    policy.register_forward_pre_hook(ShapeCheck(policy, env))
    return policy
