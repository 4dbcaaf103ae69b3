"""The window that displays frames for ``render_mode="human"``."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from packing_env.extras import require

_LOGGER = logging.getLogger(__name__)


class Window:
    """A matplotlib window; without a display it logs one warning and does nothing."""

    def __init__(self) -> None:
        backends = require("matplotlib.backends", "windows")
        self._pyplot = require("matplotlib.pyplot", "windows")
        known = backends.backend_registry.list_builtin(backends.BackendFilter.INTERACTIVE)
        self._works = self._pyplot.get_backend().lower() in known
        self._picture: Any = None
        if not self._works:
            _LOGGER.warning("no display for a window was found; use render_mode='rgb_array'")

    def show(self, picture: np.ndarray) -> None:
        """Show a picture ``[height, width, 3]`` uint8."""
        if not self._works:
            return
        if self._picture is None:
            figure, axes = self._pyplot.subplots(figsize=(5, 5))
            figure.canvas.manager.set_window_title("packing")
            figure.subplots_adjust(0, 0, 1, 1)
            axes.set_axis_off()
            self._picture = axes.imshow(picture)
        self._picture.set_data(picture)
        self._pyplot.pause(1e-3)

    def close(self) -> None:
        """Close the window."""
        if self._picture is not None:
            self._pyplot.close(self._picture.figure)
            self._picture = None
