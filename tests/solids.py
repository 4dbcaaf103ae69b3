"""Small catalogues and environments of random parts as voxels."""

import numpy as np
import torch
from tests.small_tasks import small_env

from packing_env.envs import PackingEnv
from packing_env.items import Catalogue
from packing_env.items.catalogue import _catalogue
from packing_env.items.maps import ItemMaps
from packing_env.items.rows import Grid, Row, stack

CELL = 0.01
VOXELS: dict[str, object] = {
    "geometry": "voxels",
    "stability": "none",
    "stability_metric": "none",
    "contact_tol": 0.0,
    "action_mode": "candidate",
    "candidate_generator": "closest",
    "observation": ("heightmap", "item_id", "item_features", "orientation_features"),
}


def random_part(random: np.random.Generator, side: int) -> np.ndarray:
    """A part whose voxels touch all six sides of its bounding box; about half are solid."""
    while True:
        part = random.random(random.integers(1, side + 1, 3)) < random.uniform(0.3, 1.0)
        if all(part.any(tuple({0, 1, 2} - {a}))[[0, -1]].all() for a in range(3)):
            return part


def catalogue_of(
    parts: list[list[np.ndarray]], grid: tuple[int, int, int], cell: float = CELL
) -> Catalogue:
    """Parts given by the voxels of each orientation."""
    rows = []
    for number, turned in enumerate(parts):
        low, eye = torch.zeros(3, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
        maps = [ItemMaps.of_voxels(torch.from_numpy(p.copy()), low, eye, cell) for p in turned]
        extent = torch.tensor(turned[0].shape, dtype=torch.float64) * cell
        volume = float(turned[0].sum()) * cell**3
        source = {"source": "random", "unit": "m", "scale": 1.0, "warnings": []}
        rows.append(Row(f"part_{number}", source, maps, volume, True, extent / 2, extent))
    tensors = stack(rows)
    tensors["cuboid"] = torch.zeros(*tensors["peak"].shape, 0, dtype=torch.int32)
    container = (grid[0] * cell, grid[1] * cell, grid[2] * cell)
    return _catalogue(
        tensors, [r.name for r in rows], [r.source for r in rows], Grid(cell, container)
    )


def random_catalogue(
    seed: int, grid: tuple[int, int, int], *, num_items: int = 5, side: int = 4
) -> Catalogue:
    """Parts in one to four orientations, turned about random axes; the first one is a voxel."""
    random = np.random.default_rng(seed)
    parts = [[np.ones((1, 1, 1), bool)]]
    for _ in range(num_items - 1):
        part = random_part(random, side)
        turns = [(0, 1), (1, 2), (0, 2)][: random.integers(0, 4)]
        parts.append([part, *(np.rot90(part, int(random.integers(1, 4)), axes=a) for a in turns)])
    return catalogue_of(parts, grid)


def voxel_env(catalogue: Catalogue, num_envs: int = 3, **options: object) -> PackingEnv:
    return small_env(catalogue, num_envs, **{**VOXELS, **options})
