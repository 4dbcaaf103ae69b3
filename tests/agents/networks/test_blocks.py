"""Cuboids whose sides have a common divisor: the value sees one cell of each block."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from agents.networks import AfterstateNet
from packing_env import Afterstates, PackingEnv, make_env

LAW = {"name": "uniform_cuboids", "low": 3, "high": 15, "step": 3}
CUBE = {"container": (0.32, 0.32, 0.30), "cell": 0.01, "grid_step": 3, "generator": LAW}


def task(**changes: object) -> PackingEnv:
    return make_env("cuboid_online", 2, pool_size=8, **changes)


def enlarged(maps: Tensor) -> Tensor:
    """Return maps of 10 x 10 blocks as maps of 32 x 32 cells; two cells at the far sides stay 0."""
    blocks = maps.repeat_interleave(3, 1).repeat_interleave(3, 2)
    return torch.nn.functional.pad(blocks, (0, 2, 0, 2))


def test_maps_of_blocks_have_the_features_of_single_cells() -> None:
    coarse, fine = AfterstateNet(task()), AfterstateNet(task(**CUBE))
    maps = torch.randint(0, 11, (4, 10, 10), dtype=torch.int16)
    maps[0] = 0
    maps[1] = maps[1].sort(0).values
    torch.testing.assert_close(fine.features(enlarged(maps)), coarse.features(maps))


def test_a_block_divides_sides_places_and_the_height() -> None:
    assert Afterstates(task(**CUBE)).block == 3
    assert Afterstates(task(**CUBE)).units == pytest.approx(10)
    assert Afterstates(task(**{**CUBE, "grid_step": 2})).block == 1
    assert Afterstates(task(**{**CUBE, "container": (0.32, 0.32, 0.31)})).block == 1
    preplaced = {"preplaced": [[0.0, 0.0, 0.0, 0.01, 0.01, 0.01]]}
    assert Afterstates(task(**CUBE, constraints=preplaced)).block == 1


def test_exact_boxes_support_only_where_they_touch() -> None:
    env = make_env("cuboid_continuous", 2, pool_size=8, contact_tol=0.1)
    assert env.params.geometry == "boxes"
    assert env.params.tolerance > 0.0
    assert AfterstateNet(env).windows.tolerance == 0
