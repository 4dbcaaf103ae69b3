"""Gymnasium environments: one container, or a batch of them, as NumPy arrays.

The observation is a flat ``Dict``: the entries that ``observation=`` names, and ``action_mask``. By
default it omits ``"item_maps"`` (the upper and lower surface of every visible item in every
orientation), which is larger than all other entries; it includes ``drop_height``, the rest height
of every placement. ``info`` repeats ``action_mask`` and has the metrics by name, for wrappers such
as ``Monitor(env, info_keywords=("utilization",))``.

| ``action_mode`` | action space | masks |
|---|---|---|
| ``placement``, ``candidate`` | ``Discrete`` | ``action_mask``, one entry per action |
| ``multi_head`` | ``MultiDiscrete``: item, orientation, x, y | ``action_mask``, one per placement |
| ``hierarchical`` | ``Dict(manager=, worker=)`` of ``Discrete`` | ``manager_action_mask`` |
| ``continuous`` | ``Box``; ``info["executed_action"]``: the action executed | none: all is legal |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from tensordict import TensorDictBase
from torch import Tensor

from packing_env import render
from packing_env.envs.torchrl_env import PackingEnv
from packing_env.shells.gymnasium_shell import Shell, to_numpy

RENDER_MODES = ("rgb_array", "human")

Observation = dict[str, Any]
Info = dict[str, Any]


class PackingGymEnv(gymnasium.Env[Observation, Any]):
    """One container as a ``gymnasium.Env``.

    Illegal actions never raise; ``illegal_action`` sets their effect (by default the episode ends).
    Sample a legal one with ``env.action_space.sample(mask=info["action_mask"])``.

    Args:
        task: A preset of :data:`packing_env.tasks.PRESETS`, or a :class:`PackingEnv` of one row.
        render_mode: ``"rgb_array"``, ``"human"`` or ``None``.
        seed: Seed of the instance pool and of the first episode.
        **overrides: Arguments of :func:`packing_env.make_env`.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": 4}  # noqa: RUF012

    def __init__(
        self,
        task: str | PackingEnv = "irregular",
        *,
        render_mode: str | None = None,
        seed: int | None = None,
        **overrides: Any,
    ) -> None:
        _check_render_mode(render_mode, RENDER_MODES)
        self.render_mode = render_mode
        self._shell = Shell(task, 1, seed, overrides)
        self.observation_space = self._shell.observation_space
        self.action_space = self._shell.action_space
        self._masks: TensorDictBase | None = None
        self._window: render.Window | None = None

    @property
    def packing_env(self) -> PackingEnv:
        """The environment underneath, with its state, catalogue and parameters."""
        return self._shell.env

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Start the episode of ``seed``, or the next one."""
        super().reset(seed=seed)
        return self._convert(self._shell.start(seed, self.np_random))

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Place an item; a finished episode does not change, with reward 0."""
        out = self._shell.step(action)
        observation, info = self._convert(out)
        terminated, truncated = bool(out["terminated"]), bool(out["truncated"])
        return observation, float(out["reward"]), terminated, truncated, info

    def _convert(self, out: TensorDictBase) -> tuple[Observation, Info]:
        """Return observation and info of the only row."""
        row = out[0].cpu()
        self._masks = row.select(*self._shell.mask_keys.values()).clone()
        observation = {k: to_numpy(v) for k, v in self._shell.observation(row).items()}
        info: Info = {name: observation[name].copy() for name in self._shell.mask_keys}
        for key, value in self._shell.info(row).items():
            info[key] = value.numpy() if value.dim() else value.item()
        if self.render_mode == "human":
            self._show()
        return observation, info

    def action_masks(self) -> np.ndarray:
        """Return the mask ``[A]`` bool, True = legal; sb3-contrib's ``MaskablePPO`` calls this.

        In ``multi_head`` mode ``A`` counts placements: the mask is the joint mask of all heads.

        Raises:
            ParameterError: In ``hierarchical`` and ``continuous`` mode, which have no such mask.
        """
        return self._shell.action_mask(self._masks).numpy().copy()

    def render(self) -> np.ndarray | None:
        """Return a picture ``[height, width, 3]`` uint8 (``rgb_array``) or update the window."""
        if self.render_mode is None:
            gymnasium.logger.warn(
                "render() without a render_mode does nothing; pass render_mode='rgb_array' to "
                "gymnasium.make"
            )
            return None
        if self.render_mode == "human":
            self._show()
            return None
        return render.frame(self.packing_env)

    def _show(self) -> None:
        if self._window is None:
            self._window = render.Window()
        self._window.show(render.frame(self.packing_env))

    def close(self) -> None:
        """Close the window, if there is one."""
        if self._window is not None:
            self._window.close()
            self._window = None


