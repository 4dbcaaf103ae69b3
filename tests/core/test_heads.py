"""Conditional masks of the heads, against plain loops."""

import itertools

import torch
from tests.tiny import stream

from packing_env.core.actions.heads import next_head_mask

SHAPE = (2, 3, 4, 5)


def board(rows: int = 6, share: float = 0.15) -> torch.Tensor:
    """Random legality; the last row has one legal placement, the first has none."""
    legal = torch.rand(rows, *SHAPE, generator=stream()) < share
    legal[0], legal[-1] = False, False
    legal[-1, 1, 2, 0, 3] = True
    return legal


def test_every_path_is_a_legal_placement_and_the_reverse() -> None:
    legal = board()
    for row in range(len(legal)):
        paths = [()]
        for _ in SHAPE:
            paths = [
                (*path, value)
                for path in paths
                for value in next_head_mask(legal[row], torch.tensor(path, dtype=torch.int64))
                .nonzero()
                .flatten()
                .tolist()
            ]
        assert paths == [tuple(place) for place in legal[row].nonzero().tolist()]


def test_masks_of_a_batch_equal_a_loop() -> None:
    legal = board()
    action = torch.stack([torch.randint(n, (6,), generator=stream(n)) for n in SHAPE], -1)
    for row, head in itertools.product(range(6), range(4)):
        given = tuple(action[row, :head].tolist())
        rest = legal[row][given]
        expected = [bool(rest[value].any()) for value in range(SHAPE[head])]
        assert next_head_mask(legal, action[:, :head])[row].tolist() == expected
        shaped = next_head_mask(legal.unflatten(0, (2, 3)), action[:, :head].unflatten(0, (2, 3)))
        assert shaped.flatten(0, 1)[row].tolist() == expected
