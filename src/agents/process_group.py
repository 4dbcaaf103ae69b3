"""Processes that learn together: their number, and reductions over them.

A reduction sends one message, a tensor; all processes must call it. A single process sends nothing.
"""

from __future__ import annotations

from torch import Tensor, distributed


def processes() -> int:
    """Return the number of processes that learn together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def add_up(tensor: Tensor) -> Tensor:
    """Replace a contiguous tensor by its sum over the processes, and return it."""
    if processes() > 1:
        distributed.all_reduce(tensor)
    return tensor


def least(tensor: Tensor) -> Tensor:
    """Replace a tensor by its minimum over the processes, and return it."""
    if processes() > 1:
        distributed.all_reduce(tensor, distributed.ReduceOp.MIN)
    return tensor
