"""Packed containers read from a state, and packing plans, which are written, read and checked.

A plan is JSON. For each item, in packing order, it holds the rigid motion ``p_world = R @ (scale *
unit * p_file) + t`` in metres. The origin is at the container's lower corner and z is up. ``unit``
is the unit in which the file was read. ``p_file`` is a point as :func:`packing_env.items.load_mesh`
returns it, so z is up even for a GLB file. :func:`check_plan` recomputes the plan's claims with the
reference program.
"""

from packing_env.files import whole_file
from packing_env.plan.check import ForeignOptions, Judgement, check_foreign, check_plan
from packing_env.plan.document import (
    FORMAT,
    VERSION,
    load_plan,
    make_plan,
    quaternion,
    save_plan,
)
from packing_env.plan.loading.loader import load_boxes
from packing_env.plan.loading.problem import BoxType, LoadedBox, LoadRules
from packing_env.plan.packing import Packing, PlacedItem, PlanError, packing_of, read_state
from packing_env.plan.settle import settle

__all__ = [
    "FORMAT",
    "VERSION",
    "BoxType",
    "ForeignOptions",
    "Judgement",
    "LoadRules",
    "LoadedBox",
    "Packing",
    "PlacedItem",
    "PlanError",
    "check_foreign",
    "check_plan",
    "load_boxes",
    "load_plan",
    "make_plan",
    "packing_of",
    "quaternion",
    "read_state",
    "save_plan",
    "settle",
    "whole_file",
]
