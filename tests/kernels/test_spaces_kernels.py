"""The list of empty maximal spaces: splits by hand, and each backend equal to the plain program."""

import itertools
import random
from functools import cache

import pytest
import torch
from tests.kernels.piles import CONTINUOUS, DISCRETE, World, as_tensor, random_pile

from packing_env import kernels
from packing_env.reference import spaces as reference

BACKENDS = kernels.available_backends()
Box = reference.Space
WORLDS = {
    "sides 1..5 in 10": DISCRETE,
    "sides 2..5 in 10": World("discrete", 10, 10, (2, 5), (2, 3, 4, 5), (2, 5)),
    "small items": World("small", 9, 8, (1, 2), (1, 2), (1, 2)),
    "fine": CONTINUOUS,
}


@cache
def episode(world: str, seed: int, num_boxes: int = 25) -> tuple[list[Box], list[list[Box]]]:
    """Return boxes dropped at random places, and the list of spaces after each."""
    boxes = random_pile(random.Random(seed), WORLDS[world], num_boxes)
    empty, low = reference.initial(room(world)), WORLDS[world].sides[0]
    lists = itertools.accumulate(
        boxes, lambda spaces, box: reference.split(spaces, box, low), initial=empty
    )
    return boxes, [*lists][1:]


def room(world: str) -> tuple[int, int, int]:
    base, height = WORLDS[world].base, WORLDS[world].height
    return base, base, height


def split(spaces: torch.Tensor, box: list[Box], smallest: int, backend: str, placed=None):
    placed = torch.ones(len(spaces), dtype=torch.bool) if placed is None else placed
    small = torch.tensor(smallest, dtype=torch.int32)
    boxes = torch.tensor(box, dtype=torch.int32)
    return kernels.split_spaces(spaces, boxes, placed, small, backend=backend)


def test_untouched_spaces_stand_first_and_inscribed_ones_go() -> None:
    """In this example, the second box cuts the first and the third space of the list."""
    one = reference.split(reference.initial((10, 10, 10)), (0, 0, 0, 4, 4, 4), 1)
    assert one == [(4, 0, 0, 10, 10, 10), (0, 4, 0, 10, 10, 10), (0, 0, 4, 10, 10, 10)]
    two = reference.split(one, (4, 0, 0, 10, 4, 6), 1)
    # Of the first: behind in y (4, 4, 0, 10, 10, 10), inside the untouched second; above, inside
    # what is above in the third. Of the third: before in x, behind in y (inside the second), above.
    assert two == [(0, 4, 0, 10, 10, 10), (0, 0, 4, 4, 10, 10), (0, 0, 6, 10, 10, 10)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("world", WORLDS)
def test_equals_the_plain_program(world: str, backend: str) -> None:
    sides, low = room(world), WORLDS[world].sides[0]
    episodes = [episode(world, seed) for seed in range(12)]
    length = min(len(boxes) for boxes, _ in episodes)
    capacity = max(len(spaces) for _, lists in episodes for spaces in lists)
    assert length >= 5
    spaces = as_tensor([reference.initial(sides)] * len(episodes), capacity)
    for step in range(length):
        kept = spaces.clone()
        after, dropped = split(spaces, [boxes[step] for boxes, _ in episodes], low, backend)
        assert torch.equal(after, as_tensor([lists[step] for _, lists in episodes], capacity))
        assert dropped.tolist() == [0] * len(episodes)
        assert after.dtype == torch.int32
        assert torch.equal(spaces, kept)
        spaces = after


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("capacity", [1, 3, 7])
def test_what_does_not_fit_is_dropped_from_the_end_and_counted(backend: str, capacity: int) -> None:
    sides, low = room("sides 1..5 in 10"), 1
    total = 0
    for seed in range(6):
        boxes, _ = episode("sides 1..5 in 10", seed)
        plain = reference.initial(sides)
        spaces = as_tensor([plain], capacity)
        for box in boxes:
            whole = reference.split(plain, box, low)
            plain, lost = whole[:capacity], max(0, len(whole) - capacity)
            spaces, dropped = split(spaces, [box], low, backend)
            assert torch.equal(spaces, as_tensor([plain], capacity))
            assert dropped.tolist() == [lost]
            total += lost
    assert total > 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_non_contiguous_and_empty(backend: str) -> None:
    boxes, lists = episode("small items", 2)
    spaces = as_tensor(lists[:8], 60)
    twice = torch.stack([spaces, spaces], -1)[..., 0]
    after, _ = split(twice, boxes[1:9], 1, backend)
    assert torch.equal(after, as_tensor(lists[1:9], 60))
    none, dropped = kernels.split_spaces(
        spaces[:0],
        torch.zeros(0, 6, dtype=torch.int32),
        torch.zeros(0, dtype=torch.bool),
        torch.tensor(1, dtype=torch.int32),
        backend=backend,
    )
    assert none.shape == (0, 60, 6)
    assert dropped.shape == (0,)
