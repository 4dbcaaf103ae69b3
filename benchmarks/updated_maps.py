"""Time of drop-height maps of several visible items over an episode: recomputed, or updated.

    python benchmarks/updated_maps.py [--visible 5 20] [--out ...]

The episode is one of `irregular_paper`, packed lowest first. An update computes only what the last
placement changed.
"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any, NamedTuple

import torch
from provenance import provenance, write_json
from torch import Tensor

from agents.bench.measure import Clock
from packing_env import make_env
from packing_env.core.orientation import visible_items
from packing_env.kernels import DropHeights, drop_height, update_drop_height


class Decision(NamedTuple):
    """Inputs of the maps of one decision, in the order of `kernels.drop_height`.

    Attributes:
        heightmap: ``[1, X, Y]`` metres.
        bottom: ``[K, U, V]`` metres, of every catalogue row and orientation.
        stride: Cells between two placements.
        which: ``[1, P]`` the surfaces of the visible items, -1 for an empty slot.
        size: ``[K, 2]`` footprints, cells.
    """

    heightmap: Tensor
    bottom: Tensor
    stride: int
    which: Tensor
    size: Tensor


def episode(visible: int, seed: int, **overrides: Any) -> list[Decision]:
    """Return the decisions of an episode packed lowest first."""
    env = make_env("irregular_paper", num_visible=visible, pool_size=1, seed=seed, **overrides)
    catalogue, stride = env.catalogue, env.params.grid_step
    bottom, size = catalogue.bottom.flatten(0, 1), catalogue.size.flatten(0, 1)
    orientations = torch.arange(catalogue.bottom.shape[1])
    root, decisions = env.reset(), []
    while True:
        state = dict(env.state.items())
        item_id, is_visible = visible_items(state, visible)
        which = item_id[..., None] * len(orientations) + orientations
        which = torch.where(is_visible[..., None], which, -1).flatten(1)
        heightmap = state["heightmap"].clone()
        decisions.append(Decision(heightmap, bottom, stride, which, size))
        z = root["observation", "drop_height"].flatten(1)
        root["action"] = torch.where(root["action_mask"], z, torch.inf).argmin(1)
        root = env.step(root)["next"]
        if bool(root["done"].any()):
            return decisions


def maps_of(decisions: list[Decision], *, update: bool) -> list[Tensor]:
    """Return the maps of all decisions in order, either updated or recomputed for each decision."""
    first = decisions[0]
    known = DropHeights.new(first.heightmap, first.which, first.stride)
    maps = []
    for heightmap, bottom, stride, which, size in decisions:
        if update:
            z = update_drop_height(known, heightmap, bottom, stride, which=which, size=size)
            maps.append(z.clone())
        else:
            maps.append(drop_height(heightmap, bottom, stride, which=which, size=size))
    return maps


def measure(clock: Clock, decisions: list[Decision]) -> dict[str, Any]:
    """Return the CPU time per decision, both ways."""
    rows, maps = {}, {}
    for way, update in (("recomputed", False), ("updated", True)):
        work = partial(maps_of, decisions, update=update)
        cpu_ms = clock.cost(clock.measure(work, parts=len(decisions)))
        maps[way] = work()
        rows[way] = {"cpu_ms": cpu_ms}
    return {
        "decisions": len(decisions),
        "times_recomputed": rows["recomputed"]["cpu_ms"] / rows["updated"]["cpu_ms"],
        "same_bits": all(map(torch.equal, *maps.values())),
        **rows,
    }


def main() -> None:
    """Measure, print, and write the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--visible", type=int, nargs="+", default=[5, 20])
    parser.add_argument("--resolution", type=int, help="cells along X; default: of the preset")
    parser.add_argument("--items", type=int, help="items of the episode; default: of the preset")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="benchmarks/results/updated_maps.json")
    args = parser.parse_args()
    clock = Clock(torch.device("cpu"), repeats=args.repeats)
    report = {}
    for visible in args.visible:
        decisions = episode(visible, 0, resolution=args.resolution, num_items=args.items)
        report[f"visible {visible}"] = measure(clock, decisions)
        print(visible, report[f"visible {visible}"])
    write_json(args.out, provenance(args) | {"episodes": report})


if __name__ == "__main__":
    main()
