"""What the kernels compiled with numba share; imported only when one of them is first used."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from numba.core import cgutils, event, types
from numba.extending import intrinsic
from torch import Tensor

_MIN_PARALLEL_WORK = 4_000_000
"""Taps times placements below which threads cost more than they save."""

INF = np.float32(np.inf)

_LOGGER = logging.getLogger("packing_env.kernels.compiler")


class _Announcement(event.Listener):
    """Says, once, that there is something to wait for."""

    said = False

    def on_start(self, event: Any) -> None:
        """Something is compiled that no cache holds."""
        module = str(event.data["dispatcher"].py_func.__module__)
        if module.startswith("packing_env.") and not self.said:
            self.said = True
            _LOGGER.info("compiling kernels for this machine: about a minute, once")

    def on_end(self, event: Any) -> None:
        """It is done."""


event.register("numba:compile", _Announcement())  # type: ignore[no-untyped-call]


_OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile for Python to call, cached on disk where a cache directory is writable."""
    try:
        compiled: Any = numba.njit(cache=True, **_OPTIONS)(function)
    except RuntimeError:  # no writable cache directory
        return numba.njit(**_OPTIONS)(function)
    # numba looks at the function's own file alone, and would go on with old versions of the rest.
    file = getattr(getattr(compiled, "_cache", None), "_cache_file", None)
    if file is not None:  # NUMBA_DISABLE_JIT leaves none
        file._source_stamp = (file._source_stamp, source_stamp())
    return compiled


@cache
def source_stamp() -> str:
    """Another one after any change to the files of this folder: what is cached is old then."""
    found = hashlib.sha256()
    for file in sorted(Path(__file__).parents[1].rglob("*.py")):
        found.update(file.name.encode() + file.read_bytes())
    return found.hexdigest()


def jit(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """Compile for kernels to call, with IEEE arithmetic as written.

    What it is given belongs to its callers. It makes no array and counts no references to one:
    each count is atomic, and a state of twenty arrays has many. An array that it returns was given
    to it, and only another such function may take it.

    Python cannot call it, and no cache holds it but its kernel's: reading what Python gives, and
    machine code of its own, would take long to compile.
    """
    return _compile(function, _nrt=False, **options)


def jit_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Likewise for what makes arrays; those it returns go to what counts references."""
    return _compile(function, _nrt=True)


def _compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    options |= {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(**_OPTIONS, **options)(function)


def jit_ordered(function: Callable[..., Any]) -> Callable[..., Any]:
    """Likewise for numbers without NaN and without the sign of zero, as minima need to use SIMD.

    Infinities keep their meaning, so only comparisons may be done here.
    """
    return jit(function, fastmath={"nnan", "nsz"})


@jit
def split_phases(heightmap, stride, phases):  # type: ignore[no-untyped-def]
    """phases[p, q, i, j] = heightmap[stride * i + p, stride * j + q]."""
    length, width = heightmap.shape
    for p in range(stride):
        for q in range(stride):
            for i in range((length - p + stride - 1) // stride):
                for j in range((width - q + stride - 1) // stride):
                    phases[p, q, i, j] = heightmap[stride * i + p, stride * j + q]


@jit_ordered
def extent(bottom):  # type: ignore[no-untyped-def]
    """Window cells (w, h) up to the last finite one, and the minimum; (0, 0, inf) if none."""
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
def extent_of(bottom, size, which):  # type: ignore[no-untyped-def]
    """The same, as size [K, 2] says of the surface of this number, or found where it has no row."""
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
def lowest_of(values):  # type: ignore[no-untyped-def]
    """Minimum."""
    lowest = values[0]
    for i in range(values.size):
        lowest = min(lowest, values[i])
    return lowest


@jit_ordered
def row_maxima(heightmap, ridge):  # type: ignore[no-untyped-def]
    """Fill ridge with the maximum of each row; returns the minimum and the maximum of all."""
    lowest, highest = INF, -INF
    for x in range(heightmap.shape[0]):
        low, high = INF, -INF
        for y in range(heightmap.shape[1]):
            low = min(low, heightmap[x, y])
            high = max(high, heightmap[x, y])
        ridge[x] = high
        lowest, highest = min(lowest, low), max(highest, high)
    return lowest, highest


@jit
def tap_offsets(stride, xs, ys, at_row, at_column):  # type: ignore[no-untyped-def]
    """Cell (u, v) of a window reads its phase of the heightmap from at_row[u] + at_column[v] on."""
    for u in range(at_row.size):
        at_row[u] = (u % stride * stride * xs + u // stride) * ys
    for v in range(at_column.size):
        at_column[v] = v % stride * xs * ys + v // stride


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    """Plain threads: the kernels release the GIL, and no numba threading layer is involved."""
    return ThreadPoolExecutor(count, thread_name_prefix="packing-kernels")


os.register_at_fork(after_in_child=_threads.cache_clear)


def run(
    kernel: Callable[..., None],
    arrays: tuple[Any, ...],
    planes: int,
    work: int,
    keep: tuple[Any, ...] = (),
) -> None:
    """Call the kernel for all orientations, on torch's number of threads where it pays.

    ``keep`` is what the kernel knows by its address alone: threads hold on to it until they are
    done, even where an interrupt no longer waits for them.
    """
    count = min(torch.get_num_threads(), planes) if work >= _MIN_PARALLEL_WORK else 1
    if count <= 1:
        kernel(*arrays, 0, planes)
        return
    edges = [planes * part // count for part in range(count + 1)]
    parts = [
        _threads(count).submit(_call, keep, kernel, *arrays, edge, edges[part + 1])
        for part, edge in enumerate(edges[:-1])
    ]
    for part in parts:
        part.result()


def _call(keep: tuple[Any, ...], kernel: Callable[..., None], *arguments: Any) -> None:
    kernel(*arguments)


@intrinsic
def _pointer(context, address):  # type: ignore[no-untyped-def]
    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.voidptr(address), generate


@jit_arrays
def array_at(address, shape, dtype):  # type: ignore[no-untyped-def]
    """The array that lies there, contiguous; whoever gave the address keeps it alive."""
    return numba.carray(_pointer(address), shape, dtype)  # type: ignore[attr-defined,call-arg]


def addresses_of(tensors: Iterable[Tensor]) -> np.ndarray:
    """Where contiguous tensors lie, 0 for those without entries.

    That costs a tenth of arrays that share the memory, and in steps of few rows it shows.
    """
    return np.array([tensor.data_ptr() for tensor in tensors])


def array(tensor: Tensor) -> Any:
    """The tensor's memory as NumPy sees it, contiguous."""
    return tensor.detach().contiguous().numpy()
