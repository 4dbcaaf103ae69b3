"""Plans for an order of parts: what is packed, where, and what is left over.

:func:`pack` is ``packing_env.pack`` and what the command ``packing pack`` runs. Names are imported
on first use, so that lengths and order files are read without torch.
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packing_env.planner.files import save
    from packing_env.planner.pack import LeftOver, Plan, pack
    from packing_env.planner.parts import Part, read_parts
    from packing_env.planner.tables import OrderError

__all__ = ["LeftOver", "OrderError", "Part", "Plan", "pack", "read_parts", "save"]
_HOMES = {
    "LeftOver": "pack",
    "OrderError": "tables",
    "Part": "parts",
    "Plan": "pack",
    "read_parts": "parts",
    "save": "files",
}


class _Planner(ModuleType):
    """This package, of which ``pack`` is the function and not the module of that name."""

    def __getattribute__(self, name: str) -> Any:
        value = super().__getattribute__("__dict__").get(name) if name == "pack" else None
        if name == "pack" and (value is None or isinstance(value, ModuleType)):
            return import_module("packing_env.planner.pack").pack
        return super().__getattribute__(name)


sys.modules[__name__].__class__ = _Planner


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
