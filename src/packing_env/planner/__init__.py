"""Plans for an order of parts: what is packed, where, and what is left over.

:func:`pack` is ``packing_env.pack`` and what the command ``packing pack`` runs.
"""

from packing_env.planner.files import save
from packing_env.planner.pack import LeftOver, Plan, pack
from packing_env.planner.parts import OrderError, Part, read_parts

__all__ = ["LeftOver", "OrderError", "Part", "Plan", "pack", "read_parts", "save"]
