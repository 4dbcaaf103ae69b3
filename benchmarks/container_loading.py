"""Bischoff-Ratcliff container loading: our loads and the best known ones, class by class.

    python benchmarks/container_loading.py --data br_container_loading.json [--seconds 30]

The container measures 587 x 233 x 220 cm, boxes lie on a lattice of 1 cm (`geometry="boxes"`), each
type has its allowed vertical sides, and there is no stability rule. Heuristics see one box at a
time, the largest first. They place each box from above and do not move it again. `beam` knows all
boxes (`packing_env.pack`) and stops after `--seconds` per container; the best known loads come from
such searches. Every plan is written and checked with the reference program; a violation ends the
run.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from provenance import provenance, write_json

from agents import heuristics
from agents.training.evaluate import evaluate
from packing_env import PackingEnv, make_env, pack
from packing_env.plan import Packing, check_plan, save_plan
from packing_env.planner import Part

HEURISTICS = ("lsah", "br", "best_fit", "online_bph")
ORDER = "volume"
CM = 0.01


def build(path: Path, instance: dict[str, Any], name: str = "") -> PackingEnv:
    """Build the environment of one load."""
    return make_env(
        "cuboid_continuous",
        num_envs=1,
        pool_size=1,
        draw="sequential",
        container=tuple(CM * side for side in instance["container"]),
        cell=CM,
        unit=CM,
        num_items=instance["n_items"],
        item_order=ORDER,
        orientations="cuboid",
        generator={"name": "cuboid_sequences", "path": path, "instance": instance["name"]},
        candidate_generator="split_space_drops" if name == "online_bph" else "split_spaces",
        candidate_fallback=False,
        stability="none",
        stability_metric="none",
        num_spaces=768,
        num_candidates=4608,
        observation=("item_id", "item_features"),
    )


def play(path: Path, instance: dict[str, Any], name: str) -> dict[str, float]:
    """Play one load by a heuristic, check its plan, and return utilization and items."""
    env = build(path, instance, name)
    played = evaluate(env, heuristics.build(name, env, fallback=False), keep=1)
    if played.metrics["overflow"].sum() > 0:
        raise RuntimeError(f"{instance['name']}: spaces overflowed; raise num_spaces")
    return checked(played.packings(env)[0], f"{instance['name']}, {name}")


def search(instance: dict[str, Any], seconds: float) -> dict[str, float]:
    """Search a load with all boxes known, check its plan, and return utilization and items."""
    parts = [
        Part(
            sides=tuple(kind["dims"]),
            unit="cm",
            quantity=kind["count"],
            faces=tuple(a for a, ok in zip("xyz", kind["vertical_ok"], strict=True) if ok),
        )
        for kind in instance["types"]
    ]
    container = tuple(CM * side for side in instance["container"])
    plan = pack(parts, container, seconds, stability="none")
    return checked(plan.containers[0], f"{instance['name']}, beam") | {"seconds": plan.seconds}


def checked(packing: Packing, what: str) -> dict[str, float]:
    """Check the plan of a packing with the reference program; return utilization and items."""
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        save_plan(plan, packing)
        report = check_plan(plan)
    if not report.holds:
        raise RuntimeError(f"{what}: {report.violation}")
    return {
        "utilization": packing.utilization,
        "items_packed": float(len(packing.items)),
        "checked_items": report.items,
    }


def main() -> None:
    """Play every load with every heuristic, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="br_container_loading.json")
    parser.add_argument("--out", default="benchmarks/results/container_loading.json")
    parser.add_argument("--heuristics", nargs="*", default=HEURISTICS)
    parser.add_argument("--seconds", type=float, default=30.0, help="search time per container")
    parser.add_argument("--classes", nargs="*", default=[], help="as in BR1 BR2; all by default")
    args = parser.parse_args()
    loads = json.loads(args.data.read_text())["instances"]
    if args.classes:
        loads = [load for load in loads if load["name"].split("_")[0] in args.classes]
    start, rows = time.perf_counter(), []
    for load in loads:
        played = {name: play(args.data, load, name) for name in args.heuristics}
        played["beam"] = search(load, args.seconds)
        rows.append(
            {
                "instance": load["name"],
                "items": load["n_items"],
                "types": load["n_types"],
                "best_known": load["best_known_utilisation"],
                "found": played,
            }
        )
        scores = "  ".join(f"{v['utilization']:.3f}" for v in played.values())
        print(f"{load['name']:10} best {load['best_known_utilisation']:.3f}  {scores}", flush=True)
    classes: dict[str, dict[str, float]] = {}
    for name in dict.fromkeys(row["instance"].split("_")[0] for row in rows):
        mine = [row for row in rows if row["instance"].split("_")[0] == name]
        classes[name] = {
            "instances": len(mine),
            "best_known": statistics.fmean(row["best_known"] for row in mine),
            **{
                key: statistics.fmean(row["found"][key]["utilization"] for row in mine)
                for key in mine[0]["found"]
            },
        }
        print(name, {key: round(value, 3) for key, value in classes[name].items()})
    head = provenance()
    names = " ".join(args.heuristics)
    head["command"] = (
        "python benchmarks/container_loading.py --data br_container_loading.json "
        f"--seconds {args.seconds:g} --heuristics {names} --classes {' '.join(args.classes)}"
    )
    seconds = time.perf_counter() - start
    write_json(args.out, head | {"seconds": seconds, "classes": classes, "loads": rows})


if __name__ == "__main__":
    main()
