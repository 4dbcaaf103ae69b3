"""Drop-height maps on a CPU without numba: many cells of the lower surface in one NumPy call.

The lattice phases of the heightmap are split apart, with the map's own row pitch Y', so that one
cell of the lower surface, a *tap*, is the same shift for all placements of an orientation. The taps
of one phase lie on a grid: a strided view holds the cells that each of them reads, without a copy.
A block of taps is subtracted into scratch, whose maximum over the taps raises the map. Lanes beyond
the last y of a row compute values that are not read.

Only the rectangle up to an orientation's last finite cell is computed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from jaxtyping import Float
from torch import Tensor

from packing_env.kernels.layout import lattice_shape, surface_sizes

_BLOCK = 250_000
"""Taps times placements of a block: few calls, and a megabyte of scratch."""

_BUFFER = 8192
"""Elements of the buffer that NumPy has unless told otherwise."""

Scratch = tuple[np.ndarray, np.ndarray]
"""Buffers for the gaps of a block, and for each placement's maximum over them."""


def drop_height(
    heightmap: Float[Tensor, "B X Y"], bottom: Float[Tensor, "B R U V"], stride: int
) -> Float[Tensor, "B R Xs Ys"]:
    """Carry out `packing_env.kernels.drop_height`."""
    z = heightmap.new_empty(lattice_shape(heightmap, bottom, stride))
    _, length, width = heightmap.shape
    xs, ys = z.shape[2:]
    phases = np.zeros((stride, stride, xs, ys), np.float32)
    row = -(-min(bottom.shape[3], width) // stride) * ys
    scratch = np.empty(max(_BLOCK, row), np.float32), np.empty(xs * ys, np.float32)
    # Sizes become Python numbers here alone: these tensors are on the host, no device waits.
    sizes = surface_sizes(bottom).tolist()
    arrays = (tensor.detach().numpy() for tensor in (heightmap, bottom, z))
    with _settings():
        for heights, surfaces, maps, extents in zip(*arrays, sizes, strict=True):
            _split_phases(heights, phases)
            for (w, h), surface, plane in zip(extents, surfaces, maps, strict=True):
                if w == 0 or w > length or h > width:
                    plane[:] = np.inf
                    continue
                nx, ny = (length - w) // stride + 1, (width - h) // stride + 1
                _fill_plane(plane, phases, surface[:w, :h], (nx, ny), scratch)
                plane[nx:] = np.inf
                plane[:nx, ny:] = np.inf
    return z


@contextmanager
def _settings() -> Iterator[None]:
    """Let overflow pass silently, as in torch, and restore NumPy's settings afterwards."""
    buffer = np.getbufsize()
    try:
        with np.errstate(over="ignore", invalid="ignore"):
            yield
    finally:
        np.setbufsize(buffer)


def _split_phases(
    heightmap: Float[np.ndarray, "X Y"], phases: Float[np.ndarray, "stride stride Xs Ys"]
) -> None:
    """Set phases[p, q, i, j] = heightmap[stride * i + p, stride * j + q], where that is a cell."""
    stride = len(phases)
    for p in range(stride):
        for q in range(stride):
            cells = heightmap[p::stride, q::stride]
            phases[p, q, : cells.shape[0], : cells.shape[1]] = cells


def _fill_plane(
    z: Float[np.ndarray, "Xs Ys"],
    phases: Float[np.ndarray, "stride stride Xs Ys"],
    bottom: Float[np.ndarray, "w h"],
    steps: tuple[int, int],
    scratch: Scratch,
) -> None:
    """Fill z[:nx, :ny], steps (nx, ny), with the maxima over a rectangle; the rest is undefined.

    In strips of rows of placements, so that a block can hold a row of taps.
    """
    (nx, ny), (w, h), stride, ys = steps, bottom.shape, len(phases), z.shape[1]
    rows = max(1, _BLOCK // (-(-h // stride) * ys))
    for x in range(0, nx, rows):
        lanes = z.reshape(-1)[x * ys : (min(x + rows, nx) - 1) * ys + ny]
        lanes.fill(-np.inf)
        # NumPy copies operands into its buffer where a run of lanes fits, which takes longer than
        # the arithmetic. So the buffer is smaller than that: a multiple of 16, as it has to be.
        np.setbufsize(min(_BUFFER, max(16, (lanes.size - 1) // 16 * 16)))
        for p in range(min(stride, w)):
            for q in range(min(stride, h)):
                taps = bottom[p::stride, q::stride, None]
                _raise_lanes(lanes, phases[p, q, x:], taps, scratch)


def _raise_lanes(
    lanes: Float[np.ndarray, " L"],
    ground: Float[np.ndarray, "rows Ys"],
    taps: Float[np.ndarray, "u v 1"],
    scratch: Scratch,
) -> None:
    """Raise lanes to the maximum of ground - taps; lane 0 of tap (0, 0) reads ground[0, 0]."""
    rows, columns, _ = taps.shape
    (pitch, cell), size = ground.strides, lanes.size
    gaps, highest = scratch[0], scratch[1][:size]
    step = max(1, _BLOCK // (columns * size))
    for u in range(0, rows, step):
        block = taps[u : u + step]
        count, shape = len(block) * columns, (len(block), columns, size)
        shifted = np.ndarray(shape, np.float32, ground, u * pitch, (pitch, cell, cell))
        buffer = gaps[: count * size]
        np.subtract(shifted, block, out=buffer.reshape(shape))
        np.maximum.reduce(buffer.reshape(count, size), axis=0, out=highest)
        np.maximum(lanes, highest, out=lanes)
