"""The compiler of the numba kernels, and the functions that they share; imported with numba."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import logging
import os
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from numba.core import event
from torch import Tensor

from packing_env import folders
from packing_env.kernels.backends import compile_seconds
from packing_env.kernels.compiled.parts import PartCompiler
from packing_env.kernels.stability_rules import fingerprint

_MIN_PARALLEL_WORK = 4_000_000
"""Number of operations (taps times placements) below which threads cost more time than they save.
"""

INF = np.float32(np.inf)

_LOGGER = logging.getLogger("packing_env.kernels.compiler")


class _Announcement(event.Listener):
    """Listener that warns when kernels are compiled, and adds up the time.

    It warns once per cache folder and version of the kernels; without a cache, once per process.
    """

    logged = False
    cached = True
    depth = 0  # compilations are nested: a caller compiles the functions that it calls
    began = 0.0
    collects = True

    def on_start(self, event: Any) -> None:
        """Warn when a function is compiled that is not in a cache."""
        self.depth += 1
        if self.depth == 1:
            self.began, self.collects = time.perf_counter(), gc.isenabled()
            gc.disable()  # a compiler makes many objects; garbage collection would free few
        # Compilation of a user's functions raises the same event, but causes no warning.
        function = event.data["dispatcher"].py_func
        module = str(function.__module__)
        if module.startswith("packing_env.") and not self.logged:
            self.logged = True
            _LOGGER.log(
                logging.WARNING if not self.cached or _is_first() else logging.INFO,
                "compiling kernels for this machine, first %s.%s: half a minute or more, %s",
                module.removeprefix("packing_env."),
                function.__name__,
                "once; `packing warmup` compiles all kernels ahead of time"
                if self.cached
                else "in every process, because no cache folder can be used: set NUMBA_CACHE_DIR",
            )

    def on_end(self, event: Any) -> None:
        """Add the time of a compilation."""
        self.depth -= 1
        if self.depth == 0:
            compile_seconds(time.perf_counter() - self.began)
            if self.collects:
                gc.enable()


event.register("numba:compile", _Announcement())


_CONFIG: Any = numba.config
_PLACING = threading.Lock()
_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that Python calls; cache it on disk if a cache folder can be used."""
    compiled: Any = None
    with contextlib.suppress(RuntimeError), _cached():  # no folder can be written
        on_disk = {**_OPTIONS, "cache": True, "no_cfunc_wrapper": True}
        compiled = numba.njit(**on_disk)(function)
    if compiled is None:
        _Announcement.cached = False
        return numba.njit(**_OPTIONS)(function)
    # numba checks only the function's own file for changes; it would use stale code from other
    # files.
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if file is not None:  # none with NUMBA_DISABLE_JIT
        file._source_stamp = (file._source_stamp, source_stamp())
        file._load_index = partial(_read_index, file._load_index)
    return compiled


