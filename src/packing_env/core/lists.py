"""Lists with a capacity, one per row of a batch, filled without a loop or a host read."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor

NEVER = torch.iinfo(torch.int64).max
"""Key of a missing entry; greater than all other keys."""


def any_from(flags: Bool[Tensor, "*axes"], axis: int) -> Bool[Tensor, "*rows"]:
    """Return whether a flag is True, over the axes from ``axis`` on."""
    # On a CPU, `amax` on bytes takes a small part of the time that `any` takes.
    return flags.flatten(axis).view(torch.uint8).amax(-1).bool()


def front(
    values: Shaped[Tensor, "B P"], selected: Bool[Tensor, "B P"], capacity: int, empty: int | float
) -> Shaped[Tensor, "B K"]:
    """Return the first ``capacity`` selected values in order, padded with ``empty``."""
    # The position of each value in the list; surplus values go to one entry past the end.
    place = selected.cumsum(1) - 1
    target = torch.where(selected & (place < capacity), place, capacity)
    listed = values.new_full((len(values), capacity + 1), empty).scatter(1, target, values)
    return listed[:, :capacity]


def beyond(selected: Bool[Tensor, "B P"], capacity: int) -> Int[Tensor, " B"]:
    """Return how many selected values :func:`front` leaves out."""
    return (selected.sum(1) - capacity).clamp(min=0)


def smallest(key: Int[Tensor, "B P"], count: int) -> Int[Tensor, "B K"]:
    """Return the ``count`` smallest keys in ascending order, padded with :data:`NEVER`."""
    if count == 1:
        return key.amin(1, keepdim=True)
    best = key.topk(min(count, key.shape[1]), dim=1, largest=False, sorted=True).values
    # ``pad`` would convert the key to a float and round it.
    missing = key.new_full((len(key), count - best.shape[1]), NEVER)
    return torch.cat((best, missing), 1)


def differs_from_last(ordered: Int[Tensor, "B P"]) -> Bool[Tensor, "B P"]:
    """Return True for the first value of each run of equal values."""
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    return fresh
