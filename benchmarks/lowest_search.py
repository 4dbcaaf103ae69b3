"""Speed of packing as low as possible: search without maps, or maps of all placements.

    python benchmarks/lowest_search.py [--data DIR] [--rules none com_hull] [--out ...]

The script packs whole episodes of `irregular_paper` in one container, every item at its lowest
legal placement, without observations. The items are the meshes of `DIR/meshes`; without `--data`,
the embedded household items. A decision consists of the choice (`choose_ms`: the search, or the
maps and the choice from them) and of the step, with metrics and rewards. `measured` is the number
of placements per decision whose rest height was computed; `judged` is the number to which the
stability rule was applied. The packings of both ways must be equal bit for bit.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from lowest_packer import LowestPacker
from provenance import provenance, write_json

from agents.bench.measure import Clock, percentiles
from packing_env import PackingEnv, make_env
from packing_env.core.lowest import Found, LowestPlacement
from packing_env.core.orientation import num_orientations
from packing_env.types import State

COMPARED = ("items_packed", "placement", "placement_z", "heightmap")
"""Tensors of the last state that both ways must agree on."""


class Watched(LowestPlacement):
    """Search that times its choices and counts the placements it visits."""

    def forget(self) -> None:
        """Reset the counts and times."""
        self.milliseconds: list[float] = []
        self.measured = self.judged = 0

    def find(self, state: State) -> Found:
        """Find placements and time it, also in the last call of an episode, which finds none."""
        start = time.thread_time()
        found = super().find(state)
        self.milliseconds.append(1e3 * (time.thread_time() - start))
        # Maps visit all placements. They replace the whole search, or the rows in which it gave up.
        params = self.params
        every = params.num_visible * num_orientations(self.catalogue) * math.prod(params.lattice)
        visited = torch.tensor([[every, every, 0]]) if found.examined is None else found.examined
        mapped = every * visited[:, 2]
        self.measured += int((visited[:, 0] + mapped).sum())
        self.judged += int((visited[:, 1] + mapped).sum())
        return found


def measure(
    clock: Clock, env: PackingEnv, starts: Sequence[State], args: argparse.Namespace, *, maps: bool
) -> tuple[dict[str, Any], list[State]] | None:
    """Measure one way to choose; None if the search does not support the stability rule.

    Returns:
        Rates, times and counts; and the last states.
    """
    lowest = Watched(env.catalogue.tensors(), env.params)
    lowest.searches = lowest.searches and not maps
    if not maps and not lowest.searches:
        return None
    packer = LowestPacker(lowest)

    def pack() -> list[State]:
        lowest.forget()
        return [packer(state) for state in starts]

    values, last = clock.measure(pack), pack()
    decisions = sum(int(state["step"].sum()) for state in last)
    return {
        "decisions": decisions,
        "decisions_per_second": 1e3 * decisions / values["wall_ms"],
        "decisions_per_cpu_second": 1e3 * decisions / clock.cost(values),
        "choose_ms": statistics.fmean(lowest.milliseconds),
        **percentiles(lowest.milliseconds),
        "measured": lowest.measured / decisions,
        "judged": lowest.judged / decisions,
    }, last


def compare(clock: Clock, rule: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure both ways under one stability rule."""
    items = None if args.data is None else {"source": "meshes", "paths": f"{args.data}/meshes"}
    options = {"num_visible": 1, "pool_size": 64, "draw": "sequential", "stability": rule}
    options |= {"items": items, "resolution": args.resolution, "num_items": args.items}
    env = make_env("irregular_paper", num_envs=1, seed=0, **options)
    starts = []
    for _ in range(args.episodes):
        env.reset()
        starts.append(dict(env.get_state().items()))
    by_maps = measure(clock, env, starts, args, maps=True)
    by_search = measure(clock, env, starts, args, maps=False)
    assert by_maps is not None
    if by_search is None:
        return {"maps": by_maps[0], "search": "does not support this rule"}
    (slow, expected), (fast, packed) = by_maps, by_search
    return {
        "maps": slow,
        "search": fast,
        "times_maps": fast["decisions_per_cpu_second"] / slow["decisions_per_cpu_second"],
        "same_placements": all(
            torch.equal(one[key], other[key])
            for one, other in zip(expected, packed, strict=True)
            for key in COMPARED
        ),
    }


def main() -> None:
    """Measure, print, and write the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder with meshes/")
    parser.add_argument("--rules", nargs="+", default=["none", "com_hull"], help="stability rules")
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--resolution", type=int, help="cells along X; default: of the preset")
    parser.add_argument("--items", type=int, help="items of an episode; default: of the preset")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="benchmarks/results/bench_search.json")
    args = parser.parse_args()
    clock = Clock(torch.device("cpu"), repeats=args.repeats, longest=600.0)
    results = {}
    for rule in args.rules:
        results[rule] = compare(clock, rule, args)
        print(rule, results[rule])
    write_json(args.out, provenance(args) | {"rules": results})


if __name__ == "__main__":
    main()
