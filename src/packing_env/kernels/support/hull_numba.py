"""Hulls of the supporting cells of all placements, compiled for the CPU with numba.

A hull contains a rectangle iff it extends at least as far as the rectangle in every direction. A
vectorised pass over all placements collects two bits for each of 16 directions. The first says
whether some supporting cell has a corner at least as far along the direction as the rectangle. The
second says whether a single corner is far enough along both this direction and the next. If a
direction lacks the first bit, the placement is not stable. If all directions have the second bit,
it is stable: a corner that is far enough along two neighbouring directions is also far enough along
all directions between them. Only the remaining placements are examined one by one. A point is a
rectangle with sides 0.
"""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.compiled.jit import array, extent, jit, jit_arrays, kernel, run
from packing_env.kernels.compiled.stable import find_support, holds
from packing_env.kernels.drop.numba import new_phases, read_phases, surface_of, surfaces
from packing_env.kernels.layout import HALF_CELL, SUBCELL
from packing_env.kernels.support.cells_numba import (
    BLOCK,
    finite_range,
    gatherer,
    new_cells,
    work_of,
)

_QUARTER = [(1, 0), (12, 5), (1, 1), (5, 12)]
_HALF_TURN = [*_QUARTER, *((-along, across) for across, along in _QUARTER)]
_DIRECTIONS = [*_HALF_TURN, *((-across, -along) for across, along in _HALF_TURN)]
_COUNT = len(_DIRECTIONS)
_ACROSS, _ALONG = np.array(_DIRECTIONS, np.int32).T.copy()
"""Directions in their order around a point, as integers, so that distances along them are exact."""

_BIT = np.uint32(1) << np.arange(_COUNT, dtype=np.uint32)

_FAR = np.uint32(0x0000FFFF)
"""First bits: a corner is far enough along the direction."""

_FARTHER = np.uint32(0xFFFF0000)
"""Second bits: one corner is far enough along the direction and the next one."""

Hull = namedtuple("Hull", "cells corners bits least combined edges")
"""Scratch memory of `hull_plane`.

Attributes:
    cells: `cells_numba.Cells`.
    corners: Bits of each corner of the window's grid.
    bits: Bits of each cell of the window.
    least: Per direction, the smallest distance that is far enough.
    combined: Bits of the placements of a block.
    edges: Supporting cells of one placement, see `compiled.stable`.
"""


@jit
def _join(combined, bits):
    return np.uint32(combined | bits)


_gather_bits = gatherer(_join)


@jit
def _corner_bits(com, margin, inset, least, bits):
    """Set bits[a, c] for corner (a, c) of the grid, shifted by `inset` 1/64 cells."""
    for a in range(bits.shape[0]):
        # 1. The distance that is far enough along each direction, for the corners of this line.
        dx = SUBCELL * a + inset - com[0]
        for k in range(_COUNT):
            across, along = _ACROSS[k], _ALONG[k]
            away = abs(across) * margin[0] + abs(along) * margin[1]
            least[k] = away - across * dx - along * (inset - com[1])
        # 2. Set the first bit of each direction in which a corner is far enough, and the second bit
        # if it is far enough in the next direction, too.
        for c in range(bits.shape[1]):
            far, y = np.uint32(0), np.int32(SUBCELL * c)
            for k in range(_COUNT):
                far |= _BIT[k] if _ALONG[k] * y >= least[k] else np.uint32(0)
            both = far & np.uint32(far >> 1 | far << (_COUNT - 1))
            bits[a, c] = far | np.uint32(both << _COUNT)


@jit
def _cell_bits(corners, span, bits):
    """Set the bits of each cell to the combined bits of its corners, ``span`` cells apart."""
    for u in range(bits.shape[0]):
        near, far = corners[u], corners[u + span]
        for v in range(bits.shape[1]):
            bits[u, v] = near[v] | near[v + span] | far[v] | far[v + span]


@jit
def _holds_corners(ground, bottom, bar, com, margin, centres, edges):
    """Return True if the supporting cells of one placement contain the corners of a rectangle."""
    # Find the supporting cells once, for all corners.
    find_support(ground, bottom, 0, 0, bar, edges)
    for i in range(-1, 2, 2):
        for j in range(-1, 2, 2):
            point = (com[0] + i * margin[0], com[1] + j * margin[1])
            if not holds(edges, point, centres):
                return False
            # A point stands for all four corners.
            if margin[0] == 0 and margin[1] == 0:
                return True
    return True


