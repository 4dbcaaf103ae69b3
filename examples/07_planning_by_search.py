"""Search: play on from the most promising placements, with the hidden items redrawn.

The next items of an online task are hidden, so a planner may not use the instance that the
environment holds. `Lookahead` copies the visible part of a state and draws the hidden items from
the task's distribution. It compares the placements that a heuristic, a value or a network proposes
on the same drawn items.

python examples/07_planning_by_search.py
"""

from functools import partial

import packing_env as pe
from agents import heuristics, load_policy
from agents.search import Budget, Lookahead
from agents.training.evaluate import evaluate, paired_difference


def main(instances: int = 16, playouts: int = 64, **overrides: object) -> dict[str, float]:
    options = {"split": "test", "draw": "sequential", **overrides}
    env = pe.make_env("cuboid_online", num_envs=instances, **options)
    rule = partial(heuristics.build, "deepest_bottom_left")
    value = partial(load_policy, "pretrained/cuboid_online")

    gains = {}
    # A heuristic has no value of a state, so its play-outs go to the end of the episode.
    for name, base, depth in (("deepest_bottom_left", rule, None), ("afterstate", value, 1)):
        search = Lookahead(env, base, breadth=4, depth=depth, budget=Budget(playouts))
        alone, searched = evaluate(env, base(env)), evaluate(env, search)
        gain = paired_difference(searched, alone)
        gains[name] = gain.mean
        print(
            f"{name}: {alone.estimate('utilization')}, with search "
            f"{searched.estimate('utilization')} (+{gain}), "
            f"{searched.decision_ms:.0f} ms per decision"
        )
    return gains


if __name__ == "__main__":
    main()
