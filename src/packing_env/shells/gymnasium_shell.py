"""What the Gymnasium environments share: spaces, and a translation of calls to `PackingEnv`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, TensorSpec

from packing_env.envs.torchrl_env import PackingEnv
from packing_env.tasks import LEAN, make_env

_LARGEST_SEED = 2**63 - 1


def space_of(spec: TensorSpec) -> spaces.Space:
    """The Gymnasium space of one row of a batched spec."""
    shape = tuple(spec.shape[1:])
    if isinstance(spec, Binary):
        return spaces.MultiBinary(shape[0] if len(shape) == 1 else shape)
    if isinstance(spec, Categorical):
        return spaces.Discrete(int(spec.space.n))
    if isinstance(spec, Bounded):
        low, high = spec.space.low[0].cpu().numpy(), spec.space.high[0].cpu().numpy()
        return spaces.Box(low, high, shape, low.dtype.type)
    raise TypeError(f"{type(spec).__name__} has no Gymnasium space here; use the TorchRL interface")


class Shell:
    """A :class:`PackingEnv` with the calls that Gymnasium's environments are made of.

    Args:
        task: A preset, or an environment that exists.
        num_envs: Rows.
        seed: Seed of the instance pool and of the first episode; without one the pool is that of
            seed 0 and episodes are drawn at random until ``reset(seed=...)``.
        overrides: For :func:`packing_env.make_env`.
    """

    def __init__(
        self, task: str | PackingEnv, num_envs: int, seed: int | None, overrides: dict[str, Any]
    ) -> None:
        if isinstance(task, PackingEnv):
            if overrides:
                raise TypeError(f"overrides {sorted(overrides)} have no effect on a given env")
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
        entries = dict(self.env.observation_spec["observation"].items())
        entries["action_mask"] = self.env.observation_spec["action_mask"]
        self.observation_space = spaces.Dict({k: space_of(v) for k, v in entries.items()})
        self.action_space = space_of(self.env.action_spec)

    def start(self, seed: int | Sequence[int] | None, random: np.random.Generator) -> TensorDict:
        """Start an episode in every row: of a seed, else the next of the rows' streams."""
        if seed is None and not self.seeded:
            seed = int(random.integers(_LARGEST_SEED))
        if seed is not None:
            given = seed if isinstance(seed, Sequence) else [seed]
            self.env._set_seed(torch.tensor([int(s) & _LARGEST_SEED for s in given]))
        self.seeded = True
        return self.env.reset()

    def step(self, action: Any) -> TensorDictBase:
        """One decision per row."""
        given = TensorDict({"action": self._action(action)}, self.env.batch_size)
        return self.env.step(given).get("next")

    def restart(self, rows: Tensor, seen: TensorDictBase) -> TensorDictBase:
        """Start the next episode in some rows; ``seen`` is what the others observe."""
        assert self.env.state is not None, "call reset() before step()"
        state, root = self.env._renew(rows, dict(self.env.state.items()), seen)
        self.env._keep(state)
        return root

    def _action(self, action: Any) -> Tensor:
        """The action as the environment takes it; any whole number is an action, if illegal."""
        spec = self.env.action_spec
        given = torch.as_tensor(action, device=self.env.device)
        if given.is_floating_point() and not spec.dtype.is_floating_point:
            raise TypeError(f"action is {given.dtype}; this environment takes whole numbers")
        if given.numel() != spec.shape.numel():
            raise ValueError(
                f"action has shape {tuple(given.shape)}; this environment takes one whole number "
                f"per container, {tuple(spec.shape)}"
            )
        return given.to(spec.dtype).reshape(spec.shape)
