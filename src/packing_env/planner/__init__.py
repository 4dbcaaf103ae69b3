"""Plans for an order of parts: what is packed, where, and what is left over.

:func:`pack` is also ``packing_env.pack``; the command ``packing pack`` calls it. Names are imported
on first use, so that reading lengths and order files does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packing_env.planner.copies import Fill
    from packing_env.planner.files import save
    from packing_env.planner.packer import pack
    from packing_env.planner.reading.containers import ContainerType, read_containers
    from packing_env.planner.reading.parts import Part, read_parts
    from packing_env.planner.reading.tables import OrderError
    from packing_env.planner.result import LeftOver, Plan

__all__ = [
    "ContainerType", "Fill", "LeftOver", "OrderError", "Part", "Plan", "pack", "read_containers",
    "read_parts", "save",
]  # fmt: skip
_HOMES = {
    "ContainerType": "reading.containers",
    "Fill": "copies",
    "LeftOver": "result",
    "OrderError": "reading.tables",
    "Part": "reading.parts",
    "Plan": "result",
    "pack": "packer",
    "read_containers": "reading.containers",
    "read_parts": "reading.parts",
    "save": "files",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
