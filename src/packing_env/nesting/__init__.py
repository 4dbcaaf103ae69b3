"""Nesting of parts in three dimensions, without gravity: inside and below each other.

:func:`nest` is also ``packing_env.nest``; the command ``packing nest`` calls it.
"""

from __future__ import annotations

from packing_env import extras

extras.check("numba", "nests")

from packing_env.nesting.nest import nest  # noqa: E402  (imports numba)

__all__ = ["nest"]