class PackingVectorEnv(VectorEnv[Observation, Any, Any]):
    """A batch of containers as a ``gymnasium.vector.VectorEnv``, without a loop over rows.

    Args:
        task: A preset, or a :class:`PackingEnv` with ``batch_size [num_envs]``.
        num_envs: Rows.
        autoreset_mode: ``SAME_STEP`` (a finished row returns the first observation of its next
            episode, its terminal one is in ``info["final_obs"]`` and ``info["final_info"]``),
            ``NEXT_STEP`` (the next call of :meth:`step` starts the episode and ignores the action),
            or ``DISABLED`` (finished rows do not change, with reward 0, until
            ``reset(options={"reset_mask": rows})``).
        to_torch: Return tensors on the environment's device, without a copy or a host read; masks
            are bool, and ``final_obs`` is a dict of whole batches.
        render_mode: ``"rgb_array"`` or ``None``.
        seed: Seed of the instance pool and of the first episodes.
        max_episode_steps: Alias of ``max_steps``, used by ``make_vec``.
        **overrides: Arguments of :func:`packing_env.make_env`.
    """

    def __init__(
        self,
        task: str | PackingEnv = "irregular",
        *,
        num_envs: int = 1,
        autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP,
        to_torch: bool = False,
        render_mode: str | None = None,
        seed: int | None = None,
        max_episode_steps: int | None = None,
        **overrides: Any,
    ) -> None:
        _check_render_mode(render_mode, ("rgb_array",))
        if max_episode_steps is not None:
            overrides["max_steps"] = max_episode_steps
        self._shell = Shell(task, num_envs, seed, overrides)
        self.num_envs = num_envs
        self.to_torch = to_torch
        self.render_mode = render_mode
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": PackingGymEnv.metadata["render_fps"],
            "autoreset_mode": self.autoreset_mode,
        }
        self.single_observation_space = self._shell.observation_space
        self.single_action_space = self._shell.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._observed: TensorDictBase | None = None

    @property
    def packing_env(self) -> PackingEnv:
        """The environment underneath, with its state, catalogue and parameters."""
        return self._shell.env

    def reset(
        self,
        *,
        seed: int | Sequence[int] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, Info]:
        """Start an episode in every row, or in the rows of ``options["reset_mask"]``.

        From one seed every row gets its own stream; a sequence gives one seed per row.
        """
        mask = (options or {}).get("reset_mask")
        if mask is None:
            if isinstance(seed, Sequence) and len(seed) != self.num_envs:
                raise ValueError(f"{len(seed)} seeds for {self.num_envs} rows; pass one per row")
            super().reset(seed=None if isinstance(seed, Sequence) else seed)
            self._observed = self._shell.start(seed, self.np_random)
        else:
            if seed is not None:
                raise ValueError("seed restarts every row; omit it with a reset_mask")
            if self._observed is None:
                raise RuntimeError("the first reset() starts every row; omit reset_mask")
            self._observed = self.packing_env.reset_rows(self._rows_of(mask), self._observed)
        return self._observation(self._observed), self._info(self._observed)

    def step(self, actions: Any) -> tuple[Observation, Any, Any, Any, Info]:
        """Place an item in every row."""
        if self._observed is None:
            raise RuntimeError("call reset() before step()")
        before = self._observed["done"].squeeze(-1)
        final: Info = {}
        if self.autoreset_mode is AutoresetMode.SAME_STEP:
            out, self._observed = self._shell.step_and_restart(actions)
            rows = out["done"].squeeze(-1)
            if self.to_torch or bool(rows.any()):
                final = self._final(rows, out)
        else:
            out = self._observed = self._shell.step(actions)
        reward, terminated, truncated = (
            out[key].squeeze(-1).clone() for key in ("reward", "terminated", "truncated")
        )
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            terminated, truncated = terminated & ~before, truncated & ~before
            if self.to_torch or bool(before.any()):
                self._observed = self.packing_env.reset_rows(before, out.exclude("reward"))
        flags = (self._give(value) for value in (reward, terminated, truncated))
        return self._observation(self._observed), *flags, self._info(self._observed) | final

    def action_masks(self) -> Any:
        """Return the mask ``[num_envs, A]`` bool, True = legal."""
        return self._give(self._shell.action_mask(self._observed))

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Return one picture per row; ``None`` without a render mode."""
        if self.render_mode is None:
            return None
        return tuple(render.frame(self.packing_env, row) for row in range(self.num_envs))

    def _give(self, value: Tensor) -> Any:
        return value if self.to_torch else value.cpu().numpy()

    def _observation(self, out: TensorDictBase) -> Observation:
        entries = self._shell.observation(out)
        return entries if self.to_torch else {key: to_numpy(v) for key, v in entries.items()}

    def _info(self, out: TensorDictBase, rows: Tensor | None = None) -> Info:
        """Return masks and metrics, each with its ``_key`` flags per row, as Gymnasium does."""
        found = self._shell.info(out) | self._shell.masks(out)
        values: Info = found if self.to_torch else {k: to_numpy(v) for k, v in found.items()}
        there = torch.ones_like(out["done"]).squeeze(-1) if rows is None else rows
        return values | {f"_{key}": self._give(there) for key in values}

    def _final(self, rows: Tensor, out: TensorDictBase) -> Info:
        """Return the terminal observation and info of the rows that finished.

        The info includes the observation's entries as whole batches, where TorchRL reads them.
        """
        every = self._observation(out)
        finished = self._give(rows)
        info = self._info(out, rows) | every | {f"_{key}": finished for key in every}
        last: Any = every
        if not self.to_torch:
            last = np.full(self.num_envs, None, dtype=object)
            for row in rows.nonzero().flatten().tolist():
                last[row] = {key: value[row] for key, value in every.items()}
        flags = {"_final_obs": finished, "_final_info": finished}
        return {"final_obs": last, "final_info": info, **flags}

    def _rows_of(self, mask: Any) -> Tensor:
        rows = torch.as_tensor(mask, device=self._shell.env.device)
        if rows.dtype != torch.bool or rows.shape != (self.num_envs,):
            raise ValueError(
                f"options['reset_mask'] is {rows.dtype} {tuple(rows.shape)}, expected bool "
                f"({self.num_envs},)"
            )
        return rows


def _check_render_mode(given: str | None, known: Sequence[str]) -> None:
    if given is not None and given not in known:
        raise ValueError(f"render_mode={given!r} is unknown; choose one of {tuple(known)} or None")


def _autoreset_mode(given: AutoresetMode | str) -> AutoresetMode:
    """Convert a mode, its name or its value to the mode."""
    for mode in AutoresetMode:
        if given in (mode, mode.name, mode.value):
            return mode
    known = [mode.name for mode in AutoresetMode]
    raise ValueError(f"autoreset_mode={given!r} is unknown; choose one of {known}")
