"""The presets on coarse grids with few items, so that each builds in well under a second."""

from functools import lru_cache
from typing import Any

from packing_env.core.actions import MODES
from packing_env.envs import PackingEnv
from packing_env.items import Catalogue
from packing_env.tasks import CUBOIDS, PRESETS, make_env

SMALL: dict[str, dict[str, Any]] = {
    "irregular": {"resolution": 8, "num_items": 6},
    "irregular_com_hull": {"resolution": 8, "num_items": 6},
    "irregular_paper": {"resolution": 10, "num_items": 6, "num_visible": 3, "grid_step": 2},
    "nesting": {"cell": 0.015, "num_items": 6, "num_candidates": 48},
    "sls_nesting": {"cell": 0.025, "num_items": 6, "num_visible": 3},
    "cuboid_online": {"container": (5.0, 5.0, 5.0), "num_items": 12},
    "cuboid_buffer": {"container": (5.0, 5.0, 5.0), "num_items": 12, "num_visible": 3},
    "cuboid_offline": {"container": (6.0, 6.0, 6.0), "num_items": 27, "num_visible": 3},
    "cuboid_continuous": {"num_items": 8, "num_spaces": 48, "num_candidates": 32},
}


def modes(preset: str) -> list[str]:
    """The action modes that the preset's geometry has."""
    return sorted(MODES) if PRESETS[preset].params.geometry == "maps" else ["candidate"]


@lru_cache
def catalogue(preset: str) -> Catalogue:
    """A few of the preset's own items on the coarse grid."""
    items = {**PRESETS[preset].items, "use_cache": False}
    items["families"] = items.get("families", ("polycubes", "brackets"))[:2]
    return make_env(preset, items=items, scales=(0.6,), pool_size=1, **SMALL[preset]).catalogue


def small_preset(preset: str, num_envs: int | tuple[int, ...] = 3, **overrides: Any) -> PackingEnv:
    """Return a preset of which only the size is changed."""
    options = {"pool_size": 16, **SMALL[preset], **overrides}
    if PRESETS[preset].items != CUBOIDS:  # those come from the generator
        options = {"items": catalogue(preset), **options}
    return make_env(preset, num_envs=num_envs, **options)
