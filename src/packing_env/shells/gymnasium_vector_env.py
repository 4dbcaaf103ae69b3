"""A batch of containers as a Gymnasium vector environment.

Spaces and ``info`` equal those of :mod:`packing_env.shells.gymnasium_env`, with a batch axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from tensordict import TensorDictBase
from torch import Tensor

from packing_env import render
from packing_env.envs.torchrl_env import PackingEnv
from packing_env.shells.gymnasium_shell import (
    RENDER_FPS,
    Info,
    Observation,
    Shell,
    TaskLimit,
    check_render_mode,
    to_numpy,
)
from packing_env.types import ParameterError


class PackingVectorEnv(TaskLimit, VectorEnv[Observation, Any, Any]):
    """A batch of containers as a ``gymnasium.vector.VectorEnv``, without a loop over rows.

    Observations and infos share memory with the environment: copy an array before you change it.

    Args:
        task: A preset, or a :class:`PackingEnv` with ``batch_size [num_envs]``.
        num_envs: Rows.
        autoreset_mode: With ``SAME_STEP`` a finished row returns the first observation of its next
            episode; the terminal one is in ``info["final_obs"]`` and ``info["final_info"]``. With
            ``NEXT_STEP`` the next call of :meth:`step` starts the episode and ignores the row's
            action. With ``DISABLED``, finished rows do not change and get reward 0, until
            ``reset(options={"reset_mask": rows})``.
        to_torch: Return tensors on the environment's device, without a copy or a host read. Then
            masks are bool, and ``final_obs`` is a dict of whole batches.
        render_mode: ``"rgb_array"`` or ``None``.
        seed: Seed of the instance pool and of the first episodes.
        max_episode_steps: Name that ``make_vec`` uses for ``max_steps``.
        **overrides: Arguments of :func:`packing_env.make_env`, or ``observation="flat"``.

    Raises:
        ParameterError: ``max_episode_steps`` and ``max_steps`` differ, or an override is invalid.
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
        check_render_mode(render_mode, ("rgb_array",))
        if max_episode_steps is not None:
            if overrides.get("max_steps") not in (None, max_episode_steps):
                raise ParameterError(
                    f"max_episode_steps={max_episode_steps} and "
                    f"max_steps={overrides['max_steps']} are the same limit; pass one of them"
                )
            overrides["max_steps"] = max_episode_steps
        self._shell = Shell(task, num_envs, seed, overrides)
        self.num_envs = num_envs
        self.to_torch = to_torch
        self.render_mode = render_mode
        self.autoreset_mode = _autoreset_mode(autoreset_mode)
        self.metadata = {
            "render_modes": ["rgb_array"],
            "render_fps": RENDER_FPS,
            "autoreset_mode": self.autoreset_mode,
        }
        self.single_observation_space = self._shell.observation_space
        self.single_action_space = self._shell.action_space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        self._observed: TensorDictBase | None = None

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Observation, Info]:
        """Start an episode in every row, or in the rows of ``options["reset_mask"]``.

        A row plays the same episode as a :class:`PackingGymEnv` with the row's seed. An integer
        gives row i the seed ``seed + i``. A sequence gives one seed per row; None means the row's
        next episode.

        Raises:
            ParameterError: A seed is not an integer from 0 to 2**63 - 1.
            ValueError: The number of seeds differs from the number of rows, or a seed is given
                together with a ``reset_mask``.
            RuntimeError: A ``reset_mask`` is given before the first reset.
        """
        self._shell.warn_of_options(options, "reset_mask")
        mask = (options or {}).get("reset_mask")
        if mask is None:
            self._observed = self._shell.start(seed, self.np_random)
            super().reset(seed=seed if isinstance(seed, int) else None)
        else:
            if seed is not None:
                raise ValueError("seed restarts every row; omit it with a reset_mask")
            if self._observed is None:
                raise RuntimeError("the first reset() starts every row; omit reset_mask")
            self._observed = self.packing_env.reset_rows(self._rows_of(mask), self._observed)
        return self._observation(self._observed), self._info(self._observed)

    def step(self, actions: Any) -> tuple[Observation, Any, Any, Any, Info]:
        """Place an item in every row.

        It warns once about an action outside the action space. With ``DISABLED``, it also warns
        once about a step after all rows have finished. With ``to_torch`` there is no warning,
        because it would need a host read.
        """
        # 1. Warn, unless this would read from the device.
        if self._observed is None:
            raise RuntimeError("call reset() before step()")
        before = self._observed["done"].squeeze(-1)
        if not self.to_torch:
            disabled = self.autoreset_mode is AutoresetMode.DISABLED
            self._shell.warn_of(actions, finished=disabled and bool(before.all()))
        # 2. Take the decision; with SAME_STEP it also restarts finished rows.
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
        # 3. With NEXT_STEP, rows that had finished before restart now; their actions are ignored.
        if self.autoreset_mode is AutoresetMode.NEXT_STEP:
            terminated, truncated = terminated & ~before, truncated & ~before
            if self.to_torch or bool(before.any()):
                self._observed = self.packing_env.reset_rows(before, out.exclude("reward"))
        return (
            self._observation(self._observed),
            self._give(reward),
            self._give(terminated),
            self._give(truncated),
            self._info(self._observed) | final,
        )

    def action_masks(self) -> Any:
        """Return the mask ``[num_envs, A]`` bool, True = legal."""
        return self._give(self._shell.action_mask(self._observed))

    def render(self) -> tuple[np.ndarray, ...] | None:
        """Return one picture per row, or ``None`` without a render mode."""
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
        tensors = self._shell.info(out) | self._shell.masks(out)
        values: Info = tensors if self.to_torch else {k: to_numpy(v) for k, v in tensors.items()}
        there = torch.ones_like(out["done"]).squeeze(-1) if rows is None else rows
        return values | {f"_{key}": self._give(there) for key in values}

    def _final(self, rows: Tensor, out: TensorDictBase) -> Info:
        """Return the terminal observation and info of the rows that finished.

        The info includes the observation's entries as whole batches, because TorchRL reads them
        there.
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


def _autoreset_mode(wanted: AutoresetMode | str) -> AutoresetMode:
    """Convert an autoreset mode, given as mode, name or value, to the mode."""
    for mode in AutoresetMode:
        if wanted in (mode, mode.name, mode.value):
            return mode
    known = [mode.name for mode in AutoresetMode]
    raise ValueError(f"autoreset_mode={wanted!r} is unknown; choose one of {known}")
