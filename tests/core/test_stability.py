"""Stability rules: batched, they equal the reference, on boards of all kinds; and the registry."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from packing_env import kernels, reference
from packing_env.core import stability
from packing_env.kernels import stability_rules as rules
from packing_env.types import PackingParams, ParameterError

RULES = rules.MAP_RULES
BACKENDS = kernels.available_backends()


@dataclass
class Board:
    """Random grounds and items: ``[B, X, Y]``, ``[B, R, U, V]``, ``[B, R, 2]`` and so on."""

    heightmap: np.ndarray
    bottom: np.ndarray
    size: np.ndarray
    com: np.ndarray
    contact_tol: float
    stride: int

    def contact(self) -> stability.Contact:
        heightmap, bottom = torch.from_numpy(self.heightmap), torch.from_numpy(self.bottom)
        z = kernels.drop_height(heightmap, bottom, self.stride)
        com, size = torch.from_numpy(self.com), torch.from_numpy(self.size)
        return stability.Contact(heightmap, bottom, z, com, self.contact_tol, self.stride, size)


def random_board(seed: int, *, cuboids: bool, orientations: int = 3) -> Board:
    """Few levels, so that supports are many; with ``cuboids`` flat bases and no tolerance."""
    random = np.random.default_rng(seed)
    batch, window = 2, (int(random.integers(1, 6)), int(random.integers(1, 8)))
    grid = int(random.integers(5, 10)), int(random.integers(7, 10))
    heightmap = random.integers(0, 3, (batch, *grid)) // int(random.integers(1, 3))
    heightmap[random.random(heightmap.shape) < random.choice([0.0, 0.5, 0.95])] = 0
    bottom = np.full((batch, orientations, *window), np.inf, np.float32)
    size = np.zeros((batch, orientations, 2), np.int64)
    for b, r in np.ndindex(batch, orientations):
        if r and random.random() < 0.1:
            continue  # padding
        w, h = size[b, r] = random.integers(1, np.add(window, 1))
        relief = np.zeros((w, h)) if cuboids else random.integers(0, 5, (w, h)) / 2
        holes = (random.random((w, h)) < 0.2) & (not cuboids)
        holes[random.integers(w), -1] = holes[-1, random.integers(h)] = False
        relief -= relief[~holes].min()
        bottom[b, r, :w, :h] = np.where(holes, np.inf, relief)
    com = random.integers(0, 64 * size + 1) if random.random() < 0.5 else 32 * size
    tol = 0.0 if cuboids else float(random.choice([0.0, 0.5, 1.0]))
    return Board(heightmap.astype(np.float32), bottom, size, com, tol, int(random.integers(1, 3)))


def touches(board: Board) -> Iterator[tuple[tuple[int, ...], reference.Touch]]:
    """Yield the placements inside the container, with the reference's measurements of each."""
    z = board.contact().z.numpy()
    for b, r, i, j in np.argwhere(np.isfinite(z)).tolist():
        ground, com = (board.heightmap[b], board.bottom[b, r]), tuple(board.com[b, r].tolist())
        place = (i * board.stride, j * board.stride, z[b, r, i, j])
        yield (b, r, i, j), reference.touch_at(*ground, *place, com, board.contact_tol)


def judged(board: Board, backend: str) -> dict[str, np.ndarray]:
    kernels.set_backend(backend)
    contact = board.contact()
    return {rule: stability.judge_maps(rule, contact).numpy() for rule in RULES}


def compare(board: Board) -> dict[str, np.ndarray]:
    """Each rule against the reference; how many placements are stable, and how many not."""
    stable, *others = (judged(board, backend) for backend in BACKENDS)
    for other in others:
        assert all(np.array_equal(stable[rule], other[rule]) for rule in RULES)
    counts = {rule: np.zeros(2, int) for rule in RULES}
    for at, seen in touches(board):
        for rule in RULES:
            expected = reference.is_stable(rule, seen)
            assert bool(stable[rule][at]) is expected, (rule, at)
            counts[rule][int(expected)] += 1
    outside = ~np.isfinite(board.contact().z.numpy())
    for rule in RULES:
        assert not stable[rule][outside].any(), rule
    return counts


@pytest.mark.parametrize("cuboids", [True, False])
def test_the_rules_equal_the_reference(cuboids: bool) -> None:
    total = {rule: np.zeros(2, int) for rule in RULES}
    for seed in range(12):
        for rule, found in compare(random_board(seed, cuboids=cuboids)).items():
            total[rule] += found
    for rule in RULES[1:]:
        assert total[rule].min() > 100, (rule, total[rule])


