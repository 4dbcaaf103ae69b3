"""Checks of sizes: the cells of a container, and the bytes of a large object."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from packing_env.types import ParameterError, whole_cells

SHARE = 0.9
"""Share of the free memory that one object may use."""
TRIFLE = 2**26
"""Objects of at most this many bytes are never refused: free memory is known only roughly."""
MAX_CELLS = 2**22
"""Largest number of cells of a heightmap: 2048 x 2048."""

_LOGGER = logging.getLogger(__name__)


def check_memory(
    what: str,
    needs: int,
    device: torch.device,
    remedy: Callable[[int], str],
    *,
    error: type[ValueError] = ParameterError,
    log: bool = True,
) -> None:
    """Raise if an object does not fit into the free memory, before it is allocated.

    Args:
        what: The object, named by the setting that makes it large.
        needs: Its size in bytes.
        device: The device on which it will be allocated.
        remedy: Function that takes the allowed number of bytes (at least :data:`TRIFLE`) and
            returns the remedy for the message.
        error: Type of the exception.
        log: If True, log the size of an object that fits.

    Raises:
        ValueError: ``error``, if the object needs more than :data:`SHARE` of the free memory.
    """
    # Reading the free memory takes a millisecond; do not read it for nothing.
    if needs <= TRIFLE and not (log and _LOGGER.isEnabledFor(logging.INFO)):
        return
    free = free_memory(device)
    if free is not None and needs > (limit := max(TRIFLE, int(SHARE * free))):
        raise error(
            f"{what} needs {human(needs)}, but at most {human(limit)} of the {human(free)} free on "
            f"{device} may be used; {remedy(limit)}"
        )
    if log:
        known = "?" if free is None else human(free)
        _LOGGER.info("%s needs %s on %s; %s are free", what, human(needs), device, known)


def check_grid(
    container: Sequence[float], cell: float, *, error: type[ValueError] = ParameterError
) -> None:
    """Raise if a heightmap has more than :data:`MAX_CELLS` cells, with a hint on the unit.

    Args:
        container: (X, Y, H), metres.
        cell: Metres.
        error: Type of the exception.
    """
    x, y = (whole_cells(side, cell, name) for side, name in zip(container, "XY", strict=False))
    if x * y <= MAX_CELLS:
        return
    raise error(
        f"container={list(container)} has {x:,} x {y:,} cells of {cell:.6g} m, more than "
        f"{MAX_CELLS:,}; {_in_metres(container, cell)}use a larger cell (a lower resolution)"
    )


def _in_metres(container: Sequence[float], cell: float) -> str:
    """Return a hint if the container would fit the cells when read as mm or cm."""
    for unit, factor in (("millimetres", 1e-3), ("centimetres", 1e-2)):
        cells = [side * factor / cell for side in container[:2]]
        whole = all(count > 0.5 and abs(count - round(count)) < 1e-6 for count in cells)
        if whole and math.prod(cells) <= MAX_CELLS and min(container) * factor >= 0.01:
            metres = ", ".join(f"{side * factor:g}" for side in container)
            return f"lengths are metres: if these are {unit}, use container=[{metres}], else "
    return ""


def free_memory(device: torch.device) -> int | None:
    """Return the bytes that can be allocated on a device; None if unknown."""
    if device.type == "cuda" and torch.cuda.is_available():
        cached = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + cached
    meminfo = Path("/proc/meminfo")
    if device.type != "cpu" or not meminfo.is_file():
        return None
    free = 1024 * _numbers(meminfo)["MemAvailable"]
    return min([free, *(limit for limit in _limits() if limit is not None)])


def _limits() -> list[int | None]:
    """Return the free bytes of each control group of this process; None for one without a limit."""
    try:
        own = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    root, limits = Path("/sys/fs/cgroup"), []
    for line in own:
        _, kinds, path = line.split(":", 2)
        if not kinds:
            group, names = root, ("memory.max", "memory.current")
        elif "memory" in kinds.split(","):
            group, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        inner = group / path.lstrip("/")
        limits += [_left(folder, *names) for folder in (inner, *inner.parents)]
    return limits


def _left(folder: Path, limit: str, usage: str) -> int | None:
    """Return the free bytes of a group (cached files count as free); None without a limit."""
    try:
        most = (folder / limit).read_text().strip()
        if most == "max":
            return None
        stat = _numbers(folder / "memory.stat")
        cached = sum(stat.get(name, 0) for name in ("active_file", "inactive_file"))
        return max(0, int(most) - int((folder / usage).read_text()) + cached)
    except (OSError, ValueError):
        return None


def _numbers(path: Path) -> dict[str, int]:
    pairs = (line.replace(":", " ").split() for line in path.read_text().splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1}


def num_bytes(tensors: Iterable[Tensor]) -> int:
    """Sum the sizes of tensors in bytes."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def human(size: float) -> str:
    """Format a number of bytes in the largest unit that fits."""
    size, unit = min(size, 10**300), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.1f} {unit}".replace(".0 ", " ")
