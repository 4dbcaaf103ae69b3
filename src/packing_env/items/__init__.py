"""From solids to heightmaps: loading and repair, rotations, rasterisation, catalogues.

Names are imported on first use, so that reading the header of a mesh file does not import torch. No
module of this folder may have one of these names: importing it would hide the name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packing_env.items.catalogue import Catalogue as Catalogue
    from packing_env.items.handling import Handling as Handling
    from packing_env.items.inputs import CatalogueError as CatalogueError
    from packing_env.items.maps import ItemMaps as ItemMaps
    from packing_env.items.meshes.load import load_mesh as load_mesh
    from packing_env.items.meshes.mesh import Mesh as Mesh
    from packing_env.items.meshes.mesh import MeshSource as MeshSource
    from packing_env.items.meshes.mesh import mesh_from_arrays as mesh_from_arrays
    from packing_env.items.meshes.surface import MeshError as MeshError
    from packing_env.items.rasterization import rasterize as rasterize
    from packing_env.items.rasterization import rasterize_many as rasterize_many
    from packing_env.items.rotations import poses_with_yaws as poses_with_yaws
    from packing_env.items.rotations import rotation_set as rotation_set

_HOMES = {
    "Catalogue": "catalogue",
    "CatalogueError": "inputs",
    "Handling": "handling",
    "ItemMaps": "maps",
    "Mesh": "meshes.mesh",
    "MeshError": "meshes.surface",
    "MeshSource": "meshes.mesh",
    "load_mesh": "meshes.load",
    "mesh_from_arrays": "meshes.mesh",
    "poses_with_yaws": "rotations",
    "rasterize": "rasterization",
    "rasterize_many": "rasterization",
    "rotation_set": "rotations",
}
__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
