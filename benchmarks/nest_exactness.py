"""Judge nests of real meshes with programs that share no code with the planner.

    pip install python-fcl
    python benchmarks/nest_exactness.py --data DATA [--nests 20] [--seconds 8]

Each nest holds random parts, read and placed by trimesh. FCL (the Flexible Collision Library)
measures the distance of every two solids. Each part then leaves in the reverse order of the plan:

- *Swept voxels*, for all nests: the voxels of side `PITCH` whose centre is inside a solid move
  along the way out. None of them may meet a voxel of a part that has not left yet.
- *Exact sweeps*, for the first `EXACT` nests: in each step, a part moves by the distance that FCL
  measures (conservative advancement), but at least by `STEP`, until it is outside.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from provenance import provenance, write_json

import packing_env as pe
from nesting import judged
from packing_env.plan import Packing
from packing_env.planner import Part

try:
    import fcl  # type: ignore[import-untyped, import-not-found, unused-ignore]
except ImportError:
    raise SystemExit("nest_exactness.py needs python-fcl: pip install python-fcl") from None

FILES = (
    "so101_moving_jaw.ply", "so101_rotation_pitch.stl", "so101_under_arm.stl",
    "so101_wrist_roll_pitch.stl", "mujoco_mug.obj", "random_blob_004.obj", "random_blob_008.obj",
    "esicup_shapes_piece1.obj", "ycb_035_power_drill.obj", "ycb_011_banana.obj",
)  # fmt: skip
CLEARANCES = (1.0, 0.3, 2.0, 0.5, 0.0)
"""Clearances of the nests, used in turn, millimetres."""
TOLERANCE = 1e-3
"""Millimetres by which a measured distance may be shorter than the clearance."""
PITCH = 2.0
"""Side of the swept voxels, millimetres."""
EXACT, STEP = 5, 0.01
"""Number of nests with exact sweeps; shortest step of a sweep, millimetres."""


class Solid:
    """A placed solid, in millimetres."""

    def __init__(self, file: Path, rotation: np.ndarray, translation: np.ndarray) -> None:
        mesh = trimesh.load_mesh(file)
        self.points = 1000.0 * (np.asarray(mesh.vertices) @ rotation.T + translation)
        self.faces = np.asarray(mesh.faces)
        model = fcl.BVHModel()
        model.beginModel(len(self.points), len(self.faces))
        model.addSubModel(self.points, self.faces)
        model.endModel()
        self.body = fcl.CollisionObject(model)
        self.inside = self._middles()

    def move(self, shift: np.ndarray) -> None:
        """Move the body from its place in the plan."""
        self.body.setTransform(fcl.Transform(shift))

    def _middles(self) -> set[tuple[int, int, int]]:
        """Return the voxels whose centre is inside: below an odd number of faces."""
        low = np.floor(self.points.min(0) / PITCH).astype(int)
        size = np.ceil(self.points.max(0) / PITCH).astype(int) - low
        crossings = np.zeros(size, int)
        # Centres are moved a little, so that no ray meets an edge.
        x, y, z = ((np.arange(size[k]) + low[k] + 0.5) * PITCH + 1e-4 * np.pi for k in range(3))
        for a, b, c in self.points[self.faces]:
            normal = np.cross(b - a, c - a)
            if normal[2] == 0.0:
                continue
            i = slice(*np.searchsorted(x, [min(a[0], b[0], c[0]), max(a[0], b[0], c[0])]))
            j = slice(*np.searchsorted(y, [min(a[1], b[1], c[1]), max(a[1], b[1], c[1])]))
            X, Y = np.meshgrid(x[i], y[j], indexing="ij")
            signs = [
                (q[0] - p[0]) * (Y - p[1]) - (q[1] - p[1]) * (X - p[0]) > 0
                for p, q in ((a, b), (b, c), (c, a))
            ]
            hit = (signs[0] == signs[1]) & (signs[1] == signs[2])
            height = a[2] - (normal[0] * (X - a[0]) + normal[1] * (Y - a[1])) / normal[2]
            crossings[i, j] += hit[..., None] & (height[..., None] > z)
        return {tuple(place) for place in (np.argwhere(crossings % 2) + low).tolist()}


def distance(one: Solid, others: Sequence[Solid]) -> float:
    """Return the smallest distance of a solid to others; 0 if their surfaces meet."""
    smallest = np.inf
    for other in others:
        result = fcl.DistanceResult()
        smallest = min(smallest, max(0.0, fcl.distance(one.body, other.body, result=result)))
    return smallest


def way(name: str) -> np.ndarray:
    """Return the unit vector of ``+x``, ``-x``, ..."""
    direction = np.zeros(3)
    direction["xyz".index(name[1])] = 1.0 if name[0] == "+" else -1.0
    return direction


def meets_in_voxels(solid: Solid, direction: np.ndarray, others: Sequence[Solid]) -> bool:
    """Return whether a voxel of a solid would meet a voxel of another one on its way out."""
    axis = int(np.abs(direction).argmax())
    sign = int(direction[axis])
    ahead: dict[tuple[int, ...], int] = {}  # the farthest voxel of each column of the others
    for other in others:
        for place in other.inside:
            column = (*place[:axis], *place[axis + 1 :])
            ahead[column] = max(ahead.get(column, sign * place[axis]), sign * place[axis])
    return any(
        ahead.get((*place[:axis], *place[axis + 1 :]), -(10**9)) >= sign * place[axis]
        for place in solid.inside
    )


def meets_exactly(solid: Solid, direction: np.ndarray, others: Sequence[Solid]) -> bool:
    """Return whether a solid touches others while it moves out of their bounds."""
    if not others:
        return False
    axis = int(np.abs(direction).argmax())
    mine, theirs = (direction[axis] * np.concatenate(p)[:, axis]
                    for p in ([solid.points], [other.points for other in others]))  # fmt: skip
    shift, end = 0.0, theirs.max() - mine.min()
    touches = False
    while shift < end and not touches:
        solid.move(shift * direction)
        gap = distance(solid, others)
        touches = gap == 0.0
        shift += max(gap, STEP)
    solid.move(np.zeros(3))
    return touches


def verdict(
    packing: Packing, files: dict[str, Path], clearance: float, exact: bool
) -> dict[str, Any]:
    """Judge one container."""
    solids = [
        Solid(files[Path(item.source).name], item.rotation, item.translation)
        for item in packing.items
    ]
    nearest = min(distance(solid, solids[:k]) for k, solid in enumerate(solids) if k)
    if nearest < clearance - TOLERANCE:
        raise RuntimeError(f"two solids are {nearest} mm apart instead of {clearance} mm")
    for k, (solid, item) in enumerate(zip(solids, packing.items, strict=True)):
        if any(solid.inside & other.inside for other in solids[:k]):
            raise RuntimeError(f"item {k} is inside another one")
        direction = way(item.leaves or "")
        if meets_in_voxels(solid, direction, solids[:k]):
            raise RuntimeError(f"item {k} meets another one on its way {item.leaves} (voxels)")
        if exact and meets_exactly(solid, direction, solids[:k]):
            raise RuntimeError(f"item {k} meets another one on its way {item.leaves}")
    return {"nearest_mm": nearest, "swept": "exactly, and in voxels" if exact else "in voxels"}


def main() -> None:
    """Make the nests, judge them, and write a row for each as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__.partition("\n")[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--nests", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/nest_exactness.json"))
    args = parser.parse_args()
    files = {name: next((args.data / "meshes").rglob(name)) for name in FILES}
    rows: list[dict[str, Any]] = []
    for seed in range(args.nests):
        random = np.random.default_rng(seed)
        clearance = CLEARANCES[seed % len(CLEARANCES)]
        chosen = random.choice(FILES, 4, replace=False)
        parts = [
            Part(file=str(files[name]), unit="m", quantity=int(random.integers(2, 7)))
            for name in chosen
        ]
        sides = tuple(random.integers(120, 220, 3) / 1000.0)
        plan = pe.nest(parts, sides, args.seconds, clearance=f"{clearance}mm", seed=seed)
        row = {"seed": seed, "clearance_mm": clearance, **judged(plan)}
        start = time.perf_counter()
        row |= verdict(plan.containers[0], files, clearance, seed < EXACT)
        row["judged_in"] = time.perf_counter() - start
        print(row, flush=True)
        rows.append(row)
        write_json(str(args.out), {**provenance(), "seconds": args.seconds, "rows": rows})


if __name__ == "__main__":
    main()
