"""From solids to heightmaps: loading and repair, rotations, rasterisation, catalogues."""

from packing_env.items.catalogue import Catalogue
from packing_env.items.handling import Handling
from packing_env.items.inputs import CatalogueError
from packing_env.items.maps import ItemMaps
from packing_env.items.meshes.load import load_mesh
from packing_env.items.meshes.mesh import Mesh, MeshSource, mesh_from_arrays
from packing_env.items.meshes.surface import MeshError
from packing_env.items.rasterize import rasterize, rasterize_many
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
