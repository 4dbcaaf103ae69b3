"""Cuboids: the setting of the literature, its heuristics, and an independently checked plan.

    python examples/08_cuboids_and_published_heuristics.py

Streams of boxes with sides of 1 to 5 in a container of 10 x 10 x 10, under three stability rules.
The rule alone changes the score of a heuristic by more than most papers report between methods.
"""

import tempfile
from pathlib import Path

import packing_env as pe
from agents import heuristics
from agents.training.evaluate import evaluate
from packing_env.plan import check_plan, save_plan

NAMES = ("random_legal", "heightmap_minimization", "deepest_bottom_left", "online_bph", "lsah")


def main(num_instances: int = 64, **overrides: object) -> bool:
    for rule in ("area_corners_code", "center_hull", "none"):
        env = pe.make_env(
            "cuboid_online",
            num_envs=num_instances,
            stability=rule,
            num_spaces=80,  # empty maximal spaces, from which online_bph and lsah choose
            pool_size=num_instances,
            draw="sequential",
            **overrides,
        )
        print(f"{rule}:")
        for name in NAMES:
            played = evaluate(env, heuristics.build(name, env), keep=1)
            print(f"  {name:24} {played.estimate('utilization')}")
    with tempfile.TemporaryDirectory() as folder:
        plan = Path(folder) / "plan.json"
        save_plan(plan, played.packings(env)[0])
        report = check_plan(plan)
    print(f"the last plan: {report.items} items, every claim holds: {report.holds}")
    return report.holds


if __name__ == "__main__":
    main()
