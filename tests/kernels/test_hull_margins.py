"""Hulls that contain a rectangle about the centre of mass, on all backends; surest placements."""

import pytest
import torch
from tests.core.test_stability import random_board
from tests.engine.engines import needs_numba
from torch import Tensor

from packing_env import kernels
from packing_env.core import preference, stability
from packing_env.kernels import stability_rules as rules

BACKENDS = kernels.available_backends()
NUM_CASES = 60
Scene = tuple[Tensor, Tensor, Tensor, Tensor]


def random_scene(seed: int) -> tuple[Scene, Tensor, float, int]:
    """Heightmap, bottom, rest heights and centres of mass; the windows' sizes, tolerance, stride.

    Heights have few levels, so that many cells support at once and corners lie on hulls' edges.
    """
    board = random_board(seed, cuboids=seed % 3 == 0, orientations=6)
    contact = board.contact()
    generator = torch.Generator().manual_seed(seed)
    contact.z[torch.rand(contact.z.shape, generator=generator) < 0.1] = torch.inf
    scene = (contact.heightmap, contact.bottom, contact.z, contact.com)
    return scene, contact.size, board.contact_tol, board.stride


def margins(size: Tensor, seed: int) -> Tensor:
    """Return half sides; some are multiples of half a cell, so that they end on hulls' edges."""
    if seed % 4 == 0:
        return 32 * (size // 2)
    return rules.margin(size, (0, 10, 20)[seed % 3])


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_margin_is_four_corners(backend: str) -> None:
    held_ones = judged = 0
    for seed in range(NUM_CASES):
        (*ground, com), size, tolerance, stride = random_scene(seed)
        margin = margins(size, seed)
        held = kernels.com_hull(*ground, com, tolerance, stride, margin=margin, backend=backend)
        expected = torch.ones_like(held)
        for side in ((-1, -1), (-1, 1), (1, -1), (1, 1)):
            corner = com + torch.tensor(side) * margin
            expected &= kernels.com_hull(*ground, corner, tolerance, stride, backend="eager")
        assert torch.equal(held, expected), f"case {seed}"
        held_ones += int(held.sum())
        judged += int(ground[2].isfinite().sum())
    assert 0.05 < held_ones / judged < 0.95


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("side", [1, 2, 7])
def test_a_rectangle_may_end_on_the_boundary(backend: str, side: int) -> None:
    bottom = torch.zeros(1, 2, side, side)
    bottom[0, 1] = torch.inf
    z = torch.zeros(1, 2, 1, 1)
    com = torch.full((1, 2, 2), 32 * side)
    for beyond in (-1, 0, 1):
        margin = com + torch.tensor([beyond, 0])
        for reach in (margin, margin.flip(-1)):
            given = (torch.zeros(1, side, side), bottom, z, com, 0.0, side)
            held = kernels.com_hull(*given, margin=reach, backend=backend)
            assert held.flatten().tolist() == [beyond <= 0, False]


@needs_numba
@pytest.mark.parametrize("items", [1, 2, 3, 6])
def test_the_surest_of_each_item_are_those_of_the_rules_one_by_one(items: int) -> None:
    deciding = set()
    for seed in range(NUM_CASES // 2):
        scene, size, *lattice = random_scene(seed)
        margins = {name: rules.margin(size, percent) for name, percent in rules.MARGINS.items()}
        margins["com_hull"] = torch.zeros_like(size)
        contact = stability.Contact(*scene, *lattice, size)
        judged = [stability.judge_maps(rule, contact) for rule in rules.LADDER]
        stable = [each.unflatten(1, (items, -1)) for each in judged]
        expected = preference.strictest(contact, stable[0], rules.LADDER)
        tiers = torch.stack([margins[rule] for rule in reversed(rules.LADDER)], 2)
        held = kernels.tiered_hull(*scene, tiers, *lattice, items)
        assert torch.equal(held.view(expected.shape), expected), f"case {seed}"
        found = torch.stack([each.flatten(2).any(2) for each in stable])
        deciding |= set(found.sum(0).flatten().tolist())  # rules of the ladder that have any
    assert deciding >= ({1, 2, 4} if items > 1 else {4})
