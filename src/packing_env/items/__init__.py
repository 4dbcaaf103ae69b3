"""Solids to height maps: loading and repair, rotations, rasterisation, catalogues."""

from packing_env.items.catalogue import Catalogue
from packing_env.items.inputs import CatalogueError
from packing_env.items.meshes.mesh import Mesh, MeshError, MeshSource, load_mesh, mesh_from_arrays
from packing_env.items.rasterize import ItemMaps, rasterize, rasterize_many
from packing_env.items.rotations import poses_with_yaws, rotation_set

__all__ = [
    "Catalogue",
    "CatalogueError",
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
