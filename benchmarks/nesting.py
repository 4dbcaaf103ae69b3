"""Nests of parts in three dimensions: density, strips of voxels, and scaling.

    python benchmarks/nesting.py order --data DATA [--seconds 60]
    python benchmarks/nesting.py strips --data DATA [--seconds 600] [--names shapesn0_normal ...]
    python benchmarks/nesting.py scaling [--seconds 30]

`order`: 76 parts (robot brackets, mugs, blobs, a drill, bananas; `ORDER`) in 200 x 250 x 330 mm,
with a clearance of 1 mm and of 0; the same parts are also packed on heightmaps without a stability
rule.
`strips`: the ESICUP instances of Lamas-Fernandez, Bennell and Martinez-Sykora (Oper. Res. 2023):
parts of voxels, without rotation, in a container with a fixed floor; the height is minimized. Ways
out are not required. DATA may also be the folder `data` of their public repository (`esicup.py`).
`scaling`: 25 to 400 embedded shapes with voxels of 5 to 2 mm. The reference program checks the
plans of meshes.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from esicup import Instances
from esicup import read_instances as read_public
from provenance import provenance, write_json

import packing_env as pe
from packing_env.items.shapes import SHAPES
from packing_env.nesting.levels import Level, Room, as_given
from packing_env.nesting.search import NestSearch
from packing_env.plan import check_plan, save_plan
from packing_env.planner import Part, Plan

ORDER = {
    "so101_moving_jaw.ply": 12, "so101_rotation_pitch.stl": 12, "so101_under_arm.stl": 12,
    "so101_wrist_roll_pitch.stl": 12, "mujoco_mug.obj": 6, "random_blob_004.obj": 4,
    "random_blob_008.obj": 6, "esicup_shapes_piece1.obj": 6, "ycb_035_power_drill.obj": 2,
    "ycb_011_banana.obj": 4,
}  # fmt: skip
VOLUME = "200x250x330mm"
COARSE = {
    "shapesn0_normal": (),
    "shapesnew": (),
    "chess": (2,),
    "engine": (2,),
    "liu": (),
    "light_round": (2,),
    "small_med": (2,),
    "med_peaks": (2,),
}
"""Factors by which voxels are merged into coarser ones, by instance; by default 2, then 2."""


def judged(plan: Plan) -> dict[str, Any]:
    """Return the figures of a plan after the reference has accepted it."""
    with tempfile.TemporaryDirectory() as folder:
        for packing in plan.containers:
            file = Path(folder) / "plan.json"
            save_plan(file, packing)
            report = check_plan(file)
            if not report.holds:
                raise RuntimeError(f"refused: {report.violation}")
    interlocked = sum(
        item.leaves is None
        for packing in plan.containers
        if packing.geometry == "solids"
        for item in packing.items
    )
    return {
        "packed": plan.num_packed,
        "utilization": plan.utilization,
        "interlocked": interlocked,
        "seconds": plan.seconds,
        "compared": plan.tried,
    }


def order(data: Path, seconds: float) -> Iterator[dict[str, Any]]:
    """Nest the 76 parts with two clearances, and pack them on heightmaps."""
    meshes = data / "meshes"
    files = {name: next(meshes.rglob(name)) for name in ORDER}
    parts = [Part(file=str(files[name]), unit="m", quantity=count) for name, count in ORDER.items()]
    for clearance in ("1mm", "0mm"):
        plan = pe.nest(parts, VOLUME, seconds, clearance=clearance)
        yield {"planner": "nest", "clearance": clearance, **judged(plan)}
    plan = pe.pack(parts, VOLUME, seconds, stability="none", cell="5mm")
    yield {"planner": "pack", "cell": "5mm", **judged(plan)}


def strips(data: Path, seconds: float, names: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Find low nests of the voxel instances."""
    instances = read_public if (data / "InstanceDescription").is_dir() else read_supplied
    for instance, voxels in instances(data):
        if not names or instance["name"] in names:
            yield strip(instance, voxels, seconds)


def read_supplied(data: Path) -> Instances:
    """Yield the instances of `voxel_instances/index.json`."""
    index = json.loads((data / "voxel_instances" / "index.json").read_text())
    for instance in index["instances"]:
        yield instance, np.load(data / instance["file"])


def strip(instance: dict[str, Any], voxels: Any, seconds: float) -> dict[str, Any]:
    """Nest all pieces of an instance as low as the time allows."""
    parts = [voxels[piece["piece"]].astype(bool) for piece in instance["pieces"]]
    counts = [piece["count"] for piece in instance["pieces"]]
    side = instance["voxel_size"]
    highest = 5 * instance["volume_lower_bound_height"] / side
    room = Room(np.array([*instance["container_xy_voxels"], int(highest)], float))
    start = time.perf_counter()
    volumes = [float(part.sum()) for part in parts]
    level = Level([as_given(part) for part in parts], room, 1.0)
    search = NestSearch(level, volumes, counts, interlocking=True, lowest=True)
    search.search(start + seconds, level.coarser(COARSE.get(instance["name"], (2, 2))))
    if any(search.left):
        raise RuntimeError(f"{instance['name']}: {sum(search.left)} pieces are left")
    return {
        "instance": instance["name"],
        "pieces": instance["n_items"],
        "height": search.height * side,
        "published": instance["published_best_height"],
        "seconds": time.perf_counter() - start,
        "compared": search.tried,
    }


def scaling(seconds: float) -> Iterator[dict[str, Any]]:
    """Nest 25 to 400 embedded shapes with ever finer voxels."""
    for count in (25, 50, 100, 200, 400):
        parts = [
            Part(mesh=list(SHAPES.values())[k % len(SHAPES)].mesh(), quantity=1)
            for k in range(count)
        ]
        volume = sum(part.load().volume for part in parts)
        side = (volume / 0.6) ** (1 / 3)  # more than a nest can hold
        for cells in (48, 64, 96, 128):
            plan = pe.nest(parts, (side,) * 3, seconds, cell=side / cells)
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2
            yield {"parts": count, "cells": cells, "memory_gb": memory, **judged(plan)}


def main() -> None:
    """Run one of the measurements and write its rows as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("what", choices=("order", "strips", "scaling"))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--names", nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    if args.what != "scaling" and args.data is None:
        parser.error(f"{args.what} needs --data, the folder of meshes and voxel_instances")
    seconds = args.seconds or {"order": 60.0, "strips": 600.0, "scaling": 30.0}[args.what]
    out = args.out or Path(f"benchmarks/results/nesting_{args.what}.json")
    runs = {
        "order": lambda: order(args.data, seconds),
        "strips": lambda: strips(args.data, seconds, args.names),
        "scaling": lambda: scaling(seconds),
    }
    rows = []
    for row in runs[args.what]():
        print(row, flush=True)
        rows.append(row)
        write_json(str(out), {**provenance(), "seconds": seconds, "rows": rows})


if __name__ == "__main__":
    main()
