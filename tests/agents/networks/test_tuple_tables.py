"""Tables of patterns equal plain loops, and learn values of afterstates."""

import math

import pytest
import torch

from agents.networks import TupleTables
from agents.networks.tuple_tables import TupleSum
from packing_env import make_env

SPAN = 7


def place(*heights: int) -> int:
    """Return the entry of a pattern within its table."""
    found = heights[0]
    for other in heights[1:]:
        found = found * SPAN + min(max(other - heights[0], -3), 3) + 3
    return found


def plain_sum(tuples: TupleSum, h: list[list[int]]) -> float:
    """Return the sum over all patterns of one map, in plain loops."""
    first, second, _ = tuples.sizes
    length, width = len(h), len(h[0])
    entries = []
    for x in range(length):
        for y in range(width):
            if x + 1 < length and y + 1 < width:
                entries.append(place(h[x][y], h[x + 1][y], h[x][y + 1], h[x + 1][y + 1]))
            if x + 3 < length:
                entries.append(first + place(*(h[x + k][y] for k in range(4))))
            if y + 3 < width:
                entries.append(first + place(*(h[x][y + k] for k in range(4))))
            if 0 < x < length - 1 and 0 < y < width - 1:
                sides = (h[x - 1][y], h[x + 1][y], h[x][y - 1], h[x][y + 1])
                entries.append(first + second + place(h[x][y], *sides))
    return float(tuples.table[entries, 0].sum()) / math.sqrt(len(entries))


@torch.no_grad()
def test_the_sum_equals_plain_loops() -> None:
    torch.manual_seed(0)
    tuples = TupleSum((6, 5), 9)
    torch.nn.init.normal_(tuples.table)
    maps = torch.randint(0, 10, (12, 6, 5))
    expected = torch.tensor([plain_sum(tuples, h) for h in maps.tolist()])
    torch.testing.assert_close(tuples(maps), expected)


@pytest.mark.parametrize("task", ["cuboid_online", "irregular"])
def test_an_empty_container_is_worth_the_prior(task: str) -> None:
    env = make_env(task, 2, pool_size=4)
    value = TupleTables(env, 3)
    maps = torch.zeros(5, *env.params.grid, dtype=torch.int16)
    rest = torch.zeros(5, 3)
    torch.testing.assert_close(value(maps, rest), torch.full((5,), 0.7))
    assert max(value.features(maps).shape[1:]) <= 16
    full = torch.full_like(maps, round(value.units))
    assert (value.features(full) == value.levels).all()


def test_mirrored_maps_are_learned_from_too() -> None:
    env = make_env("cuboid_online", 2, pool_size=4)
    value = TupleTables(env, 1)
    torch.nn.init.normal_(value.tuples.table)
    maps = torch.randint(0, 11, (1, 10, 10), dtype=torch.int32)
    rest = torch.zeros(4, 1)
    found = value.value(maps.expand(4, -1, -1), rest, turn=True)
    turned = torch.cat([maps, maps.flip(1), maps.flip(2), maps.flip((1, 2))])
    torch.testing.assert_close(found, value.value(turned, rest))
