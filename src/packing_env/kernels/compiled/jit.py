"""The compiler of the numba kernels, and functions that they share; imported with the first one."""

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

_MIN_PARALLEL_WORK = 4_000_000
"""Taps times placements below which threads cost more than they save."""

INF = np.float32(np.inf)

_LOGGER = logging.getLogger("packing_env.kernels.compiler")


class _Announcement(event.Listener):
    """Warns once per process that kernels are being compiled, and adds up how long it takes."""

    logged = False
    cached = True
    depth = 0  # functions are compiled for those that call them
    began = 0.0
    collects = True

    def on_start(self, event: Any) -> None:
        """Warn when a function is compiled that no cache holds."""
        self.depth += 1
        if self.depth == 1:
            self.began, self.collects = time.perf_counter(), gc.isenabled()
            gc.disable()  # a compiler makes many objects, which collections only walk over
        # Functions of the user are compiled with the same event, without a notice.
        module = str(event.data["dispatcher"].py_func.__module__)
        if module.startswith("packing_env.") and not self.logged:
            self.logged = True
            _LOGGER.warning(
                "compiling kernels for this machine: half a minute or more, %s",
                "once; `packing warmup` compiles all of them ahead of time"
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
    """Compile for Python to call, cached on disk where a cache folder can be used."""
    compiled: Any = None
    with contextlib.suppress(RuntimeError), _cached():  # no folder can be written
        on_disk = {**_OPTIONS, "cache": True, "no_cfunc_wrapper": True}
        compiled = numba.njit(**on_disk)(function)
    if compiled is None:
        _Announcement.cached = False
        return numba.njit(**_OPTIONS)(function)
    # numba watches the function's own file alone, and would keep stale code of the others.
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if file is not None:  # NUMBA_DISABLE_JIT leaves none
        file._source_stamp = (file._source_stamp, source_stamp())
        file._load_index = partial(_read_index, file._load_index)
    return compiled


def _read_index(read: Callable[[], dict[Any, Any]]) -> dict[Any, Any]:
    """Return the index of cached machine code, empty where it cannot be read.

    It names types by their modules, and numba reads it before it compares the stamp: another
    version of this package may have had them elsewhere.
    """
    try:
        return read()
    except (AttributeError, ImportError, EOFError, pickle.UnpicklingError):
        return {}


@contextlib.contextmanager
def _cached() -> Iterator[None]:
    """Let numba cache in the user's own folder, unless NUMBA_CACHE_DIR names another one.

    What numba caches is pickled, and runs when it is read.

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
    with _PLACING:  # the setting is one of the process, for functions of the user too
        _CONFIG.CACHE_DIR = place
        try:
            yield
        finally:
            _CONFIG.CACHE_DIR = ""


@cache
def cache_place() -> str | None:
    """Return the folder of compiled kernels; None, with a warning, where it cannot be used."""
    try:
        return str(folders.own("numba"))
    except folders.FolderError as error:
        _LOGGER.warning("compiled kernels are not kept: %s (or NUMBA_CACHE_DIR)", error)
        return None


@cache
def source_stamp() -> str:
    """Return a hash of all files under ``kernels/``: a change makes cached machine code stale."""
    found = hashlib.sha256()
    folder = Path(__file__).parents[1]
    for file in sorted(folder.rglob("*.py")):
        found.update(str(file.relative_to(folder)).encode() + file.read_bytes())
    return found.hexdigest()


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile for kernels to call, with IEEE arithmetic as written.

    Its arguments belong to its callers. It makes no array and counts no references to one: each
    count is atomic, and a state of twenty arrays has many. It may return an array only if that was
    an argument, and only to another such function.

    Python cannot call it, and only the cache of its kernel holds it: a wrapper for Python, and
    machine code of its own, would take long to compile.
    """
    return _compile(function, _nrt=False, **options)


def jit_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile for kernels to call, as :func:`jit`, a function that makes arrays.

    The arrays that it returns go to functions that count references.
    """
    return _compile(function, _nrt=True)


def _compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(pipeline_class=PartCompiler, **_OPTIONS, **options)(function)


def jit_ordered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile as :func:`jit`, without NaN and without the sign of zero, so that minima use SIMD.

    Infinities keep their meaning, so only comparisons may be done here.
    """
    return jit(function, fastmath={"nnan", "nsz"})


@jit
def split_phases(heightmap, stride, phases):
    """Set phases[p, q, i, j] = heightmap[stride * i + p, stride * j + q]."""
    length, width = heightmap.shape
    # Neighbours of a lattice step lie side by side, so that loops over them are vectors.
    for p in range(stride):
        for q in range(stride):
            for i in range((length - p + stride - 1) // stride):
                for j in range((width - q + stride - 1) // stride):
                    phases[p, q, i, j] = heightmap[stride * i + p, stride * j + q]


@jit_ordered
def extent(bottom):
    """Return the window cells (w, h) up to the last finite one, and the minimum, or (0, 0, inf)."""
    # Rows are read once; the last finite cell is sought only in rows that have one.
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
    """Return :func:`extent`, from row ``which`` of size [K, 2], or found where size has no rows."""
    # Sizes are known for items of a catalogue.
    if not size.size:
        return extent(bottom)
    w, h = min(size[which, 0], bottom.shape[0]), min(size[which, 1], bottom.shape[1])
    if w <= 0 or h <= 0:
        return 0, 0, INF
    lowest = INF
    for u in range(w):
        for v in range(h):
            lowest = min(lowest, bottom[u, v])
    return w, h, lowest


@jit_ordered
def lowest_of(values):
    """Return the minimum."""
    lowest = values[0]
    for i in range(values.size):
        lowest = min(lowest, values[i])
    return lowest


@jit_ordered
def row_maxima(heightmap, ridge):
    """Fill ridge with the maximum of each row; return the minimum and the maximum of all."""
    lowest, highest = INF, -INF
    for x in range(heightmap.shape[0]):
        low, high = INF, -INF
        for y in range(heightmap.shape[1]):
            low = min(low, heightmap[x, y])
            high = max(high, heightmap[x, y])
        ridge[x] = high
        lowest, highest = min(lowest, low), max(highest, high)
    return lowest, highest


@jit_arrays
def tap_offsets(window_x, window_y, stride, xs, ys):
    """Return offsets: window cell (u, v) reads the phases from at_row[u] + at_column[v] on."""
    at_row, at_column = np.empty(window_x, np.int64), np.empty(window_y, np.int64)
    for u in range(window_x):
        at_row[u] = (u % stride * stride * xs + u // stride) * ys
    for v in range(window_y):
        at_column[v] = v % stride * xs * ys + v // stride
    return at_row, at_column


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    """Return plain threads: the kernels release the GIL, and no numba threading layer is used."""
    return ThreadPoolExecutor(count, thread_name_prefix="packing-kernels")


os.register_at_fork(after_in_child=_threads.cache_clear)


def run(
    kernel: Callable[..., None],
    arrays: tuple[Any, ...] | Callable[[int], tuple[Any, ...]],
    planes: int,
    work: int,
    keep: tuple[Any, ...] = (),
) -> None:
    """Call the kernel for all planes, on torch's number of threads where it pays.

    Args:
        kernel: Takes the arrays, and the first and the last plane.
        arrays: Its arguments, or a function of the thread's number that returns them.
        planes: Parts of the work.
        work: Operations of all planes.
        keep: Owners of memory that the kernel knows by its address alone. Threads hold them until
            they are done, even where an interrupt no longer waits for them.
    """
    # Few operations run at once, in the thread of the caller.
    count = min(torch.get_num_threads(), planes) if work >= _MIN_PARALLEL_WORK else 1
    if count <= 1:
        kernel(*(arrays(0) if callable(arrays) else arrays), 0, planes)
        return
    # Consecutive planes for each thread, as equal in number as possible.
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
    """Return the tensor as a contiguous NumPy array, sharing its memory if it can."""
    return tensor.detach().contiguous().numpy()
