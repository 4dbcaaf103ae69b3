"""The voxel instances of Lamas-Fernandez, Bennell and Martinez-Sykora (Oper. Res. 71(4), 2023).

Their files are public, in the folder `data` of github:Yifuwei/3D_irregular_packing_stream. Each
instance is a text file: the floor of the container, then a file of voxels and a count for each
piece. The voxels are in the format of binvox. The published heights are in the column "Benchmark"
of the table in the same repository, which quotes the paper.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

PUBLISHED = {
    "shapesnew": 52.0,
    "liu": 31.2,
    "st04_Example2_normal": 28.47,
    "st04_Example3_normal": 41.3,
    "st04_Example4_normal": 54.83,
    "st04_Example5_normal": 72.33,
    "st05_e2": 19.83,
    "St_05_Example3_normal": 29.76,
    "Merged1_normal": 16.99,
    "Merged2_normal": 21.97,
    "Merged3_normal": 24.04,
    "Merged4_normal": 27.8,
    "Merged5_normal": 30.13,
    "chess": 131.0,
    "engine": 75.0,
}
"""Heights in the unit of the instance: voxels for shapesnew, chess and engine."""
SIDES = {
    "Liu2015": 24 / 180,
    "Stoyan2004": 35 / 150,
    "Stoyan2005": 16 / 150,
    "Merged": 30 / 188,
    "Shapes": 1.0,
    "Chess": 1.0,
    "Engine": 500 / 83,
}
"""Side of a voxel by the folder of the pieces, in the unit of the container."""
IN_VOXELS = ("Shapes", "Chess", "Engine")
"""Folders whose heights are published in voxels."""


Instances = Iterator[tuple[dict[str, Any], Any]]
"""Instances, each with the voxels of its pieces by name."""


def read_instances(folder: Path) -> Instances:
    """Yield the instances with a published height, each with the voxels of its pieces."""
    for name, height in PUBLISHED.items():
        floor: list[float] = []
        counts: dict[str, int] = {}
        voxels: dict[str, np.ndarray] = {}
        for line in (folder / "InstanceDescription" / f"{name}.txt").read_text().splitlines():
            if line.startswith("CONTAINER"):
                floor = [float(length) for length in line.split()[1:3]]
            elif line.strip():
                file, count = line.rsplit(maxsplit=1)
                path = folder / file.strip().removeprefix("../")
                voxels[path.stem] = read_voxels(path)
                counts[path.stem] = int(count)
        family = path.relative_to(folder).parts[0]
        side = SIDES[family]
        cells = [int(length / side + 0.01) for length in floor]
        filled = sum(count * int(voxels[piece].sum()) for piece, count in counts.items())
        unit = 1.0 if family in IN_VOXELS else side
        instance = {
            "name": name,
            "pieces": [{"piece": piece, "count": count} for piece, count in counts.items()],
            "n_items": sum(counts.values()),
            "voxel_size": unit,
            "container_xy_voxels": cells,
            "volume_lower_bound_height": filled / (cells[0] * cells[1]) * unit,
            "published_best_height": height,
        }
        yield instance, voxels


def read_voxels(path: Path) -> np.ndarray:
    """Read a binvox file as ``[X, Y, Z]`` bool without empty margins.

    Binvox writes runs (a value and a length of at most 255) with y fastest, then z, then x.
    """
    head, _, runs = path.read_bytes().partition(b"data\n")
    sides = next(line.split()[1:] for line in head.splitlines() if line.startswith(b"dim"))
    values, lengths = np.frombuffer(runs, np.uint8).reshape(-1, 2).T
    voxels = np.repeat(values > 0, lengths).reshape([int(side) for side in sides])
    voxels = voxels.transpose(0, 2, 1)
    filled = np.argwhere(voxels)
    (x, y, z), (dx, dy, dz) = filled.min(0), filled.max(0) + 1
    return np.ascontiguousarray(voxels[x:dx, y:dy, z:dz])
