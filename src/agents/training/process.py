"""Process-wide state: threads and allocator, stop signals, random generators.

:func:`tune` must run before torch is imported, so functions import torch themselves.
"""

from __future__ import annotations

import ctypes
import os
import random
import signal
import threading
import time
from collections.abc import Iterable, Mapping
from types import FrameType
from typing import Any

MEBIBYTE = 2**20

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_THRESHOLD = -1, -2, -3
_KEPT = {
    "MALLOC_TRIM_THRESHOLD_": (_M_TRIM_THRESHOLD, 1024 * MEBIBYTE),
    "MALLOC_TOP_PAD_": (_M_TOP_PAD, 16 * MEBIBYTE),
    "MALLOC_MMAP_THRESHOLD_": (_M_MMAP_THRESHOLD, 32 * MEBIBYTE),
}
"""Settings of glibc's allocator, by the environment variable that sets each: the amount of free
memory above which memory is returned to the system, the amount requested at once, and the size
above which a request is mapped separately (at most 32 MiB).
"""


def tune() -> None:
    """Let threads spin briefly, and let the allocator reuse freed memory.

    Call it once, before torch is imported; it keeps settings of the user. If threads sleep
    immediately, small networks train at half the speed. If threads keep spinning, training is 12
    times slower when another program uses one of two cores. Each step allocates and frees the same
    megabytes. If they were returned to the system, each step would fetch them again page by page.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")  # of GNU OpenMP, in torch on Linux
    _keep_freed_memory(name for name in _KEPT if not _is_set(name))


def _is_set(name: str) -> bool:
    """Return whether the user has set an option, by its variable or by ``GLIBC_TUNABLES``."""
    # glibc reads both forms.
    tunable = name.lower().rstrip("_").replace("malloc_", "glibc.malloc.")
    return name in os.environ or tunable in os.environ.get("GLIBC_TUNABLES", "")


def _keep_freed_memory(names: Iterable[str]) -> None:
    # Only glibc has this function.
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    for name in names:
        option, value = _KEPT[name]
        mallopt(option, value)


class StoppedError(RuntimeError):
    """A stop was requested before all the work was done."""


class StopSignals:
    """Context manager in which SIGINT and SIGTERM request a stop, and a second signal aborts.

    A signal within :attr:`echo` seconds after the first one is ignored, because launchers signal a
    process and then its group. The context manager works only in the main thread.
    """

    watched = (signal.SIGINT, signal.SIGTERM)
    echo = 0.5

    def __init__(self) -> None:
        self._received: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        # Python delivers signals to the main thread only.
        main = threading.current_thread() is threading.main_thread()
        for number in self.watched if main else ():
            self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        # The first signal is only recorded; the loop checks for it between two steps.
        now = time.monotonic()
        if self._received is None:
            self._received = now
        elif now - self._received > self.echo:
            # A second signal ends the process in the default way.
            for watched in self.watched:
                signal.signal(watched, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def requested(self) -> bool:
        """Return whether a signal has arrived."""
        return self._received is not None

    def __exit__(self, *error: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def seed_everything(seed: int) -> None:
    """Seed the global generators; the environment has its own random streams."""
    import numpy as np
    import torch

    # NumPy accepts seeds of 32 bits, torch of 64.
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed % 2**64)


def random_state() -> dict[str, Any]:
    """Return the global states of torch (every CUDA device included), NumPy and Python."""
    import numpy as np
    import torch

    # Checkpoints hold only tensors and numbers, so each generator's state is split into these.
    kind, numbers, index = random.getstate()
    _, keys, place, has_gauss, gauss = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": {
            "keys": torch.from_numpy(np.asarray(keys).astype(np.int64)),
            "place": int(place),
            "has_gauss": int(has_gauss),
            "gauss": float(gauss),
        },
        "python": {"kind": kind, "numbers": torch.tensor(numbers), "gauss": index},
    }


def load_random_state(state: Mapping[str, Any]) -> None:
    """Restore what :func:`random_state` returned; additional devices keep their own state."""
    import numpy as np
    import torch

    # A run may continue with fewer GPUs.
    torch.set_rng_state(state["torch"].cpu())
    if torch.cuda.is_available():
        for device, saved in enumerate(state["cuda"][: torch.cuda.device_count()]):
            torch.cuda.set_rng_state(saved.cpu(), device)
    # Reassemble the states of NumPy and Python.
    numpy, python = state["numpy"], state["python"]
    keys = numpy["keys"].cpu().numpy().astype(np.uint32)
    np.random.set_state(  # noqa: NPY002
        ("MT19937", keys, numpy["place"], numpy["has_gauss"], numpy["gauss"])
    )
    random.setstate((python["kind"], tuple(python["numbers"].tolist()), python["gauss"]))
