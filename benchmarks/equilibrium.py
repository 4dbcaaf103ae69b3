"""Compare the stability rule `equilibrium` of every backend with the reference and with an LP.

    python benchmarks/equilibrium.py [--cases 10000] [--programmes 2000] [--out PATH]

Cases are boxes put on random piles, in four kinds of containers. Every verdict of every backend
must equal the verdict of :mod:`packing_env.reference.equilibrium`; otherwise the exit status is 1.

The linear programmes (`pip install scipy`) look for vertical forces that balance every box of the
pile. The forces act at the corners of all contacts, moved inside by the rule's margin. Piles that
the rule accepts must have a solution; the share of piles with a solution that the rule refuses is
reported.
"""

from __future__ import annotations

import argparse
import random
import sys
from typing import Any, NamedTuple

import numpy as np
import torch
from provenance import provenance, write_json

from packing_env import kernels
from packing_env.reference import boxes as reference
from packing_env.reference.equilibrium import MARGIN


class World(NamedTuple):
    """A container and the sides of its boxes, in units."""

    name: str
    base: int
    height: int
    sides: tuple[int, int]
    step: int


WORLDS = (
    World("10 x 10 x 10, sides 2 .. 5", 10, 10, (2, 5), 1),
    World("10 x 10 x 10, sides 1 .. 5", 10, 10, (1, 5), 1),
    World("1000 x 1000 x 1000, sides 100 .. 500", 1000, 1000, (100, 500), 1),
    World("12 x 12 x 40, sides 1 .. 3", 12, 40, (1, 3), 1),
)
ROWS, PLACES, CAPACITY = 10, 10, 30


def draw(rng: random.Random, world: World, pile: list[reference.Box]) -> reference.Box:
    """Draw a box at rest on a pile, often flush with another one."""
    size = tuple(rng.randint(*world.sides) for _ in range(3))
    corner = []
    for axis in range(2):
        edges = [0, *(box[axis] for box in pile), *(box[axis + 3] for box in pile)]
        at = rng.choice(edges) if rng.random() < 0.5 else rng.randint(0, world.base)
        corner.append(min(at, world.base - size[axis]))
    return reference.drop(pile, (corner[0], corner[1]), (size[0], size[1], size[2]))


def draw_pile(rng: random.Random, world: World) -> list[reference.Box]:
    """Draw a pile; most satisfy the rule, some would fall."""
    rule = rng.choice(("equilibrium", "equilibrium", "com_hull"))
    pile: list[reference.Box] = []
    for _ in range(rng.randint(1, 2 * CAPACITY)):
        box = draw(rng, world, pile)
        if box[5] <= world.height and reference.is_stable(rule, pile, box):
            pile.append(box)
    return pile[:CAPACITY]


def compare(world: World, cases: int, seed: int) -> dict[str, Any]:
    """Compare verdicts on boxes above the floor; return counts."""
    rng, counts = random.Random(seed), {"cases": 0, "stable": 0}
    differ = dict.fromkeys(kernels.available_backends(), 0)
    while counts["cases"] < cases:
        piles = [draw_pile(rng, world) for _ in range(ROWS)]
        placed = [[draw(rng, world, pile) for _ in range(PLACES)] for pile in piles]
        boxes = torch.zeros(ROWS, CAPACITY, 6, dtype=torch.int32)
        for row, pile in zip(boxes, piles, strict=True):
            row[: len(pile)] = torch.tensor(pile, dtype=torch.int32).view(-1, 6)
        corners = torch.tensor(placed, dtype=torch.int32)
        lower, z, size = corners[..., :2], corners[..., 2], corners[..., 3:] - corners[..., :3]
        expected = torch.tensor(
            [
                [reference.is_stable("equilibrium", pile, box) for box in row]
                for pile, row in zip(piles, placed, strict=True)
            ]
        )
        above = z > 0
        counts["cases"] += int(above.sum())
        counts["stable"] += int((expected & above).sum())
        for backend in differ:
            arguments = (boxes, lower.contiguous(), size.contiguous(), z.contiguous())
            verdict = kernels.box_stable(*arguments, "equilibrium", backend=backend)
            differ[backend] += int((verdict != expected).sum())
    return {"world": world.name, **counts, "differ": differ}


def has_forces(pile: list[reference.Box]) -> bool:
    """Test if a linear programme finds forces that balance every box of a pile."""
    from scipy.optimize import linprog

    columns = [
        (contact.below, i, x, y)
        for i, box in enumerate(pile)
        for contact in reference.contacts(pile[:i], box)
        for x in (contact.x0 + MARGIN, contact.x1 - MARGIN)
        for y in (contact.y0 + MARGIN, contact.y1 - MARGIN)
    ]
    balance, weight = np.zeros((len(pile), 3, len(columns))), np.zeros((len(pile), 3))
    for column, (below, above, x, y) in enumerate(columns):
        balance[above, :, column] += 1, x, y
        if below >= 0:
            balance[below, :, column] -= 1, x, y
    for i, (x0, y0, z0, x1, y1, z1) in enumerate(pile):
        mass = (x1 - x0) * (y1 - y0) * (z1 - z0)
        weight[i] = mass, mass * (x0 + x1) / 2, mass * (y0 + y1) / 2
    sides = {"A_eq": balance.reshape(-1, len(columns)), "b_eq": weight.ravel()}
    return bool(linprog(np.zeros(len(columns)), **sides, method="highs").status == 0)


def judge(world: World, programmes: int, seed: int) -> dict[str, Any]:
    """Compare the rule with linear programmes: one more box on piles that both accept."""
    rng, table = random.Random(seed), {}
    counts = {"programmes": 0, "both": 0, "programme_alone": 0, "rule_alone": 0}
    while counts["programmes"] < programmes:
        pile: list[reference.Box] = []
        for _ in range(2 * CAPACITY):
            box = draw(rng, world, pile)
            if box[5] > world.height:
                continue
            solved, held = has_forces([*pile, box]), reference.is_stable("equilibrium", pile, box)
            if box[2] > 0:
                counts["programmes"] += 1
                counts["both"] += solved and held
                counts["programme_alone"] += solved and not held
                counts["rule_alone"] += held and not solved
            if solved and held:  # on a pile that the rule refuses, it refuses every further box
                pile.append(box)
    table["refused_share"] = counts["programme_alone"] / max(
        1, counts["both"] + counts["programme_alone"]
    )
    return {"world": world.name, **counts, **table}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--programmes", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", default="benchmarks/results/equilibrium.json")
    args = parser.parse_args()
    torch.set_num_threads(1)
    equal = [compare(world, args.cases // len(WORLDS), args.seed) for world in WORLDS]
    for line in equal:
        print(line, flush=True)
    solved = [
        judge(w, args.programmes // len(WORLDS), args.seed) for w in WORLDS if args.programmes
    ]
    for line in solved:
        print(line, flush=True)
    write_json(args.out, {**provenance(args), "equality": equal, "programmes": solved})
    wrong = sum(sum(line["differ"].values()) for line in equal)
    wrong += sum(line["rule_alone"] for line in solved)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
