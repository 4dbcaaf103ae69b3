"""The features of heightmaps equal plain loops, on every backend."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from tests.tiny import stream

from packing_env import kernels
from packing_env.kernels.features import MOST, NONE, num_features

SIZES = [(1, 1), (2, 1), (3, 2), (4, 4), (5, 3)]


def random_maps(num: int, grid: tuple[int, int], most: int, seed: int) -> torch.Tensor:
    """Maps of plateaus and of single cells."""
    generator = stream(seed)
    fine = torch.randint(0, most, (num, *grid), generator=generator)
    coarse = fine[:, ::3, ::2].repeat_interleave(3, 1).repeat_interleave(2, 2)
    flat = torch.rand(num, generator=generator) < 0.7
    return torch.where(flat[:, None, None], coarse[:, : grid[0], : grid[1]], fine).short()


def plain(
    cells: np.ndarray,
    levels: list[int],
    bins: list[int],
    *,
    height: int,
    tolerance: int,
    shift: int,
    spaces: tuple[float, float] = (0.0, 0.5),
) -> list[int]:
    """The features of one map, as the docstring has them."""
    steps = [*np.abs(np.diff(cells, axis=0)).flat, *np.abs(np.diff(cells, axis=1)).flat]
    found = [cells.max(), sum(min(s >> shift, 15) for s in steps), sum(s > 0 for s in steps)]
    found += [(cells <= level).sum() for level in bins]
    for size in SIZES:
        places, area = [], size[0] * size[1]
        twice = 2 ** (16 + shift) // area
        for length, w in {size, size[::-1]}:
            for x, y in itertools.product(
                range(cells.shape[0] - length + 1), range(cells.shape[1] - w + 1)
            ):
                window = cells[x : x + length, y : y + w]
                z, u, v = window.max(), -(-length // 2), -(-w // 2)
                quarters = [
                    window[i : i + u, j : j + v] for i in (0, length - u) for j in (0, w - v)
                ]
                held = all(z - part.max() <= tolerance for part in quarters)
                gap = int(((z >> shift) - (window >> shift)).sum())
                places.append((z, held, held and gap <= spaces[0] * area, gap))
        found += [
            min(z for z, *_ in places),
            min((z for z, held, _, _ in places if held), default=NONE),
            min((z for z, _, flat, _ in places if flat), default=NONE),
            min((gap for z, _, _, gap in places if z < height), default=NONE),
            min((z for z, _, _, gap in places if gap < spaces[1] * area), default=NONE),
            min((z + (gap * twice >> 15) for z, held, _, gap in places if held), default=NONE),
        ]
        for level in levels:
            found.append(sum(held and z <= level for z, held, _, _ in places))
            found.append(sum(flat and z <= level for z, _, flat, _ in places))
    return [int(number) for number in found]


def plain_parts(cells: np.ndarray, pool: tuple[int, int], shift: int) -> list[int]:
    part = [np.arange(side) * parts // side for side, parts in zip(cells.shape, pool, strict=True)]
    inside = [
        cells[np.ix_(part[0] == i, part[1] == j)] for i in range(pool[0]) for j in range(pool[1])
    ]
    highest = [int(piece.max()) for piece in inside]
    return highest if pool == cells.shape else highest + [int((p >> shift).sum()) for p in inside]


@pytest.mark.parametrize(
    ("grid", "pool", "most", "options"),
    [
        ((10, 10), (10, 10), 11, {"height": 10, "tolerance": 0, "shift": 0}),
        ((7, 12), (3, 5), 400, {"height": 390, "tolerance": 20, "shift": 3}),
        (
            (9, 9),
            (9, 9),
            400,
            {"height": 390, "tolerance": 60, "shift": 2, "spaces": (8.0, 20.3)},
        ),
    ],
)
def test_backends_equal_plain_loops(
    grid: tuple[int, int], pool: tuple[int, int], most: int, options: dict[str, Any]
) -> None:
    maps = random_maps(70, grid, most, 0)
    levels, bins = [most // 2, most - 2], [0, most // 3]
    arrays = maps.numpy().astype(int)
    wanted = torch.tensor(
        [plain(a, levels, bins, **options) + plain_parts(a, pool, options["shift"]) for a in arrays]
    )
    num = wanted.shape[1]
    assert num == num_features(len(SIZES), 2, 2, pool, grid)
    for factor in (1e-5, 0.01):
        counts = torch.arange(num) % 3 == 0
        counts &= (wanted <= grid[0] * grid[1]).all(0)
        scale = torch.full((num,), factor)
        value = torch.where(counts, wanted.double().log1p().float(), wanted.float()) * scale
        tables = {"scale": scale, "counts": counts}
        for backend in kernels.available_backends():
            found = kernels.map_features(
                maps, SIZES, levels, bins, pool, **options, **tables, backend=backend
            )
            assert torch.equal(found, value.clamp(max=MOST)), backend


def options_for(grid: tuple[int, int], **changes: Any) -> dict[str, Any]:
    num = num_features(len(SIZES), 1, 1, (4, 4), grid)
    tables = {"scale": torch.ones(num) * 1e-3, "counts": torch.zeros(num, dtype=torch.bool)}
    return {"height": 9, "tolerance": 0, "shift": 0} | tables | changes


@pytest.mark.parametrize("num", [0, 1, 31, 32, 33])
def test_any_number_of_maps(num: int) -> None:
    maps = random_maps(40, (8, 8), 9, 1)
    options = options_for((8, 8))
    whole = kernels.map_features(maps, SIZES, [3], [4], (4, 4), **options)
    part = kernels.map_features(maps[:num], SIZES, [3], [4], (4, 4), **options)
    assert torch.equal(part, whole[:num])
