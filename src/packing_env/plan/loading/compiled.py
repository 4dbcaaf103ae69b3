"""The compiled modules of container loading, which are imported when a load is searched for."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from packing_env import extras


def compiled(module: str) -> ModuleType:
    """Import a module of :mod:`packing_env.kernels.loading`; raise if numba is not installed."""
    extras.check("numba", "loads of boxes")
    return import_module(f"packing_env.kernels.loading.{module}")
