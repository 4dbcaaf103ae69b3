"""Effect of the stability rule on a heuristic's score: RS-125, every rule with every heuristic.

    python benchmarks/rules_by_heuristics.py [--instances 1000] [--seed 0] [--out ...]

All cells of one run play the same sequences; utilization and items get 95 % intervals. The
stacking tree is evaluated on boxes (`geometry="boxes"`), the other rules on the heightmap.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

from provenance import provenance, write_json

from agents import heuristics
from agents.training.evaluate import Evaluation, evaluate, paired_difference
from packing_env import make_env

RULES = ("area_corners", "area_corners_code", "center_hull", "com_hull", "stacking_tree", "none")
HEURISTICS = (
    "random_legal",
    "first_fit",
    "heightmap_minimization",
    "deepest_bottom_left",
    "online_bph",
    "lsah",
    "br",
    "best_fit",
)
SPACES = 64
BOXES: dict[str, Any] = {
    "geometry": "boxes",
    "action_mode": "candidate",
    "candidate_fallback": False,
    "stability_metric": "none",
    "observation": ("heightmap", "item_id", "item_features", "boxes"),
    "num_candidates": 200,
}
GENERATORS = {"online_bph": "split_space_drops"}
PAIRS = (
    ("online_bph", "area_corners_code", "center_hull"),
    ("online_bph", "com_hull", "none"),
    ("heightmap_minimization", "com_hull", "none"),
)
"""V5: a heuristic and two rules; it should pack less under the first rule."""
EVERYWHERE = ("random_legal", "first_fit", "heightmap_minimization", "deepest_bottom_left")


def options_for(rule: str, heuristic: str) -> dict[str, Any]:
    """Return the overrides of `cuboid_online`."""
    spaces = {} if heuristic in EVERYWHERE else {"num_spaces": SPACES}
    options: dict[str, Any] = {"stability": rule, **spaces}
    if rule != "stacking_tree":
        return options
    generator = GENERATORS.get(heuristic, "split_spaces")
    if heuristic in EVERYWHERE:
        generator = "all_placements"
    capacity = max(200, 2 * SPACES)
    return options | BOXES | {"candidate_generator": generator, "num_candidates": capacity}


def cell(rule: str, heuristic: str, args: argparse.Namespace) -> tuple[dict[str, Any], Evaluation]:
    """Play one cell of the table."""
    start = time.perf_counter()
    env = make_env(
        "cuboid_online",
        num_envs=args.instances,
        pool_size=args.instances,
        seed=args.seed,
        draw="sequential",
        split="test",
        **options_for(rule, heuristic),
    )
    own: dict[str, Any] = {} if heuristic in EVERYWHERE else {"fallback": False}
    played = evaluate(env, heuristics.build(heuristic, env, **own), seed=args.seed)
    found = {
        "rule": rule,
        "heuristic": heuristic,
        "utilization": vars(played.estimate("utilization")),
        "items": vars(played.estimate("items_packed")),
        "spread": played.metrics["utilization"].std().item(),
        "overflow": played.metrics["overflow"].sum().item(),
        "seconds": time.perf_counter() - start,
    }
    print(
        f"{rule:18} {heuristic:24} {played.estimate('utilization')}  "
        f"{played.estimate('items_packed').text(1)} items",
        flush=True,
    )
    return found, played


def main() -> None:
    """Play every cell, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/rules_by_heuristics.json")
    args = parser.parse_args()
    cells = {(name, rule): cell(rule, name, args) for rule in RULES for name in HEURISTICS}
    pairs = []
    for name, lower, higher in PAIRS:
        difference = paired_difference(cells[name, higher][1], cells[name, lower][1])
        print(f"{name}: {higher} - {lower} {difference}")
        pair = {"heuristic": name, "lower": lower, "higher": higher}
        pairs.append(pair | {"difference": vars(difference)})
    table = [numbers for numbers, _ in cells.values()]
    write_json(args.out, provenance(args) | {"cells": table, "pairs": pairs})


if __name__ == "__main__":
    main()
