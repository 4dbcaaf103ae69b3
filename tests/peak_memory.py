"""The peak of a call's resident memory, without the memory held before."""

import ctypes
import platform
import sys
from collections.abc import Callable
from pathlib import Path

_STATUS = Path("/proc/self/status")
_RESET = Path("/proc/self/clear_refs")


def peak_bytes(work: Callable[[], object]) -> int | None:
    """Return the peak of the resident set, or None if the system does not report it."""
    try:
        if sys.platform == "linux" and platform.libc_ver()[0] == "glibc":
            ctypes.CDLL(None).malloc_trim(0)  # the call would otherwise reuse free memory unseen
        _RESET.write_text("5")  # resets the high-water mark, see proc(5)
        before = _resident("VmRSS")
        work()
        return max(0, _resident("VmHWM") - before)
    except OSError:
        return None


def _resident(field: str) -> int:
    lines = _STATUS.read_text(encoding="utf-8").splitlines()
    line = next(line for line in lines if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024
