"""The executable specification: one container, NumPy, plain loops; start with ``episode.py``.

It is the test oracle: it shares no code with the programs that it checks, and only checking code
imports it. Rules on heightmaps are in ``maps stability constraints map_constraints rewards
episode``; rules for cuboids as integer boxes in ``boxes equilibrium box_episode``; for parts as
voxels in ``voxels voxel_episode``; and the lists that some tasks keep in ``proposals spaces``.
Packing plans are verified by ``checker claims map_checks raster solids``; plans of boxes also by
``box_checks pile box_load box_constraints``, settled poses by ``settled overlap surfaces``, and
nests by ``nests``.
"""

from packing_env.reference.episode import Episode, Placement, Rules
from packing_env.reference.maps import FLOAT, Item, drop_height, supporting_cells
from packing_env.reference.rewards import objective, reward
from packing_env.reference.stability import (
    Touch,
    area_corners,
    area_corners_code,
    center_hull,
    com_hull,
    is_stable,
    touch_at,
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
    "is_stable",
    "objective",
    "reward",
    "supporting_cells",
    "touch_at",
]
