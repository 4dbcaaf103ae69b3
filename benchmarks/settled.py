"""Measure with exact solids whether items of packings float, touch or enter each other.

A heuristic packs a folder of meshes; the packings are measured before and after they are settled:

    python benchmarks/settled.py --meshes FOLDER --piles 20

Manifold computes the exact volume that an item shares with earlier items and the floor. `float` is
an upper bound of the distance from an item to the next thing below it: an item that is moved down
by this length enters something. `inside` is the depth to which an item in its place enters others:
the shortest side of the bounding box of the shared volume. Needs `pip install packing-env[mesh]
manifold3d`.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import provenance

import agents
import packing_env as pe
from agents.training.evaluate import evaluate
from packing_env import extras
from packing_env.plan import Packing, check_plan, save_plan, settle
from packing_env.plan.solids import solid_of

ALLOWED = 5e-4
"""Largest allowed float, metres."""
DEPTH = 1e-6
"""Largest allowed depth of interpenetration, metres."""
_PROBES = (1e-6, 1e-5, 1e-4, 5e-4, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2, 5e-2, 1e-1, 1.0)
"""Metres by which items are moved down; the first that makes an item enter something is its float.
"""


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--meshes", type=Path, required=True)
    parser.add_argument("--piles", type=int, default=20)
    parser.add_argument("--policy", default="deepest_bottom_left")
    parser.add_argument("--rule", default="com_hull")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/settled.json"))
    return parser.parse_args()


def pack(options: argparse.Namespace) -> list[Packing]:
    """Return packings of held-out instances."""
    env = pe.make_env(
        "irregular_com_hull",
        num_envs=options.piles,
        seed=0,
        split="test",
        draw="sequential",
        pool_size=max(64, options.piles),
        stability=options.rule,
        items={"source": "meshes", "paths": str(options.meshes)},
    )
    policy = agents.heuristics.build(options.policy, env)
    return evaluate(env, policy, options.piles, keep=options.piles).packings(env)


class Solids:
    """The solids of a packing as manifolds.

    A mesh that is not a manifold is None (some meshes are several bodies that cut each other). It
    is counted, but left out of exact measurements.
    """

    def __init__(self, packing: Packing, manifold: Any) -> None:
        self.manifold = manifold
        self.items = [self._solid(item, manifold) for item in packing.items]
        x, y, h = packing.container
        self.floor = manifold.Manifold.cube((3 * x, 3 * y, h)).translate((-x, -y, -h))

    def _solid(self, item: Any, manifold: Any) -> Any:
        solid = solid_of(item, Path())
        points = solid.vertices @ item.rotation.T + item.translation
        mesh = manifold.Mesh64(points, solid.faces.astype(np.uint64))
        body = manifold.Manifold(mesh)
        return body if body.status() == manifold.Error.NoError else None

    def shared(self, order: int, down: float) -> tuple[float, float]:
        """Move an item down; return the volume (m^3) and depth (m) shared with earlier items.

        The floor counts as an earlier item. The shared volume consists of connected pieces; the
        depth is the shortest side of a piece's bounding box, and the largest over the pieces.
        """
        item = self.items[order].translate((0.0, 0.0, -down))
        volume = depth = 0.0
        for other in (self.floor, *self.items[:order]):
            if other is None:
                continue
            for piece in (item ^ other).decompose():
                low, high = np.array(piece.bounding_box()).reshape(2, 3)
                volume += piece.volume()
                depth = max(depth, float((high - low).min()))
        return volume, depth

    def floats(self, order: int) -> float:
        """Return an upper bound of an item's float: moved down by this, it enters something."""
        for down in _PROBES:
            if self.shared(order, down)[1] > down / 10:
                return down
        return float("inf")