def pattern_board(w: int, h: int, *, seed: int) -> Board:
    """Flat items over whole grounds of three levels; counts at, and one beside, each threshold."""
    random = np.random.default_rng(seed)
    share = np.array([50, 60, 80, 85, 95, 100])
    ground = np.ones((400, w * h), np.float32)
    for row in ground:
        lower = w * h - int(random.choice(share) * w * h // 100) + int(random.integers(-1, 2))
        row[random.permutation(w * h)[: max(0, lower)]] = random.choice([0.0, 0.5])
    ground = ground.reshape(400, w, h)
    for u, v in ((0, 0), (-1, 0), (0, -1), (-1, -1)):
        chosen = random.random(400) < 0.6
        ground[chosen, u, v] = random.choice([0.0, 0.5, 1.0, 1.0], chosen.sum())
    ground[:, w // 2, h // 2] = 1.0
    bottom = np.zeros((400, 1, w, h), np.float32)
    size = np.full((400, 1, 2), (w, h))
    tol = float(random.choice([0.0, 0.5]))
    return Board(ground, bottom, size, 32 * size, tol, max(w, h))


@pytest.mark.parametrize("size", [(1, 5), (5, 1), (2, 2), (2, 5), (3, 3), (4, 5), (5, 8), (10, 10)])
def test_the_thresholds_are_exact(size: tuple[int, int]) -> None:
    for seed in range(2):
        compare(pattern_board(*size, seed=seed))


def test_the_stacking_tree_needs_boxes() -> None:
    """Geometry "maps" refuses the rule, by every way to choose it."""
    params = PackingParams(container=(0.1, 0.1, 0.1), cell=0.01)
    board = random_board(0, cuboids=True)
    for use in (
        lambda: stability.check_rule("stacking_tree", params),
        lambda: stability.judge_maps("stacking_tree", board.contact()),
    ):
        with pytest.raises(ParameterError, match=r"'stacking_tree'.*geometry='boxes'.*com_hull"):
            use()
    boxes = params.evolve(geometry="boxes", action_mode="candidate", observation=("heightmap",))
    stability.check_rule("stacking_tree", boxes)


def test_no_rule_calls_a_placement_outside_stable() -> None:
    """A user's rule obeys too, even if its formula holds without any support."""
    boards = [random_board(seed, cuboids=False).contact() for seed in range(8)]
    own = [
        rules.Rule(lambda support: support.count >= support.limits[0], percents=(0,)),
        rules.Rule(lambda support: support.corners >= 3, corners="highest"),
        rules.Rule(lambda support: support.in_hull | True, percents=(50,), hull="mass"),
    ]
    outside = 0
    for contact in boards:
        for rule in (*rules.RULES.values(), *own):
            stable = stability._by_formula(rule, contact)
            assert not (stable & contact.z.isinf()).any()
            outside += int(contact.z.isinf().sum())
    assert outside


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_rule_of_the_guide_equals_its_reference(backend: str) -> None:
    """The formula of `docs/how-to/own-rule.md`: exactly half is enough, with three corners."""
    guide = (Path(__file__).parents[2] / "docs/how-to/own-rule.md").read_text()
    block = re.findall(r"```python\n(.*?)```", guide, re.DOTALL)[0]
    names: dict[str, Any] = {}
    exec(block.partition("stability.register")[0], names)
    rule = rules.Rule(names["half"], percents=(50,), corners="rest")
    kernels.set_backend(backend)
    exact = 0
    for seed in range(8):
        board = random_board(seed, cuboids=False)
        stable = stability._by_formula(rule, board.contact())
        for at, seen in touches(board):
            plain = 2 * seen.support >= seen.area and seen.held_corners() >= 3
            assert bool(stable[at]) is plain
            exact += 2 * seen.support == seen.area
    assert exact > 20


def test_a_margin_refuses_a_centre_of_mass_on_the_boundary() -> None:
    """Boxes of whole cells: the centre over the edge of the support, and half a cell inside."""
    for length, expected in ((4, False), (3, True)):
        seen = reference.Touch(
            contacts=[(0, 0, 2, 2)],
            area=2 * length,
            window=(0, 0, length, 2),
            corner_levels=[0.0] * 4,
            z=0.0,
            com=(32 * length, 64),
        )
        assert reference.is_stable("com_hull", seen)
        assert reference.is_stable("com_hull_strict", seen) is expected
        ground = torch.zeros(1, length, 2)
        ground[:, :2] = 1.0
        com, size = torch.tensor([[[32 * length, 64]]]), torch.tensor([[[length, 2]]])
        flat = torch.zeros(1, 1, length, 2)
        contact = stability.Contact(ground, flat, torch.ones(1, 1, 1, 1), com, 0.0, length, size)
        assert bool(stability.judge_maps("com_hull_strict", contact)) is expected
