"""One container as a Gymnasium environment, with NumPy arrays.

The observation is a flat ``Dict``: the entries that ``observation=`` names, and ``action_mask``. By
default it omits ``"item_maps"``, the upper and lower surfaces of every visible item in every
orientation, which are larger than all other entries. It includes ``drop_height``, the rest height
of every placement. ``info`` repeats ``action_mask`` and adds the metrics by name, for wrappers such
as ``Monitor(env, info_keywords=("utilization",))``.

``observation="flat"`` is for networks that take vectors: ``Dict(observation=Box,
action_mask=...)``. The box joins the heightmap, the features of items and orientations and, in mode
``candidate``, the candidates. All values are in [0, 1]; drop heights are not included.

| ``action_mode`` | action space | masks |
|---|---|---|
| ``placement``, ``candidate`` | ``Discrete`` | ``action_mask``, one entry per action |
| ``multi_head`` | ``MultiDiscrete``: item, orientation, x, y | ``action_mask``, one per placement |
| ``hierarchical`` | ``Dict(manager=, worker=)`` of ``Discrete`` | ``manager_action_mask`` |
| ``continuous`` | ``Box``; ``info["executed_action"]``: the action executed | none: all is legal |
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from tensordict import TensorDictBase

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

RENDER_MODES = ("rgb_array", "human")


class PackingGymEnv(TaskLimit, gymnasium.Env[Observation, Any]):
    """One container as a ``gymnasium.Env``.

    Illegal actions never raise; ``illegal_action`` sets their effect (by default the episode ends).
    Sample a legal action with ``env.action_space.sample(mask=info["action_mask"])``.

    Args:
        task: A preset of :data:`packing_env.tasks.PRESETS`, or a :class:`PackingEnv` of one row.
        render_mode: ``"rgb_array"``, ``"human"`` or ``None``.
        seed: Seed of the instance pool and of the first episode.
        **overrides: Arguments of :func:`packing_env.make_env`, or ``observation="flat"``.
    """

    metadata = {"render_modes": list(RENDER_MODES), "render_fps": RENDER_FPS}  # noqa: RUF012

    def __init__(
        self,
        task: str | PackingEnv = "irregular",
        *,
        render_mode: str | None = None,
        seed: int | None = None,
        **overrides: Any,
    ) -> None:
        check_render_mode(render_mode, RENDER_MODES)
        self.render_mode = render_mode
        self._shell = Shell(task, 1, seed, overrides)
        self.observation_space = self._shell.observation_space
        self.action_space = self._shell.action_space
        self._masks: TensorDictBase | None = None
        self._window: render.Window | None = None
        self._finished = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, Info]:
        """Start the episode of ``seed``; without a seed, start the next episode."""
        self._shell.warn_of_options(options)
        out = self._shell.start(seed, self.np_random)
        super().reset(seed=seed)
        return self._convert(out)

    def step(self, action: Any) -> tuple[Observation, float, bool, bool, Info]:
        """Place an item; a finished episode does not change, gives reward 0, and warns once."""
        self._shell.warn_of(action, self._finished)
        out = self._shell.step(action)
        observation, info = self._convert(out)
        terminated, truncated = bool(out["terminated"]), bool(out["truncated"])
        return observation, float(out["reward"]), terminated, truncated, info

    def _convert(self, out: TensorDictBase) -> tuple[Observation, Info]:
        # Copy the only row to the host; keep the masks for action_masks().
        row = out[0].cpu()
        self._finished = bool(row["done"])
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

        In mode ``multi_head``, ``A`` is the number of placements: the mask is the joint mask of all
        heads.

        Raises:
            ParameterError: The action mode is ``hierarchical`` or ``continuous``, which have no
                such mask.
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
