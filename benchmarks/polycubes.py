"""Write a folder of meshes of polycubes, with sequences.

    python benchmarks/polycubes.py FOLDER [--cubes 3 4 5] [--edge 0.04] [--sequences 2000]

The shapes are all polycubes with these numbers of cubes that differ by more than a rotation: 2 of
three cubes, 8 of four and 29 of five. Mirror images count as two shapes. Each shape becomes one OBJ
file for each pose in which it rests on a floor, up to turns about the vertical axis. A sequence has
100 items; each item is a shape with equal probability, in one of its poses with equal probability.
The folder has the structure of the data sets of Zhao et al., TOG 2023 (`shape_vhacd`,
`id2shape.json`, `test_sequence.json`, `train_sequence.json`), but these are not their shapes
(BlockOut).
"""

from __future__ import annotations

import argparse
import json
from itertools import chain
from pathlib import Path

import numpy as np
import torch
import trimesh
from shape_makers import Cell, polycube

from packing_env.items import load_mesh
from packing_env.items.poses import resting_poses
from packing_env.items.rotations import rotation_set

ROTATIONS = rotation_set("pi/2").round().long().numpy()
"""The 24 rotations; the four yaws of a pose follow one another."""
ITEMS = 100


def placed(cells: np.ndarray) -> tuple[Cell, ...]:
    """Return the cells, moved to the origin and sorted."""
    return tuple(sorted((x, y, z) for x, y, z in (cells - cells.min(0)).tolist()))


def poses(cells: tuple[Cell, ...]) -> list[tuple[Cell, ...]]:
    """Return the polycube in all 24 rotations; symmetric ones repeat."""
    return [placed(np.array(cells) @ rotation.T) for rotation in ROTATIONS]


def polycubes(count: int) -> list[tuple[Cell, ...]]:
    """Return all polycubes of ``count`` cubes that differ by more than a rotation."""
    shapes: set[tuple[Cell, ...]] = {((0, 0, 0),)}
    steps = np.array(list(np.ndindex(3, 3, 3))) - 1
    steps = steps[np.abs(steps).sum(1) == 1]
    for _ in range(count - 1):
        larger = {
            (*shape, (x, y, z))
            for shape in shapes
            for x, y, z in (np.array(shape)[:, None] + steps).reshape(-1, 3).tolist()
            if (x, y, z) not in shape
        }
        shapes = {min(poses(cells)) for cells in larger}
    return sorted(shapes)


def standing(cells: tuple[Cell, ...], edge: float, file: Path) -> list[tuple[Cell, ...]]:
    """Return the poses in which a polycube rests, one for each set of yaws."""
    turned = poses(cells)
    write(cells, edge, file)
    mesh = load_mesh(file)
    rests = resting_poses(mesh.vertices, mesh.com, rotation_set("pi/2")).tolist()
    file.unlink()
    up = {min(turned[k // 4 * 4 : k // 4 * 4 + 4]): None for k in range(24) if rests[k]}
    return list(up)


def write(cells: tuple[Cell, ...], edge: float, file: Path) -> None:
    """Write a polycube as OBJ, in metres."""
    solid = polycube(cells, edge)
    trimesh.Trimesh(solid.vertices, solid.faces, process=False).export(file)


def main() -> None:
    """Write the meshes, the list of shapes and the sequences."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--cubes", type=int, nargs="+", default=[3, 4, 5])
    parser.add_argument("--edge", type=float, default=0.04)
    parser.add_argument("--sequences", type=int, default=2000)
    args = parser.parse_args()
    meshes = args.folder / "shape_vhacd"
    meshes.mkdir(parents=True, exist_ok=True)
    # 1. The meshes: a file for each pose of each shape.
    names: list[list[str]] = []
    for count in args.cubes:
        for number, cells in enumerate(polycubes(count)):
            shape = f"polycube{count}_{number:02d}"
            files = []
            for pose, turned in enumerate(standing(cells, args.edge, meshes / "probe.obj")):
                files.append(f"{shape}_{pose}.obj")
                write(turned, args.edge, meshes / files[-1])
            names.append(files)
    ids = {name: number for number, name in enumerate(chain.from_iterable(names))}
    listed = {number: name for name, number in ids.items()}
    (args.folder / "id2shape.json").write_text(json.dumps(listed))
    # 2. The sequences: a shape, then one of its poses.
    for seed, split in enumerate(("test", "train")):
        draw = torch.Generator().manual_seed(seed)
        size = (args.sequences, ITEMS)
        drawn = torch.randint(len(names), size, generator=draw).tolist()
        share = torch.rand(size, generator=draw).tolist()
        sequences = [
            [ids[names[k][int(part * len(names[k]))]] for k, part in zip(*row, strict=True)]
            for row in zip(drawn, share, strict=True)
        ]
        (args.folder / f"{split}_sequence.json").write_text(json.dumps(sequences))
    print(f"{args.folder}: {len(names)} shapes in {len(ids)} poses")


if __name__ == "__main__":
    main()