def _read_index(read: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """Return the index of cached machine code; an empty one if it cannot be read.

    The index names types by their modules, and numba reads it before it compares the stamp. In
    another version of this package, the types may have been in other modules.
    """
    try:
        return read()
    except (AttributeError, ImportError, EOFError, pickle.UnpicklingError):
        return {}


@contextlib.contextmanager
def _cached() -> Iterator[None]:
    """Let numba cache in the user's own folder, unless NUMBA_CACHE_DIR names another one.

    numba caches pickles, which can run code when they are read.

    Raises:
        RuntimeError: The folder cannot be used; the reason was logged.
    """
    # The user's choice comes first.
    if _CONFIG.CACHE_DIR:
        yield
        return
    place = cache_place()
    if place is None:
        raise RuntimeError("no folder for compiled kernels")
    with _PLACING:  # the setting is global: it also applies to functions of the user
        _CONFIG.CACHE_DIR = place
        try:
            yield
        finally:
            _CONFIG.CACHE_DIR = ""


@cache
def cache_place() -> str | None:
    """Return the folder of compiled kernels; warn and return None if it cannot be used."""
    try:
        place = folders.own("numba")
        if own := fingerprint():  # kernels without these rules stay valid in their own folder
            place = place / f"rules-{hashlib.sha256(own.encode()).hexdigest()[:16]}"
            place.mkdir(exist_ok=True)
        return str(place)
    except folders.FolderError as error:
        _LOGGER.warning("compiled kernels are not cached: %s (or set NUMBA_CACHE_DIR)", error)
        return None


def _is_first() -> bool:
    """Return True if no process has announced these kernels in this cache folder; record it."""
    folder = _CONFIG.CACHE_DIR or cache_place()
    try:
        # An empty file is the record; its name changes with the sources.
        Path(str(folder)).mkdir(parents=True, exist_ok=True)
        (Path(str(folder)) / f"announced-{source_stamp()[:16]}").touch(exist_ok=False)
    except FileExistsError:
        return False
    except OSError:
        return True
    return True


def source_stamp() -> str:
    """Return a hash of all files under ``kernels/`` and of the user's stability rules.

    Cached code with another hash is stale. A user may register a rule after some kernels were
    loaded, so the rules are read each time.
    """
    return hashlib.sha256(f"{_source_hash()}{fingerprint()}".encode()).hexdigest()


@cache
def _source_hash() -> str:
    digest = hashlib.sha256()
    folder = Path(__file__).parents[1]
    for file in sorted(folder.rglob("*.py")):
        digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    return digest.hexdigest()


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile a function that kernels call, with IEEE arithmetic as written.

    The function does not own its arguments: its callers do. It creates no arrays, and it does not
    count references to arrays. Each count is an atomic operation, and a state of twenty arrays
    needs many. It may return an array only if the array was an argument, and only to another such
    function.

    Python cannot call it, and it is cached only as a part of its kernel. A wrapper for Python and
    separate machine code would take long to compile.
    """
    return _compile(function, _nrt=False, **options)


def jit_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that kernels call and that creates arrays; otherwise as :func:`jit`.

    Only functions that count references may receive the arrays that it returns.
    """
    return _compile(function, _nrt=True)


def _compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(pipeline_class=PartCompiler, **_OPTIONS, **options)(function)


def jit_ordered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile like :func:`jit`, but ignore NaN and the sign of zero, so that minima use SIMD.

    Infinities keep their meaning. Use it only for functions that compare numbers.
    """
    return jit(function, fastmath={"nnan", "nsz"})


@jit_ordered
def extent(bottom):
    """Return the window cells (w, h) up to the last finite one and the minimum, or (0, 0, inf)."""
    # Read each row once; search for its last finite cell only if there is one.
    w, h, lowest = 0, 0, INF
    for u in range(bottom.shape[0]):
        row = INF
        for v in range(bottom.shape[1]):
            row = min(row, bottom[u, v])
        if row < INF:
            w = u + 1
            lowest = min(lowest, row)
            for v in range(bottom.shape[1] - 1, h - 1, -1):
                if bottom[u, v] < INF:
                    h = v + 1
                    break
    return w, h, lowest


@jit_ordered
def extent_of(bottom, size, which):
    """Return :func:`extent`, with (w, h) from ``size[which]`` if size [K, 2] has rows."""
    # For items of a catalogue the sizes are known.
    if not size.size:
        return extent(bottom)
    w, h = min(size[which, 0], bottom.shape[0]), min(size[which, 1], bottom.shape[1])
    if w <= 0 or h <= 0:
        return 0, 0, INF
    return w, h, lowest_in(bottom[:w, :h])


@jit_ordered
def lowest_in(cells):
    """Return the minimum of a surface [U, V]."""
    lowest = INF
    for u in range(cells.shape[0]):
        for v in range(cells.shape[1]):
            lowest = min(lowest, cells[u, v])
    return lowest


@jit_ordered
def lowest_of(values):
    """Return the minimum."""
    lowest = values[0]
    for i in range(values.size):
        lowest = min(lowest, values[i])
    return lowest


@jit
def sift(keys, size, at, key):
    """Insert a key into a max-heap of ``size`` entries, moving down from the empty entry ``at``."""
    while True:
        # The larger child moves up until the key fits.
        child = 2 * at + 1
        if child + 1 < size and keys[child + 1] > keys[child]:
            child += 1
        if child >= size or keys[child] <= key:
            break
        keys[at] = keys[child]
        at = child
    keys[at] = key


@jit_arrays
def tap_offsets(window_x, window_y, stride, xs, ys):
    """Return (at_row, at_column): at_row[u] + at_column[v] is where cell (u, v) begins to read."""
    at_row, at_column = np.empty(window_x, np.int64), np.empty(window_y, np.int64)
    for u in range(window_x):
        at_row[u] = (u % stride * stride * xs + u // stride) * ys
    for v in range(window_y):
        at_column[v] = v % stride * xs * ys + v // stride
    return at_row, at_column


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    """Return a pool of plain threads; kernels release the GIL and need no threading layer."""
    return ThreadPoolExecutor(count, thread_name_prefix="packing-kernels")


os.register_at_fork(after_in_child=_threads.cache_clear)


def run(
    kernel: Callable[..., None],
    arrays: tuple[Any, ...] | Callable[[int], tuple[Any, ...]],
    planes: int,
    work: int,
    keep: tuple[Any, ...] = (),
) -> None:
    """Call the kernel for all planes, with torch's number of threads if that is faster.

    Args:
        kernel: Function of the arrays, and of the first and the last plane.
        arrays: Its array arguments, or a function that returns them for the index of a thread.
        planes: Number of planes.
        work: Number of operations of all planes together.
        keep: Owners of memory that is passed to the kernel by address. Threads keep them alive
            until they are done, even if an interrupt ends the wait for the threads.
    """
    # A small amount of work runs in the caller's thread.
    count = min(torch.get_num_threads(), planes) if work >= _MIN_PARALLEL_WORK else 1
    if count <= 1:
        kernel(*(arrays(0) if callable(arrays) else arrays), 0, planes)
        return
    # Each thread gets consecutive planes; their numbers differ by at most one.
    edges = [planes * part // count for part in range(count + 1)]
    running = []
    for part, edge in enumerate(edges[:-1]):
        own = arrays(part) if callable(arrays) else arrays
        running.append(_threads(count).submit(_call, keep, kernel, *own, edge, edges[part + 1]))
    for future in running:
        future.result()


def _call(keep: tuple[Any, ...], kernel: Callable[..., None], *arguments: Any) -> None:
    kernel(*arguments)


def array(tensor: Tensor) -> Any:
    """Return the tensor as a contiguous NumPy array, which shares its memory if possible."""
    return tensor.detach().contiguous().numpy()
