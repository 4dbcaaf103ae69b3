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
TRIFLE = 2**26
"""Bytes that are never refused: what is free is not known so well."""

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
        remedy: What to do, given the bytes that may be taken, which are at least :data:`TRIFLE`.
        error: What is raised.
        says: Whether what fits gets a line in the log.

    Raises:
        ValueError: ``error``; more than :data:`SHARE` of what is free would be needed.
    """
    free = free_memory(device)
    if free is not None and needs > (room := max(TRIFLE, int(SHARE * free))):
        raise error(
            f"{what} needs {human(needs)}, but of the {human(free)} that are free on {device} no "
            f"more than {human(room)} may be taken; {remedy(room)}"
        )
    if says:
        known = "?" if free is None else human(free)
        _LOGGER.info("%s needs %s on %s; %s are free", what, human(needs), device, known)


def free_memory(device: torch.device) -> int | None:
    """Bytes that may be allocated on a device; None where this is not known."""
    if device.type == "cuda" and torch.cuda.is_available():
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    meminfo = Path("/proc/meminfo")
    if device.type != "cpu" or not meminfo.is_file():
        return None
    free = 1024 * _numbers(meminfo)["MemAvailable"]
    return min([free, *(limit for limit in _limits() if limit is not None)])


def _limits() -> list[int | None]:
    """What the control groups of this process leave to it; files that they cache can be dropped."""
    try:
        own = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    root, found = Path("/sys/fs/cgroup"), []
    for line in own:
        _, kinds, path = line.split(":", 2)
        if not kinds:
            group, names = root, ("memory.max", "memory.current")
        elif "memory" in kinds.split(","):
            group, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        inner = group / path.lstrip("/")
        found += [_left(folder, *names) for folder in (inner, *inner.parents)]
    return found


def _left(folder: Path, limit: str, usage: str) -> int | None:
    """What one group leaves; None where it has no limit."""
    try:
        most = (folder / limit).read_text().strip()
        if most == "max":
            return None
        held = _numbers(folder / "memory.stat")
        dropped = sum(held.get(name, 0) for name in ("active_file", "inactive_file"))
        return max(0, int(most) - int((folder / usage).read_text()) + dropped)
    except (OSError, ValueError):
        return None


def _numbers(path: Path) -> dict[str, int]:
    """Of a file with a name and a number per line."""
    pairs = (line.replace(":", " ").split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1}


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
