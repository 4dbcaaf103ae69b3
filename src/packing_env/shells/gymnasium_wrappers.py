"""Wrappers for networks that take one vector or one picture instead of a ``Dict``."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from packing_env.shells.gymnasium_shell import FLAT, flat_names, joined_space
from packing_env.types import ParameterError, check_integer


class FlatObservation(gymnasium.ObservationWrapper[np.ndarray, Any, dict[str, Any]]):
    """The observation as one float32 vector in [0, 1], for ``MlpPolicy`` and similar networks.

    It joins the same entries as ``observation="flat"``: the heightmap, the features of items and
    orientations and, in ``candidate`` mode, the candidates. Masks stay in ``info`` and
    ``action_masks()``.

    Args:
        env: A :class:`packing_env.PackingGymEnv`, or wrappers around one.

    Raises:
        ParameterError: The observation is not a ``Dict`` with these entries.
    """

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        entries = _entries(env)
        self._names = ("observation",) if "observation" in entries else flat_names(entries)
        if not self._names:
            raise ParameterError(
                f"the observation has none of {', '.join(FLAT)}; add them to observation=[...]"
            )
        self.observation_space = joined_space([entries[name] for name in self._names])

    def observation(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Join the entries."""
        parts = [np.ravel(observation[name]) for name in self._names]
        return np.concatenate(parts).astype(np.float32, copy=False)


class ImageObservation(gymnasium.ObservationWrapper[np.ndarray, Any, dict[str, Any]]):
    """The observation as a picture ``[channels, X, Y]`` uint8, for ``CnnPolicy`` and similar.

    Channel 0 is the heightmap (255 is the lid). Each visible item then has one channel per
    orientation with the rest height of every placement (255 means illegal), on the same grid.

    Args:
        env: A :class:`packing_env.PackingGymEnv` that observes ``heightmap`` and ``drop_height``,
            or wrappers around one.
        size: Pixels along both sides, by nearest neighbour; None means the number of cells of the
            grid. The ``NatureCNN`` of Stable-Baselines3 needs 36 or more.

    Raises:
        ParameterError: The environment does not have a required entry, or ``size`` is not positive.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], size: int | None = None) -> None:
        super().__init__(env)
        entries = _entries(env)
        missing = [name for name in ("heightmap", "drop_height") if name not in entries]
        if missing:
            raise ParameterError(
                f"pictures show {' and '.join(missing)}, which the environment does not observe; "
                "add to observation=[...]"
            )
        shape = entries["heightmap"].shape
        self._size = shape if size is None else (check_integer("size", size, 1),) * 2
        channels = 1 + int(np.prod(entries["drop_height"].shape[:-2]))
        self.observation_space = spaces.Box(0, 255, (channels, *self._size), np.uint8)

    def observation(self, observation: dict[str, np.ndarray]) -> np.ndarray:
        """Draw the picture."""
        rest = observation["drop_height"]
        maps = observation["heightmap"][None], rest.reshape(-1, *rest.shape[-2:])
        drawn = np.concatenate([_resized(each, self._size) for each in maps])
        return np.rint(255 * drawn).astype(np.uint8)


def _entries(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    if not isinstance(env.observation_space, spaces.Dict):
        raise ParameterError(
            f"the observation is {env.observation_space}, but this wrapper takes a Dict; apply it "
            "before wrappers that change the observation"
        )
    return dict(env.observation_space.spaces)


def _resized(maps: np.ndarray, size: tuple[int, ...]) -> np.ndarray:
    """Return maps ``[C, X, Y]`` enlarged or reduced by nearest neighbour."""
    rows, columns = (
        np.arange(pixels) * cells // pixels
        for pixels, cells in zip(size, maps.shape[-2:], strict=True)
    )
    resized: np.ndarray = maps[:, rows[:, None], columns]
    return resized
