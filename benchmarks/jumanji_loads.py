"""Loads of Jumanji's BinPack-v2, packed by the search of `packing pack`.

    python benchmarks/jumanji_loads.py [--count 1000] [--seconds 1 5] [--loads loads.npz]

Bonnet et al., "Jumanji: a Diverse Suite of Scalable Reinforcement Learning Environments in JAX",
ICLR 2024. A 20-foot container (5870 x 2330 x 2200 mm) is cut into 19 boxes, so 100 % can be packed.
No box may be turned, all boxes are known, and nothing has to be supported. Load ``i`` is drawn by
Jumanji's own generator from ``PRNGKey(i)``. The search gets the boxes sorted by their sides.

For comparison, heuristics choose among all remaining boxes and the corners of empty spaces.

Every plan is checked twice: by the reference program, and by a comparison of the boxes in whole
millimetres. Jumanji plays the plans of the search, with each box at a corner of one of its 40 empty
spaces. This needs `pip install packing-env[bench]`. `--loads` writes the loads to a file, or reads
them from it. Without Jumanji, loads are read from the file, and the plans are not played.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import tempfile
import time
from collections import Counter
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from provenance import provenance, write_json

from agents import heuristics
from agents.estimate import Estimate
from agents.training.evaluate import evaluate
from packing_env import make_env
from packing_env.plan import Packing, check_plan, save_plan
from packing_env.planner import Part, pack

CONTAINER = (5870, 2330, 2200)
"""Sides, millimetres."""
MM = 0.001
ALL = 1.0 - 1e-5
"""A return above this number means that all boxes were packed; Jumanji adds shares in float32."""
HEURISTICS = ("online_bph", "br", "best_fit", "lsah")
ORDERS = tuple(itertools.permutations(range(3)))
"""Orders of the axes by which boxes are sorted before Jumanji plays them."""


class Jumanji:
    """BinPack-v2: draws loads and plays plans."""

    def __init__(self) -> None:
        one_thread = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
        os.environ.setdefault("XLA_FLAGS", one_thread)  # read when jax starts its backend
        import jax
        import jumanji

        env = jumanji.make("BinPack-v2")
        self._key = jax.random.PRNGKey
        self._reset, self._step = jax.jit(env.reset), jax.jit(env.step)

    def draw(self, seed: int) -> np.ndarray:
        """Return the sides of the boxes ``[N, 3]`` of a load, millimetres."""
        state, _ = self._reset(self._key(seed))
        return _columns(state.items, "x_len", "y_len", "z_len")[np.asarray(state.items_mask)]

    def play(self, seed: int, boxes: np.ndarray) -> float:
        """Return the best return of a plan over six orders of its boxes.

        In an order, the next box is the first one whose place Jumanji offers.
        """
        returns = []
        for axes in ORDERS:
            ordered = boxes[np.lexsort([boxes[:, axis] for axis in axes])]
            returns.append(self._play(seed, ordered))
            if returns[-1] > ALL:
                break
        return max(returns)

    def _play(self, seed: int, boxes: np.ndarray) -> float:
        state, _ = self._reset(self._key(seed))
        waiting, total, sides = list(boxes), 0.0, _columns(state.items, "x_len", "y_len", "z_len")
        while waiting:
            corners = _columns(state.ems, "x1", "y1", "z1")[np.asarray(state.sorted_ems_indexes)]
            mask = np.asarray(state.action_mask)
            offered = [
                (index, action)
                for index, box in enumerate(waiting)
                for action in np.argwhere(
                    mask
                    & (corners[: len(mask)] == box[:3]).all(axis=1)[:, None]
                    & (sides == box[3:]).all(axis=1)
                )
            ]
            if not offered:
                break
            index, action = offered[0]
            del waiting[index]
            state, timestep = self._step(state, action.astype(np.int32))
            total += float(timestep.reward)
        return total


def _columns(tree: Any, *names: str) -> np.ndarray:
    return np.stack([np.asarray(getattr(tree, name)) for name in names], axis=1)


def read_loads(path: Path | None, count: int, jumanji: Jumanji | None) -> np.ndarray:
    """Return the sides of all boxes ``[count, N, 3]``; read them, or draw and write them."""
    if path is not None and path.exists():
        return np.load(path)["sides"][:count]
    if jumanji is None:
        raise SystemExit("install packing-env[bench], or name a file of loads with --loads")
    loads = np.stack([jumanji.draw(seed) for seed in range(count)]).astype(np.int64)
    if path is not None:
        np.savez_compressed(path, sides=loads)
    return loads


def search(sides: np.ndarray, seconds: float) -> tuple[Packing, float]:
    """Pack a load; return the packing and the time of the whole call."""
    kinds = sorted(Counter(map(tuple, sides.tolist())).items())
    parts = [
        Part(sides=kind, unit="mm", quantity=number, faces=("+z",), turn=False)
        for kind, number in kinds
    ]
    start = time.perf_counter()
    plan = pack(parts, tuple(MM * side for side in CONTAINER), seconds, stability="none")
    return plan.containers[0], time.perf_counter() - start


def checked(packing: Packing, sides: np.ndarray) -> np.ndarray:
    """Return the boxes ``[N, 6]`` of a packing, corners and sides in millimetres, after checks."""
    # 1. The reference program reads the plan from its file.
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "plan.json"
        save_plan(file, packing)
        report = check_plan(file)
    if not report.holds:
        raise RuntimeError(f"refused: {report.violation}")
    # 2. The boxes belong to the load, are not turned, and lie at whole millimetres.
    corners = [
        (item.to_world(np.zeros(3)), item.to_world(np.array(item.extent))) for item in packing.items
    ]
    exact = np.array([[*low, *(high - low)] for low, high in corners]) / MM
    boxes = np.rint(exact).astype(np.int64)
    turned = any((item.rotation != np.eye(3)).any() for item in packing.items)
    if turned or abs(exact - boxes).max() > 1e-6:
        raise RuntimeError("a box is turned, or not at a whole millimetre")
    if Counter(map(tuple, boxes[:, 3:].tolist())) - Counter(map(tuple, sides.tolist())):
        raise RuntimeError("a box is not from the load")
    # 3. They are inside the container and do not overlap.
    low, high = boxes[:, :3], boxes[:, :3] + boxes[:, 3:]
    overlap = (low[:, None] < high[None]).all(-1) & (low[None] < high[:, None]).all(-1)
    if (low < 0).any() or (high > CONTAINER).any() or overlap.sum() != len(boxes):
        raise RuntimeError("boxes overlap or leave the container")
    return boxes


def pushed(boxes: np.ndarray) -> np.ndarray:
    """Return the boxes after pushing each along -x, -y and -z until none moves."""
    boxes, before = boxes.copy(), None
    while before is None or (boxes != before).any():
        before = boxes.copy()
        for axis in range(3):
            others = [other for other in range(3) if other != axis]
            for i in np.argsort(boxes[:, axis]):
                low, high = boxes[:, others], boxes[:, others] + boxes[:, [o + 3 for o in others]]
                ends = boxes[:, axis] + boxes[:, axis + 3]
                below = (low < high[i]).all(1) & (low[i] < high).all(1) & (ends <= boxes[i, axis])
                boxes[i, axis] = ends[below].max(initial=0)
    return boxes


def share(boxes: np.ndarray) -> float:
    """Return the utilization of boxes ``[N, 6]``."""
    return int(boxes[:, 3:].prod(axis=1).sum()) / math.prod(CONTAINER)


def play_heuristic(loads: np.ndarray, name: str, rows: int = 50) -> dict[str, Any]:
    """Play all loads with a heuristic, check the plans, and return the mean and all values."""
    count, num_boxes = loads.shape[:2]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "loads.json"
        path.write_text(json.dumps({"unit": "mm", "sequences": loads.tolist()}))
        env = make_env(
            "cuboid_continuous",
            num_envs=math.gcd(rows, count),
            pool_size=count,
            draw="sequential",
            container=tuple(MM * side for side in CONTAINER),
            cell=0.01,
            unit=MM,
            num_items=num_boxes,
            num_visible=num_boxes,
            item_order="volume",
            orientations="none",
            generator={"name": "cuboid_sequences", "path": path},
            candidate_generator="split_space_drops" if name == "online_bph" else "split_spaces",
            candidate_fallback=False,
            stability="none",
            stability_metric="none",
            num_spaces=96,
            num_candidates=96 * num_boxes,
            observation=("item_id", "item_features"),
        )
    played = evaluate(env, heuristics.build(name, env, fallback=False), count, keep=count)
    if played.metrics["overflow"].sum() > 0:
        raise RuntimeError(f"{name}: spaces overflowed; raise num_spaces")
    plans = zip(played.packings(env), loads, strict=True)
    values = [share(checked(packing, sides)) for packing, sides in plans]
    rounded = [round(value, 6) for value in values]
    return {"name": name, **summary("utilization", values), "instances": rounded}


def summary(name: str, values: list[float]) -> dict[str, float]:
    """Return the mean and half-width of some values."""
    estimate = Estimate.of(torch.tensor(values, dtype=torch.float64))
    return {name: estimate.mean, f"{name}_half_width": estimate.half_width}


def measure(loads: np.ndarray, seconds: float, jumanji: Jumanji | None) -> dict[str, Any]:
    """Search and check all loads with one budget; return the means, and the values of each load."""
    rows = []
    for seed, sides in enumerate(loads):
        packing, spent = search(sides, seconds)
        boxes = checked(packing, sides)
        row = {"packed": len(boxes), "utilization": share(boxes), "seconds": round(spent, 4)}
        if jumanji is not None:
            row["played"] = round(jumanji.play(seed, pushed(boxes)), 6)
        rows.append(row)
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    means = [summary(name, column) for name, column in columns.items() if name != "packed"]
    return {
        "budget_seconds": seconds,
        "complete": sum(row["packed"] == loads.shape[1] for row in rows),
        "played_completely": sum(row["played"] > ALL for row in rows) if jumanji else None,
        **{name: value for mean in means for name, value in mean.items()},
        "longest_seconds": max(columns["seconds"]),
        "instances": columns,
    }


def main() -> None:
    """Draw or read the loads, pack them in all ways, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seconds", type=float, nargs="+", default=[1.0, 5.0])
    parser.add_argument("--loads", type=Path, help="file of the loads, .npz")
    parser.add_argument("--out", default="benchmarks/results/jumanji_loads.json")
    args = parser.parse_args()
    jumanji = Jumanji() if find_spec("jumanji") else None
    loads = read_loads(args.loads, args.count, jumanji)
    if (loads.prod(axis=2).sum(axis=1) != math.prod(CONTAINER)).any():
        raise RuntimeError("a load does not fill the container")
    search(loads[0], 1.0)  # compiles
    budgets, rules = [], []
    for seconds in args.seconds:
        budgets.append(measure(loads, seconds, jumanji))
        print(
            {name: value for name, value in budgets[-1].items() if name != "instances"}, flush=True
        )
    for name in HEURISTICS:
        rules.append(play_heuristic(loads, name))
        print(f"{name}: {rules[-1]['utilization']:.4f}", flush=True)
    packages = {name: version(name) for name in (("jumanji", "jax") if jumanji else ())}
    report = {"loads": len(loads), "boxes": loads.shape[1], "search": budgets, "heuristics": rules}
    write_json(args.out, provenance() | packages | report)


if __name__ == "__main__":
    main()
