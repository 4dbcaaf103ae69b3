"""Plans for an order of parts: what is packed, where, and what is left over.

:func:`pack` is also ``packing_env.pack``; the command ``packing pack`` calls it. Names are imported
on first use, so that reading lengths and order files does not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packing_env.planner.copies import Fill as Fill
    from packing_env.planner.files import save as save
    from packing_env.planner.packer import pack as pack
    from packing_env.planner.reading.containers import ContainerType as ContainerType
    from packing_env.planner.reading.containers import read_containers as read_containers
    from packing_env.planner.reading.parts import Part as Part
    from packing_env.planner.reading.parts import read_parts as read_parts
    from packing_env.planner.reading.tables import OrderError as OrderError
    from packing_env.planner.result import LeftOver as LeftOver
    from packing_env.planner.result import Plan as Plan

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
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
