"""Processes that learn together: their number, and means over them."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, distributed


def processes() -> int:
    """Return the number of processes that learn together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def average(tensors: Iterable[Tensor]) -> None:
    """Replace tensors of one dtype by their means over the processes, in one message.

    With a single process, nothing happens.
    """
    if not distributed.is_initialized():
        return
    pending = list(tensors)
    flat = torch.cat([tensor.flatten() for tensor in pending])
    distributed.all_reduce(flat)
    flat /= distributed.get_world_size()
    means = flat.split([tensor.numel() for tensor in pending])
    for tensor, mean in zip(pending, means, strict=True):
        tensor.copy_(mean.view_as(tensor))
