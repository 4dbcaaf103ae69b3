"""Counter-based draws: known answers, independence of the batch, uniformity."""

import pytest
import torch
from torch import Tensor

from packing_env.core.random import below, philox


def words(*values: int) -> tuple[Tensor, ...]:
    return tuple(torch.tensor([value]) for value in values)


@pytest.mark.parametrize(
    ("seed", "counter", "answer"),
    [
        # Random123's kat_vectors, philox4x32 with 10 rounds
        (0, (0, 0, 0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        (-1, (0xFFFFFFFF,) * 4, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            0x299F31D0A4093822,
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_known_answers(
    seed: int, counter: tuple[int, ...], answer: tuple[int, ...]
) -> None:
    found = philox(torch.tensor([seed]), *words(*counter))
    assert tuple(int(word) for word in found) == answer


def test_a_draw_does_not_depend_on_its_neighbours() -> None:
    seed, row = torch.full((64,), 5), torch.arange(64)
    together = philox(seed, row, row + 2)[0]
    alone = torch.cat([philox(*words(5, r, r + 2))[0] for r in range(64)])
    assert torch.equal(together, alone)
    assert len(set(together.tolist())) == 64


@pytest.mark.parametrize("bound", [1, 2, 7, 4096])
def test_below_is_uniform(bound: int) -> None:
    count = 20_000
    drawn = below(philox(torch.full((count,), 1), torch.arange(count))[0], bound)
    assert 0 <= int(drawn.min()) <= int(drawn.max()) < bound
    expected = count / bound
    chi2 = float(((drawn.bincount(minlength=bound) - expected) ** 2 / expected).sum())
    # mean of chi^2 = bound - 1, standard deviation sqrt(2 (bound - 1)); five of them
    assert chi2 <= bound - 1 + 5 * (2 * max(bound - 1, 1)) ** 0.5
