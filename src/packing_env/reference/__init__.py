"""The specification: one container, NumPy, plain loops; see :mod:`packing_env.reference.maps`.

It shares no code with what it checks, and is imported only by what checks.
"""

from packing_env.reference.maps import (
    FLOAT,
    Episode,
    Item,
    Placement,
    Rules,
    Touch,
    area_corners,
    area_corners_code,
    center_hull,
    com_hull,
    drop_height,
    in_hull,
    is_stable,
    objective,
    reward,
    supporting_cells,
    touch_at,
    void,
)

__all__ = [
    "FLOAT",
    "Episode",
    "Item",
    "Placement",
    "Rules",
    "Touch",
    "area_corners",
    "area_corners_code",
    "center_hull",
    "com_hull",
    "drop_height",
    "in_hull",
    "is_stable",
    "objective",
    "reward",
    "supporting_cells",
    "touch_at",
    "void",
]
