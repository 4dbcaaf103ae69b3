"""What is about to be built, in bytes, beside what is free."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path

import torch
from torch import Tensor

from packing_env.types import ParameterError

SHARE = 0.9
"""The part of the free memory that one thing may take."""

_LOGGER = logging.getLogger(__name__)


def check_memory(
    what: str,
    needs: int,
    device: torch.device,
    remedy: Callable[[int], str],
    *,
    error: type[ValueError] = ParameterError,
    says: bool = True,
) -> None:
    """Say what will be taken, and refuse what cannot fit, before any of it is allocated.

    Args:
        what: The thing, by the setting that makes it large.
        needs: Bytes.
        device: Where.
        remedy: What to do, given the bytes that may be taken.
        error: What is raised.
        says: Whether what fits gets a line in the log.

    Raises:
        ValueError: ``error``; more than :data:`SHARE` of what is free would be needed.
    """
    free = free_memory(device)
    if free is not None and needs > SHARE * free:
        raise error(
            f"{what} needs {human(needs)}, but {human(free)} are free on {device}; "
            f"{remedy(int(SHARE * free))}"
        )
    if says:
        known = "?" if free is None else human(free)
        _LOGGER.info("%s needs %s on %s; %s are free", what, human(needs), device, known)


def free_memory(device: torch.device) -> int | None:
    """Bytes that may be allocated on a device; None where this is not known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    meminfo = Path("/proc/meminfo")
    if device.type != "cpu" or not meminfo.is_file():
        return None
    fields = dict(line.split(":", 1) for line in meminfo.read_text().splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.is_file() and (text := limit.read_text().strip()) != "max":
        free = min(free, int(text) - int(used.read_text()))
    return free


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Memory of all of them."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def human(size: float) -> str:
    """Bytes in the largest unit that fits."""
    unit = "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}".replace(".0 ", " ")