def measure(packing: Packing, manifold: Any) -> dict[str, Any]:
    """Measure a packing with exact solids."""
    solids = Solids(packing, manifold)
    orders = [i for i, solid in enumerate(solids.items) if solid is not None]
    inside = [solids.shared(order, 0.0) for order in orders]
    floats = [solids.floats(order) for order in orders]
    return {
        "items": len(orders),
        "not_manifold": len(packing.items) - len(orders),
        "float_below": max(floats),
        "floating_over_allowed": sum(value > ALLOWED for value in floats),
        "inside_deepest": max(depth for _, depth in inside),
        "inside_volume": max(volume for volume, _ in inside),
    }


def checked(packing: Packing) -> tuple[Any, float]:
    """Return the report of `packing check`, and its CPU seconds."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        save_plan(plan, packing)
        start = time.process_time()
        return check_plan(plan), time.process_time() - start


def one(packing: Packing, manifold: Any) -> dict[str, Any]:
    """Measure one packing before and after it is settled."""
    [solid_of(item, Path()) for item in packing.items]  # reads the files before the timing
    start = time.process_time()
    lowered = settle(packing)
    seconds = time.process_time() - start
    report, check_cpu_seconds = checked(lowered)
    falls = [item.z_grid - item.z for item in lowered.items if item.z_grid is not None]
    gaps = [item.gap for item in lowered.items if item.gap is not None]
    return {
        "items": len(packing.items),
        "utilization": packing.utilization,
        "fall_mean": float(np.mean(falls)),
        "fall_most": max(falls),
        "fell_over_1_mm": sum(fall > 1e-3 for fall in falls),
        "gap_least": min(gaps),
        "gap_most": max(gaps),
        "balanced": sum(item.balanced is True for item in lowered.items),
        "settle_cpu_seconds": seconds,
        "check_holds": report.holds,
        "check_violation": None if report.violation is None else str(report.violation),
        "check_cpu_seconds": check_cpu_seconds,
        "exact_before": measure(packing, manifold),
        "exact_after": measure(lowered, manifold),
    }


def summary(piles: list[dict[str, Any]]) -> dict[str, Any]:
    """Return sums and extremes over the packings."""
    after = [pile["exact_after"] for pile in piles]
    before = [pile["exact_before"] for pile in piles]
    total = sum(pile["items"] for pile in piles)
    return {
        "piles": len(piles),
        "items": total,
        "items_measured_exactly": sum(each["items"] for each in after),
        "float_before": max(pile["fall_most"] for pile in piles),
        "floating_over_1_mm_before": sum(pile["fell_over_1_mm"] for pile in piles) / total,
        "float_after": max(pile["gap_most"] for pile in piles),
        "exact_float_below_before": max(each["float_below"] for each in before),
        "exact_float_below_after": max(each["float_below"] for each in after),
        "exact_inside_deepest_before": max(each["inside_deepest"] for each in before),
        "exact_inside_deepest_after": max(each["inside_deepest"] for each in after),
        "balanced": sum(pile["balanced"] for pile in piles) / total,
        "settle_cpu_seconds_most": max(pile["settle_cpu_seconds"] for pile in piles),
        "check_cpu_seconds_most": max(pile["check_cpu_seconds"] for pile in piles),
        "all_checked": all(pile["check_holds"] for pile in piles),
        "holds": all(
            each["float_below"] <= ALLOWED and each["inside_deepest"] <= DEPTH for each in after
        ),
    }


def main() -> None:
    options = arguments()
    torch.set_num_threads(1)
    manifold = extras.require("manifold3d", "exact solids")
    piles = []
    for packing in pack(options):
        piles.append(one(packing, manifold))
        print(len(piles), {k: v for k, v in piles[-1].items() if k != "exact_before"}, flush=True)
    content = provenance() | {
        "policy": options.policy,
        "rule": options.rule,
        "meshes": options.meshes.name,
        "summary": summary(piles),
        "piles": piles,
    }
    options.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(content["summary"], indent=1))


if __name__ == "__main__":
    main()