@jit
def _hull_plane(stable, z, bottom, point, heightmap, ground, work, task):
    """Fill ``stable`` [X', Y'] for one orientation; return whether any placement is stable.

    ``point`` holds the centre of mass and its margin, ``ground`` is a `drop.numba.Phases`, and
    ``work`` is a `Hull`.
    """
    com, margin = point
    tolerance, stride, centres = task
    inset, span = (HALF_CELL, 0) if centres else (0, 1)
    ys, flat, threshold = z.shape[1], stable.reshape(stable.size), work.cells.threshold
    first, last = finite_range(z.reshape(z.size), tolerance, threshold, flat)
    if first == last:
        return False
    # 1. Compute the bits of the window's cells.
    w, h, _ = extent(bottom)
    cells, bits = bottom[:w, :h], work.bits[:w, :h]
    corners, edges = work.corners[: w + span, : h + span], work.edges[:, : w + 2]
    _corner_bits(com, margin, inset, work.least, corners)
    _cell_bits(corners, span, bits)
    any_held = False
    for begin in range(first, last, BLOCK):
        # 2. Combine the bits of the supporting cells, for a block of placements.
        end = min(last, begin + BLOCK)
        combined = work.combined[: end - begin]
        combined[:] = 0
        _gather_bits(combined, (begin, end), (stride, ys), cells, bits, _FAR, ground, work.cells)
        # 3. Examine the undecided placements one by one.
        for i in range(end - begin):
            held = combined[i] & _FARTHER == _FARTHER
            if not held and combined[i] & _FAR == _FAR:
                x, y = (begin + i) // ys * stride, (begin + i) % ys * stride
                under, bar = heightmap[x : x + w, y : y + h], threshold[begin + i]
                held = _holds_corners(under, cells, bar, com, margin, centres, edges)
            flat[begin + i] = held
            any_held |= held
    return any_held


@jit_arrays
def _new_hull(length, width, window_x, window_y, stride):
    return Hull(
        cells=new_cells(length, width, window_x, window_y, stride),
        corners=np.empty((window_x + 1, window_y + 1), np.uint32),
        bits=np.empty((window_x, window_y), np.uint32),
        least=np.empty(_COUNT, np.int32),
        combined=np.empty(BLOCK, np.uint32),
        edges=np.empty((2, window_x + 2), np.float64),
    )


@kernel
def _tiered_hull(arrays, task, stable, items, start, stop):
    """Fill ``stable`` for the items start <= b * items + l < stop.

    Args:
        arrays: heightmap, bottom, which (as in `drop.numba`), z, com and margin
            ``[B, R, tiers, 2]``.
        task: tolerance, stride, and whether the hull is the hull of the cells' centres.
        stable: ``[B, R, X', Y']``.
        items: items of a row, which share its orientations.
        start: first item.
        stop: end of the items.
    """
    heightmap, bottom, which, z, com, margin = arrays
    _, stride, _ = task
    _, length, width = heightmap.shape
    surfaces, window_x, window_y = bottom.shape
    orientations, turned = z.shape[1], z.shape[1] // items
    ground = new_phases(length, width, stride)
    work = _new_hull(length, width, window_x, window_y, stride)
    current = -1
    for item in range(start, stop):
        b, first = item // items, item % items * turned
        if b != current:
            current = b
            read_phases(heightmap[b], stride, ground)
        # The first margin that gives the item a placement decides.
        for tier in range(margin.shape[2]):
            any_held = False
            for r in range(first, first + turned):
                chosen = surface_of(which, b, r, orientations, surfaces)
                if chosen < 0:
                    stable[b, r] = False
                    continue
                point = (com[b, r], margin[b, r, tier])
                any_held |= _hull_plane(
                    stable[b, r], z[b, r], bottom[chosen], point, heightmap[b], ground, work, task
                )
            if any_held:
                break


def _judge(scene: tuple[Any, ...], margin: Tensor, task: tuple[Any, ...], items: int) -> Tensor:
    """Return the stable placements of each item by the first margin that leaves it a placement.

    ``scene`` is heightmap, lower surfaces, `which`, z and com.
    """
    heightmap, bottom, which, z, com = scene
    stable = z.new_empty(z.shape, dtype=torch.bool)
    arrays = (array(heightmap), *surfaces(bottom, which), array(z), array(com), array(margin))
    arguments = (arrays, task, stable.numpy(), items)
    run(_tiered_hull, arguments, z.shape[0] * items, work_of(z, bottom))
    return stable


def com_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    tolerance: float,
    stride: int,
    centres: bool,
    which: Tensor | None = None,
    size: Tensor | None = None,
    margin: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.com_hull`."""
    margins = (torch.zeros_like(com) if margin is None else margin)[:, :, None]
    task = (np.float32(tolerance), stride, centres)
    return _judge((heightmap, bottom, which, z, com), margins, task, z.shape[1])


def tiered_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    margin: Tensor,
    tolerance: float,
    stride: int,
    items: int,
    which: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.tiered_hull`."""
    task = (np.float32(tolerance), stride, False)
    return _judge((heightmap, bottom, which, z, com), margin, task, items)
