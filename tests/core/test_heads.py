"""Conditional masks of the heads, against plain loops."""

import itertools

import torch
from tests.tiny import stream

from packing_env.core.actions.heads import next_head_mask

SHAPE = (2, 3, 4, 5)


def board() -> torch.Tensor:
    """Random legality; the last row has one legal placement, the first has none."""
    legal = torch.rand(6, *SHAPE, generator=stream()) < 0.15
    legal[0], legal[-1] = False, False
    legal[-1, 1, 2, 0, 3] = True
    return legal


def test_masks_of_a_batch_equal_a_loop() -> None:
    """After the heads of a legal placement, and after any."""
    legal, generator = board(), stream()
    for trial in range(20):
        action = torch.stack([torch.randint(n, (6,), generator=generator) for n in SHAPE], -1)
        for row in range(6 if trial % 2 else 0):
            places = legal[row].nonzero()
            if len(places):
                action[row] = places[torch.randint(len(places), (), generator=generator)]
        for row, head in itertools.product(range(6), range(4)):
            rest = legal[row][tuple(action[row, :head].tolist())]
            expected = [bool(rest[value].any()) for value in range(SHAPE[head])]
            assert next_head_mask(legal, action[:, :head])[row].tolist() == expected
            shaped = (part.unflatten(0, (2, 3)) for part in (legal, action[:, :head]))
            assert next_head_mask(*shaped).flatten(0, 1)[row].tolist() == expected
