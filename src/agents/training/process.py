"""How a process that trains waits for its threads and keeps its memory.

Both are settled once per process, before torch is imported, and what a user has set stays.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

MEBIBYTE = 2**20

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT = {
    "MALLOC_TRIM_THRESHOLD_": (_M_TRIM_THRESHOLD, 1024 * MEBIBYTE),
    "MALLOC_TOP_PAD_": (_M_TOP_PAD, 16 * MEBIBYTE),
    "MALLOC_MMAP_THRESHOLD_": (_M_MMAP_THRESHOLD, 32 * MEBIBYTE),
}
"""Of glibc's allocator, by the variable that a user may set instead: freed memory that goes back to
the system, what is taken from it at once, and the size from which a request is the system's own
(32 MiB is the largest that it accepts)."""


def tune() -> None:
    """Let threads spin briefly, and let freed memory be used again.

    Threads that sleep at once train small networks at half the speed; those that spin on take the
    cores from whatever else runs (12 times slower with one busy core of two). A step of a large
    batch takes and frees the same megabytes each time: whether they went back to the system in
    between, to be fetched page by page again, was left to chance.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # of GNU's OpenMP, which torch brings on Linux
    _keep_freed_memory(name for name in _KEPT if not _is_set(name))


def _is_set(name: str) -> bool:
    """Whether the user has set it, by either of the two ways."""
    tunable = name.lower().rstrip("_").replace("malloc_", "glibc.malloc.")
    return name in os.environ or tunable in os.environ.get("GLIBC_TUNABLES", "")


def _keep_freed_memory(names: Iterable[str]) -> None:
    """Set these of glibc's allocator; others have no such function."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for name in names:
        mallopt(*_KEPT[name])
