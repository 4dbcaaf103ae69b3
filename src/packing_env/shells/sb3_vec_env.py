"""A batch of containers as a Stable-Baselines3 ``VecEnv``; it needs ``stable-baselines3``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from tensordict import TensorDictBase

from packing_env import render
from packing_env.envs.torchrl_env import PackingEnv
from packing_env.shells.gymnasium_shell import Shell, check_render_mode, to_numpy
from packing_env.types import ParameterError

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise ImportError(
        "PackingSB3VecEnv needs Stable-Baselines3: pip install stable-baselines3 (and sb3-contrib "
        "for MaskablePPO)"
    ) from error

Indices = int | Iterable[int] | None


class PackingSB3VecEnv(VecEnv):
    """A batch of containers as a Stable-Baselines3 ``VecEnv``, without a loop over rows.

    The observation is that of :class:`packing_env.PackingVectorEnv` without masks.
    ``env_method("action_masks")`` returns the masks; sb3-contrib's ``MaskablePPO`` calls it. With
    ``observation="flat"`` the observation is a ``Box``, for ``MlpPolicy``. A finished row returns
    the first observation of its next episode. Its ``info`` has the metrics,
    ``terminal_observation`` and ``TimeLimit.truncated``; the ``info`` of other rows is empty.
    ``VecMonitor`` adds returns.

    Args:
        task: A preset, or a :class:`PackingEnv` with ``batch_size [num_envs]``.
        num_envs: Rows.
        seed: Seed of the instance pool and of the first episodes: row i has ``seed + i``.
        render_mode: ``"rgb_array"`` or ``None``.
        **overrides: Arguments of :func:`packing_env.make_env`, or ``observation="flat"`` (the
            default).

    Raises:
        ParameterError: An override is invalid, or the actions are a ``Dict`` (``hierarchical``),
            which Stable-Baselines3 does not support.
    """

    def __init__(
        self,
        task: str | PackingEnv = "irregular",
        *,
        num_envs: int = 1,
        seed: int | None = None,
        render_mode: str | None = None,
        **overrides: Any,
    ) -> None:
        check_render_mode(render_mode, ("rgb_array",))
        if not isinstance(task, PackingEnv):
            overrides = {"observation": "flat", **overrides}
        self._shell = Shell(task, num_envs, seed, overrides)
        if isinstance(self._shell.action_space, spaces.Dict):
            raise ParameterError(
                f"action_mode={self.packing_env.params.action_mode!r} has several actions, which "
                "Stable-Baselines3 does not support; use placement, candidate, multi_head or "
                "continuous"
            )
        self.render_mode = render_mode
        self._random = np.random.default_rng()
        self._observed: TensorDictBase | None = None
        self._actions: np.ndarray | None = None
        entries = dict(self._shell.observation_space.items())
        self._names = [name for name in entries if name not in self._shell.mask_keys]
        self._is_box = self._names == ["observation"]
        space = spaces.Dict({name: entries[name] for name in self._names})
        super().__init__(
            num_envs, space["observation"] if self._is_box else space, self._shell.action_space
        )

    @property
    def packing_env(self) -> PackingEnv:
        """The underlying environment, with its state, catalogue and parameters."""
        return self._shell.env

    def reset(self) -> Any:
        """Start an episode in every row, with the seeds of the last call of ``seed``, if any."""
        out = self._shell.start(self._seeds, self._random)
        self._reset_seeds()
        self._reset_options()
        self._observed = out
        return self._observation(out)

    def step_async(self, actions: np.ndarray) -> None:
        """Store the actions for :meth:`step_wait`."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Place an item in every row; finished rows start their next episode."""
        out, following = self._shell.step_and_restart(self._actions)
        self._observed = following
        done = out["done"].squeeze(-1).cpu().numpy()
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if done.any():
            for row, info in self._final(out, np.flatnonzero(done)):
                infos[row] = info
        reward = out["reward"].squeeze(-1).cpu().numpy()
        return self._observation(following), reward.copy(), done.copy(), infos

    def _final(self, out: TensorDictBase, rows: np.ndarray) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield the finished rows, each with its info."""
        finished = out[torch.from_numpy(rows).to(out.device)].cpu()
        last = self._observation(finished)
        truncated = (finished["truncated"] & ~finished["terminated"]).squeeze(-1).tolist()
        metrics = {name: value.tolist() for name, value in self._shell.info(finished).items()}
        for index, row in enumerate(rows.tolist()):
            info = {name: values[index] for name, values in metrics.items()}
            info["TimeLimit.truncated"] = truncated[index]
            info["terminal_observation"] = (
                last[index] if self._is_box else {name: last[name][index] for name in last}
            )
            yield row, info

    def _observation(self, out: TensorDictBase) -> Any:
        """Return the box, or the entries except masks, on the host."""
        entries = self._shell.observation(out)
        if self._is_box:
            return to_numpy(entries["observation"])
        return {name: to_numpy(entries[name]) for name in self._names}

    def action_masks(self) -> np.ndarray:
        """Return the mask ``[num_envs, A]`` bool, True = legal.

        Raises:
            ParameterError: The action mode has no mask that ``MaskablePPO`` can use.
            RuntimeError: :meth:`reset` was not called yet.
        """
        mode = self.packing_env.params.action_mode
        if mode == "multi_head":
            raise ParameterError(
                "action_mode='multi_head' has one joint mask over all heads, but MaskablePPO "
                "masks each head separately; use action_mode='placement' or 'candidate'"
            )
        return self._shell.action_mask(self._observed).cpu().numpy()

    def env_method(
        self, method_name: str, *method_args: Any, indices: Indices = None, **method_kwargs: Any
    ) -> list[Any]:
        """Return the masks of the rows; rows have no method other than ``action_masks``.

        Raises:
            AttributeError: Another method is requested.
        """
        if method_name != "action_masks":
            raise AttributeError(
                f"the rows of a batch have no method {method_name!r} of their own, only "
                "action_masks; call methods of the adapter or of its packing_env"
            )
        masks = self.action_masks()
        return [masks[row] for row in self._get_indices(indices)]

    def get_attr(self, attr_name: str, indices: Indices = None) -> list[Any]:
        """Return the adapter's attribute, once per row."""
        return [getattr(self, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Indices = None) -> None:
        """Set an attribute of the adapter, which is shared by all rows.

        Raises:
            ValueError: ``indices`` selects some rows only.
        """
        if indices is not None:
            raise ValueError("rows have no attributes of their own; omit indices")
        setattr(self, attr_name, value)

    def env_is_wrapped(
        self, wrapper_class: type[gymnasium.Wrapper[Any, Any, Any, Any]], indices: Indices = None
    ) -> list[bool]:
        """Return False for each row, because rows have no wrappers of their own."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """Return one picture per row; None without a render mode."""
        if self.render_mode is None:
            return [None] * self.num_envs
        return [render.frame(self.packing_env, row) for row in range(self.num_envs)]

    def close(self) -> None:
        """Do nothing: there are no processes and no windows."""
