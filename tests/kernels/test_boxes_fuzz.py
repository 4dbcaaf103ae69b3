"""Rest heights and stability on boxes: every backend equals the reference program."""

import random

import pytest
import torch
from tests.kernels.piles import WORLDS, World, as_tensor, random_case

from packing_env import kernels
from packing_env.reference import boxes as reference

BACKENDS = kernels.available_backends()
SEEDS = range(4)


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
@pytest.mark.parametrize("seed", SEEDS)
def test_every_backend_equals_the_reference(seed: int, world: World) -> None:
    case = random_case(seed, world)
    arguments = (case.boxes, case.lower, case.size)
    rested = [[case.at_rest(b, p) for p in range(12)] for b in range(len(case.piles))]
    z = torch.tensor([[box[2] for box in row] for row in rested], dtype=torch.int32)
    for backend in BACKENDS:
        assert torch.equal(kernels.box_drop(*arguments, backend=backend), z)
    for rule in kernels.BOX_RULES:
        expected = torch.tensor(
            [
                [reference.is_stable(rule, pile, box) for box in row]
                for pile, row in zip(case.piles, rested, strict=True)
            ]
        )
        for backend in BACKENDS:
            stable = kernels.box_stable(*arguments, z, rule, backend=backend)
            assert torch.equal(stable, expected), (rule, backend)


def test_more_supports_than_share_a_load() -> None:
    """Slabs rest on a floor of cubes with gaps, and further slabs on their rims."""
    rng = random.Random(0)
    piles, corners, sizes = [], [], []
    most = 0
    for _ in range(12):
        pile = [
            (x, y, 0, x + 1, y + 1, 1) for x in range(6) for y in range(6) if rng.random() < 0.75
        ]
        slab = reference.drop(pile, (rng.randint(0, 2), rng.randint(0, 2)), (5, 6, 1))
        most = max(most, len(reference.contacts(pile, slab)))
        pile.append(slab)
        piles.append(pile)
        sizes.append([(rng.randint(1, 6), rng.randint(1, 6), rng.randint(1, 9)) for _ in range(20)])
        corners.append([(rng.randint(0, 9), rng.randint(0, 9)) for _ in range(20)])
    assert most > reference.MAX_SHARING
    boxes = as_tensor(piles, 37)
    lower, size = (torch.tensor(part, dtype=torch.int32) for part in (corners, sizes))
    z = kernels.box_drop(boxes, lower, size, backend="eager")
    expected = torch.tensor(
        [
            [
                reference.is_stable("stacking_tree", pile, reference.drop(pile, corner, side))
                for corner, side in zip(*row, strict=True)
            ]
            for pile, *row in zip(piles, corners, sizes, strict=True)
        ]
    )
    assert 0.1 < expected.float().mean() < 0.9
    for backend in BACKENDS:
        stable = kernels.box_stable(boxes, lower, size, z, "stacking_tree", backend=backend)
        assert torch.equal(stable, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("rows", "capacity", "count"), [(0, 3, 4), (2, 0, 4), (2, 3, 0)])
def test_nothing_to_do(backend: str, rows: int, capacity: int, count: int) -> None:
    boxes = torch.zeros(rows, capacity, 6, dtype=torch.int32)
    lower = torch.zeros(rows, count, 2, dtype=torch.int32)
    size = torch.ones(rows, count, 3, dtype=torch.int32)
    z = kernels.box_drop(boxes, lower, size, backend=backend)
    assert z.shape == (rows, count)
    assert not z.any()
    for rule in kernels.BOX_RULES:
        stable = kernels.box_stable(boxes, lower, size, z, rule, backend=backend)
        assert stable.shape == (rows, count)
        assert stable.all()
