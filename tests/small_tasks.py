"""Small tasks that run in milliseconds: random items, and environments with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from packing_env.core import feasibility
from packing_env.envs import PackingEnv
from packing_env.generators import Uniform, make_pool
from packing_env.items import Catalogue
from packing_env.items.cuboids import whole_cuboids
from packing_env.types import Instances, PackingParams


def random_catalogue(
    seed: int = 0,
    *,
    num_items: int = 6,
    num_orientations: int = 4,
    window: int = 4,
    cell: float = 0.01,
    container: tuple[float, float, float] = (0.08, 0.08, 0.1),
) -> Catalogue:
    """Build small irregular items: holes, overhangs, cavities, off-centre masses, padding.

    Item 0 is a block, so that some item always fits. Half of the other items have heights that are
    multiples of half a cell, so that contacts tie. The rest have arbitrary heights. The
    orientations of an item are unrelated maps that enclose at least the item's volume; they do not
    come from a mesh.
    """
    random = np.random.default_rng(seed)
    shape = (num_items, num_orientations, window, window)
    top = np.full(shape, -np.inf, np.float32)
    bottom = np.full(shape, np.inf, np.float32)
    size = np.zeros((num_items, num_orientations, 2), np.int64)
    com = np.zeros_like(size)
    there = np.zeros((num_items, num_orientations), bool)
    volume = np.full(num_items, np.inf)
    for item in range(num_items):
        there[item, : random.integers(1, num_orientations + 1)] = True
        for orientation in np.flatnonzero(there[item]):
            at = (item, orientation)
            w, h = size[at] = random.integers(1, window + 1, 2)
            low, high = _random_surfaces(random, (w, h), cell, rough=item % 2 == 1)
            com[at] = random.integers(0, 64 * size[at] + 1) // (32, 1)[item % 2] * (32, 1)[item % 2]
            if item == 0:
                low, high = np.zeros((w, h), np.float32), np.full((w, h), cell, np.float32)
                com[at] = 32 * size[at]
            bottom[at][:w, :h], top[at][:w, :h] = low, high
            thickness = (high.astype(np.float64) - low)[np.isfinite(low)]
            volume[item] = min(volume[item], thickness.sum() * cell**2)
    peak = np.where(there, top.max((2, 3)), np.float32(np.inf))
    extent = np.concatenate((size[:, 0] * cell, peak[:, :1]), 1).astype(np.float64)
    identity = np.broadcast_to(np.eye(3), (num_items, num_orientations, 3, 3)).copy()
    arrays = {"top": top, "bottom": bottom, "size": size, "volume": volume}
    arrays["orientation_mask"] = there
    tensors: dict[str, Any] = {name: torch.from_numpy(array) for name, array in arrays.items()}
    return Catalogue(
        **tensors,
        cuboid=whole_cuboids(tensors, cell),
        peak=torch.from_numpy(peak),
        com=torch.from_numpy(com),
        extent=torch.from_numpy(extent),
        rotation=torch.from_numpy(identity),
        offset=torch.zeros(num_items, num_orientations, 3, dtype=torch.float64),
        volume_reliable=torch.ones(num_items, dtype=torch.bool),
        never_feasible=torch.zeros(num_items, dtype=torch.bool),
        names=[f"random_{seed}_{item}" for item in range(num_items)],
        sources=[{"source": "random", "unit": "m", "scale": 1.0} for _ in range(num_items)],
        cell=cell,
        container=container,
    )


def _random_surfaces(
    random: np.random.Generator, size: tuple[int, int], cell: float, *, rough: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Draw lower and upper surface over a window; the footprint touches all four borders."""
    holes = random.random(size) < 0.25
    corners = [random.integers(0, n) for n in (*size, *size)]
    holes[corners[0], 0] = holes[corners[2], -1] = False
    holes[0, corners[1]] = holes[-1, corners[3]] = False
    if rough:
        low, thick = random.random(size) * 2 * cell, random.random(size) * 3 * cell
    else:
        low = random.integers(0, 4, size) * cell / 2
        thick = random.integers(1, 6, size) * cell / 2
    low = low - low[~holes].min()
    bottom = np.where(holes, np.inf, low).astype(np.float32)
    top = np.where(holes, -np.inf, low + np.maximum(thick, cell / 8)).astype(np.float32)
    return bottom, top


BOXES: dict[str, object] = {
    "geometry": "boxes",
    "action_mode": "candidate",
    "candidate_generator": "split_spaces",
    "num_candidates": 48,
    "num_spaces": 64,
    "stability": "center_hull",
    "observation": ("heightmap", "item_id", "item_features", "orientation_features", "boxes"),
}
"""Parameters of small tasks whose catalogue has no heightmaps."""


def small_env(
    catalogue: Catalogue | None = None,
    num_envs: int | tuple[int, ...] = 4,
    *,
    instances: Instances | None = None,
    shell: Mapping[str, Any] | None = None,
    **params: object,
) -> PackingEnv:
    """Build a small environment on a random catalogue, or a given one.

    Cuboids without heightmaps are packed in geometry ``"boxes"``. Instances are drawn uniformly,
    unless they are given; ``shell`` are arguments of :class:`PackingEnv`, ``params`` fields of
    :class:`PackingParams`.
    """
    catalogue = random_catalogue() if catalogue is None else catalogue
    fields: dict[str, Any] = {"container": catalogue.container, "cell": catalogue.cell}
    fields |= {"num_items": 8, **({} if catalogue.top.numel() else BOXES), **params}
    task = PackingParams(**fields)
    if instances is None:
        floor = feasibility.legal_on_floor(catalogue.tensors(), task).any(1)
        instances = make_pool(Uniform(), catalogue, task, floor, size=32)
    return PackingEnv(task, catalogue, instances, num_envs=num_envs, **(shell or {}))
