"""Random piles of boxes, and boxes to put on them."""

import random
from dataclasses import dataclass

import torch
from torch import Tensor

from packing_env.reference import boxes as reference

Box = reference.Box


@dataclass(frozen=True)
class World:
    """A container and the sides that boxes in it have, in units."""

    name: str
    base: int
    height: int
    sides: tuple[int, int]
    heights: tuple[int, ...]
    placed: tuple[int, int]
    """Sides of the boxes that are put on the piles."""

    def size(self, rng: random.Random, sides: tuple[int, int]) -> tuple[int, int, int]:
        return rng.randint(*sides), rng.randint(*sides), rng.choice(self.heights)

    def lower(
        self, rng: random.Random, pile: list[Box], size: tuple[int, int, int]
    ) -> tuple[int, int]:
        """Return a lower corner, often flush with a box of the pile, and inside the container."""
        corner = []
        for axis in range(2):
            edges = [0] + [box[axis] for box in pile] + [box[axis + 3] for box in pile]
            at = rng.choice(edges) if rng.random() < 0.6 else rng.randint(0, self.base)
            corner.append(min(at, self.base - size[axis]))
        return corner[0], corner[1]


DISCRETE = World("discrete", 10, 10, (1, 5), (1, 2, 3, 4, 5), (1, 5))
CONTINUOUS = World("continuous", 1000, 1000, (100, 500), (100, 200, 300, 400, 500), (100, 500))
FLAT = World("flat", 10, 10, (1, 3), (1,), (1, 8))
CROWDED = World("crowded", 12, 40, (1, 2), (1,), (1, 12))
WORLDS = (DISCRETE, CONTINUOUS, FLAT, CROWDED)


def put(*drops: tuple[int, ...]) -> list[Box]:
    """Return boxes ``(x, y, width, depth, height)`` dropped one after the other."""
    pile: list[Box] = []
    for x, y, *size in drops:
        pile.append(reference.drop(pile, (x, y), tuple(size)))
    return pile


def random_pile(rng: random.Random, world: World, capacity: int) -> list[Box]:
    """Return boxes dropped one after the other, each at a place that the pile's rule allows."""
    rule = rng.choice(("none", "com_hull", "stacking_tree", "equilibrium"))
    pile: list[Box] = []
    for _ in range(3 * capacity):
        size = world.size(rng, world.sides)
        box = reference.drop(pile, world.lower(rng, pile, size), size)
        if box[5] <= world.height and reference.is_stable(rule, pile, box):
            pile.append(box)
        if len(pile) == capacity:
            break
    return pile


def as_tensor(piles: list[list[Box]], capacity: int) -> Tensor:
    boxes = torch.zeros(len(piles), capacity, 6, dtype=torch.int32)
    for row, pile in zip(boxes, piles, strict=True):
        for place, box in enumerate(pile):
            row[place] = torch.tensor(box)
    return boxes


@dataclass(frozen=True)
class Case:
    """Piles ``[B]`` and what is put on them ``[B, P]``."""

    piles: list[list[Box]]
    boxes: Tensor
    lower: Tensor
    size: Tensor

    def at_rest(self, row: int, place: int) -> Box:
        corner, sides = self.lower[row, place].tolist(), self.size[row, place].tolist()
        return reference.drop(self.piles[row], tuple(corner), tuple(sides))


def random_case(
    seed: int, world: World, rows: int = 10, capacity: int = 24, count: int = 12
) -> Case:
    rng = random.Random(seed)
    piles = [random_pile(rng, world, rng.randint(0, capacity)) for _ in range(rows)]
    sizes = [[world.size(rng, world.placed) for _ in range(count)] for _ in piles]
    corners = [
        [world.lower(rng, pile, size) for size in row]
        for pile, row in zip(piles, sizes, strict=True)
    ]
    return Case(
        piles,
        as_tensor(piles, capacity),
        torch.tensor(corners, dtype=torch.int32),
        torch.tensor(sizes, dtype=torch.int32),
    )
