"""Agents, replay and training loops for `packing_env`.

Names are imported when they are first used.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Agent": "agents.algorithms.base",
    "EpsilonSchedule": "agents.policies.policy_wrapper",
    "PolicyWrapper": "agents.policies.policy_wrapper",
    "Trainer": "agents.training.trainer",
    "build_policy": "agents.config.build",
    "export_onnx": "agents.policies.export",
    "export_policy": "agents.policies.export",
    "import_packages": "agents.config.imports",
    "load_policy": "agents.training.loading",
    "load_run": "agents.training.loading",
}
_MODULES = ("heuristics", "networks", "objectives", "replay")

__all__ = ["__version__", *_HOMES, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"agents.{name}")
    raise AttributeError(f"module 'agents' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
