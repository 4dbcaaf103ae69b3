"""Cuboids read as meshes, compared item by item with cuboids given by their extents.

    python benchmarks/cuboids_as_meshes.py [--instances 500] [--seed 0] [--out ...]

The 125 boxes of RS-125 are written as STL files and read, welded, checked and rasterised like any
mesh. Both catalogues play the same sequences with heightmap minimization under the protocol of V1
(10 x 10 x 10, two yaws, centre hull, corners as in the published program). Every placement, rest
height and flag of every episode must be equal; otherwise the exit status is 1. The meshes are
played twice: as cuboids, because their maps are those of cuboids, and as items of any shape.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
import trimesh
from provenance import provenance, write_json

from agents import heuristics
from agents.estimate import Estimate
from packing_env import make_env
from packing_env.envs import PackingEnv
from packing_env.items import Catalogue

COMPARED = ("items_packed", "placement", "placement_z", "heightmap", "terminated", "truncated")
MAPS = ("top", "bottom", "size", "peak", "com", "extent", "orientation_mask", "cuboid")


def as_meshes(env: PackingEnv) -> Catalogue:
    """Write the environment's cuboids to files and read them as meshes."""
    params = env.params
    with tempfile.TemporaryDirectory() as folder:
        for number, extent in enumerate(env.catalogue.extent.tolist()):
            trimesh.creation.box(extent).export(Path(folder) / f"{number:04d}.stl")
        return Catalogue.from_meshes(
            folder,
            cell=params.cell,
            container=params.container,
            orientations="yaw",
            use_cache=False,
        )


def play(env: PackingEnv) -> dict[str, Any]:
    """Play all instances to their ends; return the last state and the seconds taken."""
    policy = heuristics.build("heightmap_minimization", env)
    start = time.perf_counter()
    root = env.reset()
    while not bool(root["done"].all()):
        root = env.step_mdp(env.step(policy(root)))
    seconds = time.perf_counter() - start
    return {"state": env.get_state(), "metrics": root["metrics"], "seconds": seconds}


def main() -> int:
    """Play all catalogues, compare them, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/cuboids_as_meshes.json")
    args = parser.parse_args()
    env = make_env(
        "cuboid_online",
        num_envs=args.instances,
        pool_size=args.instances,
        seed=args.seed,
        draw="sequential",
        split="test",
        candidate_range="pct",
    )
    meshes = as_meshes(env)
    unlike = [
        name
        for name in MAPS
        if not torch.equal(getattr(meshes, name), getattr(env.catalogue, name))
    ]
    general = dataclasses.replace(meshes, cuboid=meshes.cuboid[..., :0])
    expected = play(env)
    report = provenance(args) | {
        "items": len(meshes),
        "unequal_maps": unlike,
        "utilization": vars(Estimate.of(expected["metrics"]["utilization"])),
        "items_packed": vars(Estimate.of(expected["metrics"]["items_packed"])),
        "placements": int(expected["state"]["items_packed"].sum()),
        "seconds": {"extents": expected["seconds"]},
        "differences": {},
    }
    for name, catalogue in (("meshes", meshes), ("meshes, general path", general)):
        same = {"num_envs": args.instances, "seed": args.seed, "draw": "sequential"}
        other = play(PackingEnv(env.params, catalogue, env.instances, **same))
        report["seconds"][name] = other["seconds"]
        report["differences"][name] = [
            key for key in COMPARED if not torch.equal(expected["state"][key], other["state"][key])
        ]
    write_json(args.out, report)
    different = unlike + [key for keys in report["differences"].values() for key in keys]
    print(
        f"DIFFERENT: {different}" if different else f"{report['placements']} placements, all equal"
    )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
