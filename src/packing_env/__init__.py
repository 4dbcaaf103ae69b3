"""A batched environment for packing irregular 3D items and boxes into a container.

Names are imported when they are first used, so rules and kernels load without TorchRL.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
from collections.abc import Iterator
from typing import Any

from packing_env.extras import ignore_working_directory
from packing_env.registration import register_all

__version__ = "0.1.0"

_HOMES = {
    "Afterstates": "packing_env.envs",
    "PackingEnv": "packing_env.envs",
    "PackingGymEnv": "packing_env.shells",
    "PackingVectorEnv": "packing_env.shells",
    "WorkerMaps": "packing_env.envs",
    "PackingParams": "packing_env.types",
    "ParameterError": "packing_env.types",
    "PRESETS": "packing_env.tasks",
    "make_env": "packing_env.tasks",
    "Part": "packing_env.planner",
    "nest": "packing_env.nesting",
    "pack": "packing_env.planner",
}
_MODULES = (
    "generators",
    "items",
    "kernels",
    "plan",
    "planner",
    "reference",
    "render",
    "tasks",
    "testing",
)

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    with _without_collections():
        if name in _HOMES:
            return getattr(importlib.import_module(_HOMES[name]), name)
        if name in _MODULES:
            return importlib.import_module(f"packing_env.{name}")
    raise AttributeError(f"module 'packing_env' has no attribute {name!r}")


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """Import without garbage collection, which would add a sixth to the time and free nothing."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return sorted(__all__)


ignore_working_directory()
register_all()
