"""Processes that learn together: their number, and the messages between them.

Messages are tensors; text is sent as bytes, so nothing is pickled. All processes must call a
function that sends a message. A single process sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, distributed


def processes() -> int:
    """Return the number of processes that learn together."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def rank() -> int:
    """Return the number of this process among them."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def leads() -> bool:
    """Return whether this process logs and writes the state that all processes share."""
    return rank() == 0


def part(count: int) -> range:
    """Return this process's part of ``range(count)``; the last parts may be short or empty."""
    share = -(-count // processes())
    return range(min(rank() * share, count), min((rank() + 1) * share, count))


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


def any_of(*flags: bool) -> tuple[bool, ...]:
    """Return each flag OR-ed over the processes, by one message."""
    if processes() == 1:
        return flags
    return tuple(add_up(torch.tensor(flags, dtype=torch.int32)).bool().tolist())


def gather(tensor: Tensor) -> Tensor:
    """Return the tensors of all processes on the host, ``[processes, *shape]``, by one message."""
    # Metrics and texts are small, so they are sent through the host on every device.
    own = tensor.detach().cpu().contiguous()
    if processes() == 1:
        return own[None]
    gathered = own.new_empty((processes(), *own.shape))
    distributed.all_gather(list(gathered.unbind()), own)
    return gathered


def texts(own: str) -> list[str]:
    """Return the texts of all processes, by two messages."""
    # All messages have one size, so the texts are padded to the longest one.
    content = torch.tensor(list(own.encode()), dtype=torch.uint8)
    sizes = gather(torch.tensor(len(content))).tolist()
    padded = torch.zeros(max(sizes), dtype=torch.uint8)
    padded[: len(content)] = content
    messages = zip(gather(padded), sizes, strict=True)
    return [bytes(text[:size].tolist()).decode() for text, size in messages]


def from_first(make: Callable[[], str]) -> str:
    """Return the text that ``make`` returns in process 0; the others do not call ``make``."""
    return texts(make() if leads() else "")[0]


def all_do(work: Callable[[], None]) -> None:
    """Call a function in every process; if it fails in one, raise in all of them."""
    # A process that raised immediately would leave the others waiting for its next message.
    failure: OSError | RuntimeError | None = None
    try:
        work()
    except (OSError, RuntimeError) as error:
        failure = error
    # This message tells all processes whether any failed.
    (failed,) = any_of(failure is not None)
    if failed:
        raise failure or OSError("another process failed")
