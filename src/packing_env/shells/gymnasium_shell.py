"""The common part of the Gymnasium environments: spaces, and calls translated to `PackingEnv`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import NestedKey, TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, MultiCategorical, TensorSpec

from packing_env.envs.torchrl_env import PackingEnv
from packing_env.tasks import LEAN, make_env
from packing_env.types import ParameterError

_LARGEST_SEED = 2**63 - 1


def space_of(spec: TensorSpec) -> spaces.Space[Any]:
    """Convert one row of a batched spec to a Gymnasium space."""
    shape = tuple(spec.shape[1:])
    if isinstance(spec, Binary):
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if isinstance(spec, MultiCategorical):
        return spaces.MultiDiscrete(spec.nvec.reshape(-1, *shape)[0].cpu().numpy())
    if isinstance(spec, Categorical):
        return spaces.Discrete(int(spec.space.n))
    if isinstance(spec, Bounded):
        low, high = spec.space.low[0].cpu().numpy(), spec.space.high[0].cpu().numpy()
        return spaces.Box(low, high, shape, low.dtype.type)
    raise TypeError(f"{type(spec).__name__} has no Gymnasium space here; use the TorchRL interface")


class Shell:
    """A :class:`PackingEnv` with the calls that the Gymnasium environments need.

    Args:
        task: A preset, or an existing environment.
        num_envs: Rows.
        seed: Seed of the instance pool and of the first episode; without one the pool is that of
            seed 0 and episodes are drawn at random until ``reset(seed=...)``.
        overrides: Arguments of :func:`packing_env.make_env`.
    """

    def __init__(
        self, task: str | PackingEnv, num_envs: int, seed: int | None, overrides: dict[str, Any]
    ) -> None:
        if isinstance(task, PackingEnv):
            if overrides:
                raise TypeError(
                    f"overrides {sorted(overrides)} have no effect on a given environment; pass "
                    "them to packing_env.make_env"
                )
            if task.batch_size != torch.Size([num_envs]):
                raise ValueError(
                    f"the given env has batch_size {list(task.batch_size)}, expected [{num_envs}]"
                )
            self.env = task
        else:
            if "frameskip" in overrides:  # torchrl's GymEnv tries it and waits for this error
                raise TypeError("__init__() got an unexpected keyword argument 'frameskip'")
            options = {"observation": LEAN, **overrides}
            self.env = make_env(task, num_envs, seed=0 if seed is None else seed, **options)
        self.seeded = isinstance(task, PackingEnv) or seed is not None
        spec = self.env.observation_spec
        self.mask_keys = {_flat_name(key): key for key in self.env.mode.mask_keys}
        entries = dict(spec["observation"].items())
        entries |= {name: spec[key] for name, key in self.mask_keys.items()}
        self.observation_space = spaces.Dict({k: space_of(v) for k, v in entries.items()})
        self._parts = {_part_name(key): key for key in self.env.takes}
        parts = {
            name: space_of(self.env.full_action_spec[key]) for name, key in self._parts.items()
        }
        self.action_space = parts["action"] if set(parts) == {"action"} else spaces.Dict(parts)

    def start(self, seed: int | Sequence[int] | None, random: np.random.Generator) -> TensorDict:
        """Start an episode in every row: the one of a seed, or the next of the row's stream."""
        if seed is None and not self.seeded:
            seed = int(random.integers(_LARGEST_SEED))
        if seed is not None:
            given = seed if isinstance(seed, Sequence) else [seed]
            self.env._set_seed(torch.tensor([int(s) & _LARGEST_SEED for s in given]))
        self.seeded = True
        return self.env.reset()

    def step(self, action: Any) -> TensorDictBase:
        """Execute one decision per row."""
        return self.env.step(self._given(action)).get("next")

    def step_and_restart(self, action: Any) -> tuple[TensorDictBase, TensorDictBase]:
        """Execute one decision per row and restart the rows that it finishes.

        Returns:
            The ``next`` entry, and the root with the first observation of restarted rows.
        """
        taken, following = self.env.step_and_maybe_reset(self._given(action))
        return taken.get("next"), following

    def _given(self, action: Any) -> TensorDictBase:
        """Convert the action to the environment's TensorDict."""
        given = TensorDict({}, self.env.batch_size)
        if set(self._parts) == {"action"}:
            action = {"action": action}
        elif not isinstance(action, Mapping) or set(action) != set(self._parts):
            raise TypeError(
                f"the action must be a dict of {' and '.join(self._parts)}, got "
                f"{type(action).__name__}"
            )
        for name, key in self._parts.items():
            given.set(key, self._entry(name, key, action[name]))
        return given

    def observation(self, out: TensorDictBase) -> dict[str, Tensor]:
        """Return the observation as a flat dict, masks included."""
        return dict(out["observation"].items()) | self.masks(out)

    def masks(self, out: TensorDictBase) -> dict[str, Tensor]:
        """Return the masks by name; empty in a mode where every action is legal."""
        return {name: out[key] for name, key in self.mask_keys.items()}

    def info(self, out: TensorDictBase) -> dict[str, Tensor]:
        """Return the metrics, and the action mode's reports on the last decision."""
        reports = {_flat_name(key): out[key] for key in self.env.mode.report_keys}
        return {key: value.squeeze(-1) for key, value in out["metrics"].items()} | reports

    def action_mask(self, out: TensorDictBase | None) -> Tensor:
        """Return the mask of the environment's only action.

        Raises:
            ParameterError: The action mode has several masks or none.
            RuntimeError: There was no :meth:`start`.
        """
        if "action_mask" not in self.mask_keys:
            raise ParameterError(
                f"action_mode={self.env.params.action_mode!r} has no mask over all its actions; "
                f"its masks: {', '.join(self.mask_keys) or 'none, every action is legal'}"
            )
        if out is None:
            raise RuntimeError("there is no action mask before the first reset(); call reset()")
        return out["action_mask"]

    def _entry(self, name: str, key: NestedKey, action: Any) -> Tensor:
        """Convert one part of the action; out-of-range numbers pass, as illegal actions."""
        dtype, shape = self.env.takes[key]
        kind = "numbers" if dtype.is_floating_point else "whole numbers"
        given = torch.as_tensor(action, device=self.env.device)
        if given.is_floating_point() and not dtype.is_floating_point:
            raise TypeError(f"{name} is {given.dtype}; this environment takes {kind}")
        if given.numel() != shape.numel():
            raise ValueError(
                f"{name} has shape {tuple(given.shape)}; this environment takes {kind} "
                f"{tuple(shape)}, the containers first"
            )
        return given.to(dtype).reshape(shape)


def _flat_name(key: NestedKey) -> str:
    """Join a key that may be nested with underscores."""
    return key if isinstance(key, str) else "_".join(key)


def _part_name(key: NestedKey) -> str:
    """Name a part of the action: ``("manager", "action")`` is ``manager``."""
    return _flat_name(key[:-1] if isinstance(key, tuple) and key[-1] == "action" else key)


def to_numpy(value: Tensor) -> np.ndarray:
    """Convert to NumPy on the host; masks as int8, as in Gymnasium's spaces."""
    array = value.cpu().numpy()
    return array.view(np.int8) if array.dtype == bool else array
