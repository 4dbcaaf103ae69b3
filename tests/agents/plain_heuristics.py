"""A second implementation of the heuristics on spaces: loops over the boxes of one container.

Written from the definitions, not from the batched code. A choice is ``(item, orientation, x, y)``.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

Box = tuple[int, ...]
Choice = tuple[int, int, int, int]


@dataclass
class Scene:
    """One container and what may be put into it.

    Attributes:
        sides: Of the container.
        boxes: Packed, ``(x0 y0 z0 x1 y1 z1)``.
        spaces: Empty maximal spaces, likewise, in the order of the list.
        items: Of each visible item, the sides ``(w, d, h)`` in each orientation.
        allowed: Further conditions on a choice (a stability rule, a candidate list).
        types: What ``br`` counts.
        type_volume: The volume that counts as much as one type.
    """

    sides: tuple[int, int, int]
    boxes: list[Box]
    spaces: list[Box]
    items: list[list[tuple[int, int, int]]]
    allowed: Callable[[Choice], bool]
    types: list[tuple[float, ...]]
    type_volume: int = 1

    def drop(self, x: int, y: int, w: int, d: int) -> int:
        """The highest top under a base."""
        z = 0
        for box in self.boxes:
            if box[0] < x + w and box[3] > x and box[1] < y + d and box[4] > y:
                z = max(z, box[5])
        return z

    def legal(self, choice: Choice) -> bool:
        """Inside, under the lid, and allowed."""
        item, r, x, y = choice
        w, d, h = self.items[item][r]
        inside = 0 <= x <= self.sides[0] - w and 0 <= y <= self.sides[1] - d
        return inside and self.drop(x, y, w, d) + h <= self.sides[2] and self.allowed(choice)

    def proposals(self, fit: bool = True) -> Iterator[tuple[Box, Choice]]:
        """Legal lower corners, in the order space, item, orientation."""
        for space in self.spaces:
            for item, orientations in enumerate(self.items):
                for r, size in enumerate(orientations):
                    fits = all(space[a + 3] - space[a] >= size[a] for a in range(3))
                    choice = (item, r, space[0], space[1])
                    if (fits or not fit) and self.legal(choice):
                        yield space, choice

    def rest(self, choice: Choice) -> Box:
        """The box that a choice leads to."""
        item, r, x, y = choice
        w, d, h = self.items[item][r]
        z = self.drop(x, y, w, d)
        return (x, y, z, x + w, y + d, z + h)


def online_bph(scene: Scene) -> Choice | None:
    """Return the first legal choice, with spaces sorted by z, then y, then x."""
    order = sorted(scene.spaces, key=lambda space: (space[2], space[1], space[0]))
    ordered = Scene(**{**vars(scene), "spaces": order})
    return next((choice for _, choice in ordered.proposals(fit=False)), None)


def surface(scene: Scene, choice: Choice) -> int:
    """Return half the surface of a box: all items' bounding rectangle, up to the new item's top."""
    new = scene.rest(choice)
    everything = [*scene.boxes, new]
    dx = max(box[3] for box in everything) - min(box[0] for box in everything)
    dy = max(box[4] for box in everything) - min(box[1] for box in everything)
    return dx * dy + new[5] * dy + new[5] * dx


def margin(space: Box, size: tuple[int, int, int]) -> int:
    """The least gap between an item and its space."""
    return min(space[a + 3] - space[a] - size[a] for a in range(3))


def lsah(scene: Scene) -> Choice | None:
    """Least surface, then least margin, then the first."""
    best, chosen = None, None
    for space, choice in scene.proposals():
        size = scene.items[choice[0]][choice[1]]
        score = (surface(scene, choice), margin(space, size))
        if best is None or score < best:
            best, chosen = score, choice
    return chosen


def br_types(
    kinds: list[tuple[float, ...]], sides: tuple[int, int, int], geometry: str
) -> tuple[list[tuple[float, ...]], int]:
    """Return types and a type's volume: the kinds and 1; for boxes, 5 sizes and the container."""
    if geometry == "maps":
        return list(set(kinds)), 1
    low, high = min(map(min, kinds)), max(map(max, kinds))
    sizes = [low + (high - low) * step / 4 for step in range(5)]
    return list(product(sizes, repeat=3)), int(np.prod(sides))


def br(scene: Scene) -> Choice | None:
    """Volume of the space, plus the types that fit, plus 10 for all."""
    best, chosen = -1, None
    for space, choice in scene.proposals():
        w, d, h = (space[a + 3] - space[a] for a in range(3))
        fitting = sum(1 for a, b, c in scene.types if a <= w and b <= d and c <= h)
        bonus = 10 if fitting == len(scene.types) else 0
        score = w * d * h + (fitting + bonus) * scene.type_volume
        if score > best:
            best, chosen = score, choice
    return chosen


def best_fit(scene: Scene) -> Choice | None:
    """Smallest space less the item, then lowest z, y, x."""
    best, chosen = None, None
    for space, choice in scene.proposals():
        room = np.prod([space[a + 3] - space[a] for a in range(3)])
        x, y, z = scene.rest(choice)[:3]
        score = (room - np.prod(scene.items[choice[0]][choice[1]]), z, y, x)
        if best is None or score < best:
            best, chosen = score, choice
    return chosen


RULES = {f.__name__: f for f in (online_bph, lsah, br, best_fit)}
