"""From solids to heightmaps: loading and repair, rotations, rasterisation, catalogues.

Names are imported on first use, so that reading the header of a mesh file does not import torch. No
module of this folder has one of these names: its import would hide the name.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from packing_env.items.catalogue import Catalogue
    from packing_env.items.handling import Handling
    from packing_env.items.inputs import CatalogueError
    from packing_env.items.maps import ItemMaps
    from packing_env.items.meshes.load import load_mesh
    from packing_env.items.meshes.mesh import Mesh, MeshSource, mesh_from_arrays
    from packing_env.items.meshes.surface import MeshError
    from packing_env.items.rasterization import rasterize, rasterize_many
    from packing_env.items.rotations import poses_with_yaws, rotation_set

__all__ = [
    "Catalogue",
    "CatalogueError",
    "Handling",
    "ItemMaps",
    "Mesh",
    "MeshError",
    "MeshSource",
    "load_mesh",
    "mesh_from_arrays",
    "poses_with_yaws",
    "rasterize",
    "rasterize_many",
    "rotation_set",
]
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


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
