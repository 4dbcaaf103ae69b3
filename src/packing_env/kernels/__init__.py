"""The hot operations of the rules: one signature each, several backends, the same results.

The signature and the docstring of an operation are in the ``__init__`` of its folder.
"""

from packing_env.kernels.afterstates import afterstates
from packing_env.kernels.arithmetic import divide
from packing_env.kernels.backends import (
    KernelError,
    available_backends,
    backend_for,
    clock,
    compile_seconds,
    give_up,
    is_compiled_for,
    set_backend,
)
from packing_env.kernels.boxes import BOX_RULES, box_drop, box_stable
from packing_env.kernels.choice import choose_epsilon_greedy, choose_uniform
from packing_env.kernels.drop import DropHeights, drop_height, update_drop_height
from packing_env.kernels.features import map_features
from packing_env.kernels.layout import MAX_CUBOID_HEIGHT, MAX_CUBOID_SIDE, surface_sizes
from packing_env.kernels.planes import placement_planes
from packing_env.kernels.search import lowest_placements
from packing_env.kernels.search.items import SEARCHED_RULES, Search, search_items
from packing_env.kernels.spaces import split_spaces
from packing_env.kernels.stability_rules import NAMES as CUBOID_RULES
from packing_env.kernels.step import (
    StepTask,
    advance_cells,
    close_lid,
    decide_heights,
    list_lowest,
    observe_heights,
)
from packing_env.kernels.support import com_hull, support_count, tiered_hull
from packing_env.kernels.voxels import voxel_places

__all__ = [
    "BOX_RULES",
    "CUBOID_RULES",
    "MAX_CUBOID_HEIGHT",
    "MAX_CUBOID_SIDE",
    "SEARCHED_RULES",
    "DropHeights",
    "KernelError",
    "Search",
    "StepTask",
    "advance_cells",
    "afterstates",
    "available_backends",
    "backend_for",
    "box_drop",
    "box_stable",
    "choose_epsilon_greedy",
    "choose_uniform",
    "clock",
    "close_lid",
    "com_hull",
    "compile_seconds",
    "decide_heights",
    "divide",
    "drop_height",
    "give_up",
    "is_compiled_for",
    "list_lowest",
    "lowest_placements",
    "map_features",
    "observe_heights",
    "placement_planes",
    "search_items",
    "set_backend",
    "split_spaces",
    "support_count",
    "surface_sizes",
    "tiered_hull",
    "update_drop_height",
    "voxel_places",
]
