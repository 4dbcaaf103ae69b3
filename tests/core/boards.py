"""Half-filled containers for the tests of candidate generators."""

import random
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch

from packing_env.core import feasibility
from packing_env.core.candidates import GENERATORS, Scene
from packing_env.items import Catalogue
from packing_env.reference import spaces
from packing_env.reference.boxes import Box, Size, drop
from packing_env.reference.proposals import Placement
from packing_env.types import PackingParams

SIDES = (7, 6, 8)
SIZES = ((1, 2, 3), (2, 2, 2), (3, 1, 1), (4, 3, 2), (5, 5, 1), (1, 1, 4))


@cache
def cuboids(maps: bool = True) -> Catalogue:
    """Return a few cuboids in their distinct orientations, up to six; the rest is padding."""
    return Catalogue.from_cuboids(
        SIZES, cell=1.0, container=SIDES, orientations="cuboid", maps=maps
    )


def random_boxes(seed: int, count: int) -> list[Box]:
    """Return up to ``count`` boxes, dropped at random places."""
    draw = random.Random(seed)
    boxes: list[Box] = []
    for _ in range(4 * count):
        size = tuple(draw.sample(draw.choice(SIZES), 3))
        if size[0] <= SIDES[0] and size[1] <= SIDES[1] and len(boxes) < count:
            x, y = (draw.randint(0, SIDES[axis] - size[axis]) for axis in (0, 1))
            box = drop(boxes, (x, y), size)
            boxes += [box] if box[5] <= SIDES[2] else []
    return boxes


@dataclass(frozen=True)
class Board:
    """A container in the words of the reference program."""

    boxes: list[Box]

    @property
    def heightmap(self) -> np.ndarray:
        found = np.zeros(SIDES[:2], np.float32)
        for x0, y0, _, x1, y1, z1 in self.boxes:
            found[x0:x1, y0:y1] = np.maximum(found[x0:x1, y0:y1], z1)
        return found

    @property
    def spaces(self) -> list[spaces.Space]:
        found = spaces.initial(SIDES)
        for box in self.boxes:
            found = spaces.split(found, box, 1)
        return found


def rows(values: list[list[Box]], capacity: int) -> torch.Tensor:
    """``[B, capacity, 6]`` int32, zeros behind."""
    padded = [value[:capacity] + [(0,) * 6] * (capacity - len(value)) for value in values]
    return torch.tensor(padded, dtype=torch.int32).view(len(values), capacity, 6)


def scene(
    boards: list[Board],
    items: list[list[int | None]],
    catalogue: Catalogue | None = None,
    **params: Any,
) -> Scene:
    """The boards with these items visible, one row each; ``None`` is an empty slot."""
    boxed = params.get("geometry") == "boxes"
    catalogue = cuboids(not boxed) if catalogue is None else catalogue
    defaults: dict[str, Any] = {
        "container": SIDES,
        "cell": 1.0,
        "num_items": 20,
        "num_visible": len(items[0]),
        "stability": "none",
        "stability_metric": "none",
        "contact_tol": 0.0,
        "action_mode": "candidate",
        "num_spaces": 64,
        "num_candidates": 400,
        "observation": ("heightmap",),
    }
    task = PackingParams(**{**defaults, **params})
    state = {
        "heightmap": torch.from_numpy(np.stack([board.heightmap for board in boards])),
        "boxes": rows([board.boxes for board in boards], task.num_items),
        "spaces": rows([board.spaces for board in boards], task.num_spaces),
    }
    there = torch.tensor([[item is not None for item in row] for row in items])
    item_id = torch.tensor([[item or 0 for item in row] for row in items])
    tensors = catalogue.tensors()
    maps = None
    if not boxed:
        maps = feasibility.placement_maps(state["heightmap"], item_id, there, tensors, task)
    return Scene(state, item_id, there, maps, tensors, task)


def sizes_of(scene: Scene, row: int) -> list[list[Size | None]]:
    """The visible cuboids of a row in the words of the reference program."""
    found = scene.catalogue["cuboid"][scene.item_id[row]].tolist()
    there = scene.there[row].tolist()
    return [
        [tuple(size) if shown and all(size) else None for size in turned]
        for turned, shown in zip(found, there, strict=True)
    ]


def proposed(name: str, scene: Scene) -> tuple[list[list[Placement]], list[int]]:
    """Return a generator's proposals in each row, without empty slots, and the number dropped."""
    found = GENERATORS[name](scene)
    assert found.index.dtype == torch.int64
    orientations = scene.catalogue["peak"].shape[1]
    xs, ys = scene.params.lattice
    step = scene.params.grid_step
    placements = []
    for row in found.index.tolist():
        placements.append([])
        for index in row:
            if index >= 0:
                plane, place = divmod(index, xs * ys)
                slot, orientation = divmod(plane, orientations)
                x, y = divmod(place, ys)
                assert slot < scene.params.num_visible
                placements[-1].append((slot, orientation, x * step, y * step))
    return placements, found.dropped.tolist()
