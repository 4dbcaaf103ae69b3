"""The hot operations of the rules: one signature, several backends, the same bits from each."""

from packing_env.kernels.boxes import BOX_RULES, box_drop, box_stable
from packing_env.kernels.choice import choose_uniform
from packing_env.kernels.cuboid import CUBOID_RULES, MAX_CUBOID_HEIGHT, cuboid_maps
from packing_env.kernels.cuboid_step import advance_cuboids, advances_cuboids, renew_cuboids
from packing_env.kernels.dispatch import (
    available_backends,
    backend_for,
    com_hull,
    drop_height,
    set_backend,
    support_count,
)
from packing_env.kernels.spaces import split_spaces

__all__ = [
    "BOX_RULES",
    "CUBOID_RULES",
    "MAX_CUBOID_HEIGHT",
    "advance_cuboids",
    "advances_cuboids",
    "available_backends",
    "backend_for",
    "box_drop",
    "box_stable",
    "choose_uniform",
    "com_hull",
    "cuboid_maps",
    "drop_height",
    "renew_cuboids",
    "set_backend",
    "split_spaces",
    "support_count",
]
