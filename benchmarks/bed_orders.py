"""Orders that are drawn from the lines of BED-BPP's orders, written as files for `generator.path`.

The repository of the benchmark (github.com/floriankagerer/bed-bpp-env) holds five of its 10,003
orders, with 200 boxes of 112 articles; the others are not in a public repository. So orders are
drawn at random: every box is a line of a real order, drawn with replacement, and an order has more
boxes than the container holds. Splits are by article: no article of one half is in the other.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from packing_env.generators.cuboids.files import read_loads
from packing_env.generators.cuboids.loads import Kind

CELL = 20
"""Side of a cell, millimetres. Sides are rounded up to whole cells, which adds 6 % of volume."""
TASK: dict[str, Any] = {
    "container": [0.8, 0.7, 2.0],
    "cell": CELL / 1000,
    "num_items": 60,
    "stability": "com_hull",
    "stability_metric": "none",
    "observation": ["heightmap", "item_id", "drop_height"],
}
"""Options of `cuboid_online` for BED-BPP's roll container, which 43 boxes fill on average."""
SIDES = ((130, 600), (130, 400), (90, 340))
"""Ranges of length, width and height in BED, millimetres; uniform sides are drawn from them."""
_UNIFORM = 200
"""Number of kinds of boxes with uniform sides."""

Box = tuple[float, ...]


def lines(path: str | Path) -> list[Kind]:
    """Return the lines of all orders of a file, millimetres."""
    return [kind for load in read_loads(path) for kind in load.kinds]


def halves(kinds: Sequence[Kind], seed: int) -> tuple[list[Box], list[Box]]:
    """Split lines by article into two halves; return the sides of their boxes."""
    articles = sorted({kind.name or "" for kind in kinds})
    random.Random(seed).shuffle(articles)
    first = set(articles[: len(articles) // 2])
    parts: tuple[list[Box], list[Box]] = ([], [])
    for kind in kinds:
        parts[kind.name not in first].append(kind.sides)
    return parts


def uniform_boxes(seed: int) -> list[Box]:
    """Return boxes whose sides are uniform in the ranges of BED, millimetres."""
    draw = random.Random(seed)
    return [tuple(float(draw.randint(*ends)) for ends in SIDES) for _ in range(_UNIFORM)]


def write(path: Path, boxes: Sequence[Box], *, count: int, seed: int) -> Path:
    """Write ``count`` orders that are drawn from boxes, in cells; the boxes stay upright."""
    draw = random.Random(seed)
    cells = [[*(math.ceil(side / CELL) for side in box), 1, 0, 0, 1] for box in boxes]
    orders = [[draw.choice(cells) for _ in range(TASK["num_items"])] for _ in range(count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(orders), encoding="utf-8")
    return path


def write_shuffled(path: Path, *, count: int, seed: int) -> Path:
    """Write orders whose sides are 1 to 5 cells, equally often, shuffled over all boxes.

    So the sides are independent, as in RS-125.
    """
    draw, length = random.Random(seed), TASK["num_items"]
    number = 3 * length * count
    sides = [1 + i % 5 for i in range(number)]
    draw.shuffle(sides)
    boxes = [sides[i : i + 3] for i in range(0, number, 3)]
    orders = [boxes[i : i + length] for i in range(0, len(boxes), length)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(orders), encoding="utf-8")
    return path
