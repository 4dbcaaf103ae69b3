"""The parts of a nest as voxels of one size, and the container that holds them."""

from __future__ import annotations

import copy
import itertools
import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from packing_env.items.meshes.mesh import Mesh
from packing_env.items.voxels import Voxels, voxelize
from packing_env.kernels.nests.bits_numba import PADDING, STRIP, Filled, occupy
from packing_env.kernels.nests.depths_numba import spread_distances
from packing_env.kernels.nests.overlaps_numba import Shapes
from packing_env.memory import check_memory
from packing_env.nesting.bits import from_bits, to_bits, to_runs, words_for

Array = np.ndarray
EXACT = 4e-10
"""Metres; lengths that differ by less are equal."""
LEAST_COARSE = 4
"""Smallest side of a container in coarse voxels; a smaller container has only fine voxels."""
PLANES = 20
"""Number of planes of voxels on which an overlap is estimated, for a part of median length."""
TABULATED, TABULATED_ROWS = 2**26, 64
"""Largest number of entries of the tables of depths, of which each takes three bytes, and of turned
parts; without tables, overlaps are counted when needed."""
DEEPEST = 254
"""Largest depth in a table, in its unit, before it is rounded up."""
_WHOLE = 1e-9
"""A rotation is a turn of the axes if each of its entries is closer than this to -1, 0 or 1."""
Voxelizer = Callable[[float, float, Array], Sequence[Voxels | None]]
"""Function of the side of a voxel, a margin and a room ``[3]``, in metres. It returns a part in
each rotation; None where it is larger than the room: see `packing_env.items.voxels.voxelize`."""


def as_given(occupied: Array) -> Voxelizer:
    """Return the function for a part that is given as voxels, ``[U, V, H]``, and is not turned."""
    voxels = Voxels(torch.as_tensor(occupied), torch.zeros(3, dtype=torch.float64))
    return lambda cell, margin, room: [voxels]


@dataclass(frozen=True, eq=False)
class MeshPart:
    """A solid and the rotations in which it may be placed.

    Attributes:
        mesh: The solid.
        rotations: ``[R, 3, 3]`` float64.
    """

    mesh: Mesh
    rotations: Array

    @property
    def volume(self) -> float:
        """Volume in m^3."""
        return self.mesh.volume

    def sides(self, rotation: Array) -> Array:
        """Return the sides ``[3]`` of the box around the turned solid, in metres."""
        points = self.mesh.vertices.numpy() @ rotation.T
        return np.asarray(points.max(0) - points.min(0))

    def fits(self, rotation: Array, room: Array) -> bool:
        """Return whether the solid is not longer than ``room [3]`` along any axis."""
        return bool((self.sides(rotation) <= room + EXACT).all())

    def voxels(self, cell: float, margin: float, room: Array) -> list[Voxels | None]:
        """Return the voxels of each rotation; turns of the axes share one computation."""
        computed: dict[bytes, tuple[Array, Voxels]] = {}
        turned: list[Voxels | None] = []
        for rotation in self.rotations:
            if not self.fits(rotation, room - 2 * margin):
                turned.append(None)
                continue
            # Two rotations that differ by a turn of the axes have equal rows of absolute values.
            rows = np.abs(rotation).round(9)
            key = np.ascontiguousarray(rows[np.lexsort(rows.T)]).tobytes()
            for of, voxels in [computed[key]] if key in computed else []:
                turn = rotation @ of.T
                if np.abs(turn - turn.round()).max() < _WHOLE:
                    turned.append(turn_voxels(voxels, torch.as_tensor(turn.round()), cell))
                    break
            else:
                first = voxelize(self.mesh, cell, margin, torch.as_tensor(rotation))
                computed.setdefault(key, (rotation, first))
                turned.append(first)
        return turned


def turn_voxels(voxels: Voxels, turn: Tensor, cell: float) -> Voxels:
    """Turn voxels by a rotation whose entries are -1, 0 and 1."""
    axes = turn.abs().argmax(1).tolist()
    mirrored = [k for k in range(3) if turn[k, axes[k]] < 0]
    high = voxels.low + voxels.low.new_tensor(voxels.occupied.shape) * cell
    low = torch.minimum(turn @ voxels.low, turn @ high)
    return Voxels(voxels.occupied.permute(axes).flip(mirrored), low)


@dataclass(frozen=True, eq=False)
class Room:
    """A container, in metres.

    Attributes:
        size: ``[3]`` inner sides.
        clearance: Distance between parts.
        walls: Distance between parts and walls.
        keep_outs: Lower and upper corners ``[3]`` of cuboids that stay empty.
    """

    size: Array
    clearance: float = 0.0
    walls: float = 0.0
    keep_outs: Sequence[tuple[Array, Array]] = ()


def usable_cores() -> int:
    """Return how many cores this process may use."""
    usable = getattr(os, "sched_getaffinity", None)  # Linux only
    return len(usable(0)) if usable else os.cpu_count() or 1


class Level:
    """Parts, each in its rotations, and a container as voxels of one size.

    The voxels of a part contain a margin of half the clearance around it. The voxels of the
    container begin where this margin may begin, so parts keep their distance from the walls.

    Attributes:
        cell: Side of a voxel, metres.
        container: ``[3]`` int64, in voxels.
        shapes: The turned parts as bits, for compiled functions. The last part is the room that
            stays empty; it has one row and is as large as the container.
        rows: For each part, the rows of its rotations that fit into the container.
        runs: The runs of each row, for `packing_env.kernels.nests.bits_numba.best_place`.
        coarse: Whether the voxels were joined by :meth:`coarser`.
    """

    coarse = False

    def __init__(self, parts: Sequence[Voxelizer], room: Room, cell: float) -> None:
        self.cell, margin = cell, room.clearance / 2
        self._origin = np.full(3, room.walls - margin)
        lengths = (room.size - 2 * self._origin) / cell
        self.container = np.floor(lengths + EXACT / cell).clip(0).astype(np.int64)
        self._rotation: list[int] = []
        self._low: list[Array] = []
        self.rows: list[list[int]] = []
        self.runs: list[Array] = []
        self.bits: list[Array] = []
        self.size: list[Array] = []
        threads, largest = usable_cores(), self.container * cell
        with ThreadPoolExecutor(threads) as pool:
            for first in range(0, len(parts), threads):  # voxels of few parts at a time
                group = parts[first : first + threads]
                for turned in pool.map(lambda part: part(cell, margin, largest), group):
                    self._add(turned)
        self._add(as_given(self._kept_empty(room))(cell, margin, largest))
        self.shapes = self._shapes()

    def _add(self, turned: Sequence[Voxels | None]) -> None:
        """Add the rows of a part; rotations with equal voxels share one."""
        known: dict[tuple[tuple[int, ...], bytes], int] = {}
        for rotation, voxels in enumerate(turned):
            if voxels is None or (np.array(voxels.occupied.shape) > self.container).any():
                continue
            occupied = np.ascontiguousarray(voxels.occupied)
            key = occupied.shape, occupied.tobytes()
            if key not in known:
                known[key] = len(self.bits)
                self._add_row(occupied)
                self._rotation.append(rotation)
                self._low.append(voxels.low.numpy())
        self.rows.append(list(known.values()))

    def _add_row(self, occupied: Array) -> None:
        self.bits.append(to_bits(occupied))
        self.runs.append(to_runs(occupied))
        self.size.append(np.array(occupied.shape))

    def coarser(self, factors: Sequence[int]) -> Sketch | None:
        """Return the same rows in voxels whose side is ``factors[0]`` times as long.

        Every part keeps its volume: of the blocks of ``factor ** 3`` voxels, the fullest become
        coarse voxels. So a coarse nest is neither larger nor smaller than a fine one on average,
        but its parts may overlap by about half a coarse voxel. The remaining factors make still
        coarser voxels. None without factors, or if the container is too small.
        """
        factor = factors[0] if factors else 1
        if factor == 1 or self.container.min() < LEAST_COARSE * factor:
            return None
        coarse = copy.copy(self)
        coarse.coarse = True
        coarse.cell = factor * self.cell
        coarse.container = np.rint(self.container / factor).astype(np.int64)
        coarse.bits, coarse.runs, coarse.size = [], [], []
        corners: list[Array] = []
        for bits, size in zip(self.bits, self.size, strict=True):
            fullest = _fullest(from_bits(bits, int(size[2])), factor)
            low, high = np.zeros(3, int), np.array(fullest.shape)
            if len(corners) < len(self.bits) - 1:  # the room that stays empty is not cropped
                places = np.argwhere(fullest)
                low, high = places.min(0), places.max(0) + 1
            high = np.minimum(high, low + coarse.container)
            coarse._add_row(fullest[tuple(map(slice, low, high))])
            corners.append(low)
        coarse.shapes = coarse._shapes()
        return Sketch(coarse, factor, np.array(corners), coarse.coarser(factors[1:]))

    def _kept_empty(self, room: Room) -> Array:
        """Return the voxels of the container that the keep-outs with their margin meet."""
        empty = np.zeros(self.container, bool)
        for low, high in room.keep_outs:
            margin = room.clearance / 2
            slack = EXACT / self.cell
            first = np.floor((low - margin - self._origin) / self.cell + slack)
            last = np.ceil((high + margin - self._origin) / self.cell - slack)
            i, j = first.clip(0).astype(int), last.clip(0).astype(int)
            empty[i[0] : j[0], i[1] : j[1], i[2] : j[2]] = True
        return empty

    def _shapes(self) -> Shapes:
        words = np.concatenate([bits.reshape(-1) for bits in self.bits])
        lengths = [bits.size for bits in self.bits]
        starts = np.cumsum([0, *lengths[:-1]])
        table = [
            (start, *size, bits.shape[1])
            for start, size, bits in zip(starts, self.size, self.bits, strict=True)
        ]
        most = max(1, *(len(rows) for rows in self.rows))
        options = [[*rows, *[-1] * (most - len(rows))] for rows in self.rows]
        number = [len(rows) for rows in self.rows]
        lengths_x = [size[0] for size in self.size[:-1]] or [1]
        step = max(1, int(np.median(lengths_x)) // PLANES)
        pairs, depths, unit = self._depths()
        return Shapes(
            words,
            np.array(table, np.int64),
            np.array(options, np.int64),
            np.array(number, np.int64),
            np.array([step], np.int64),
            pairs,
            depths,
            np.array([unit]),
        )

    def _depths(self) -> tuple[Array, Array, float]:
        """Return `Shapes.pairs`, `depths` and `unit`: tables of all parts, if they are small.

        A byte for each depth keeps more of the tables in the caches of a processor.
        """
        rows = len(self.bits) - 1
        if self.bits[-1].any():  # the room that stays empty
            rows += 1
        sizes = np.array(self.size[:rows]).reshape(-1, 3)
        none = np.zeros((0, 0), np.int64), np.zeros((3, 0), np.uint8), 1.0
        if not 0 < rows <= TABULATED_ROWS:
            return none
        shapes = sizes[:, None] + sizes - 1
        ends = shapes.prod(2).cumsum()
        if ends[-1] > TABULATED:
            return none
        pairs = np.array([0, *ends[:-1]]).reshape(rows, rows)
        depths = np.zeros((3, ends[-1]), np.uint8)
        unit = (shapes.min(2).max() + 1) / 2 / DEEPEST  # the longest way out along an axis
        solids = [
            torch.as_tensor(from_bits(bits, int(size[2]))).double()
            for bits, size in zip(self.bits, sizes, strict=False)
        ]
        for a, b in zip(*np.triu_indices(rows), strict=True):
            padded = [-(-int(n) // 16) * 16 for n in shapes[a, b]]  # large primes would be slow
            spectrum = torch.fft.rfftn(solids[a], s=padded)
            spectrum *= torch.fft.rfftn(solids[b].flip((0, 1, 2)), s=padded)
            shared = torch.fft.irfftn(spectrum, s=padded)
            overlaps = shared[tuple(slice(int(n)) for n in shapes[a, b])].numpy() > 0.5
            table = np.where(overlaps, np.float32(np.inf), np.float32(0.0))
            for axis in range(3):
                spread_distances(np.moveaxis(table, axis, 2))
            table = np.ceil(np.sqrt(table) / unit)
            for pair, seen in ((pairs[a, b], table), (pairs[b, a], table[::-1, ::-1, ::-1])):
                for axis in range(3):
                    lines = np.moveaxis(seen, axis, 2)
                    depths[axis, pair : pair + table.size] = lines.reshape(-1)
        return pairs, depths, unit

    def filled(self) -> Filled:
        """Return the container in which only the room that stays empty is occupied.

        Raises:
            ParameterError: The nest needs more memory than is free.
        """
        X, Y, Z = (int(n) for n in self.container)
        shape = X, words_for(Z) + PADDING, Y + STRIP
        halves = 1 + max((int(runs[:, 2].max(initial=0)) for runs in self.runs[:-1]), default=0)
        needs = (halves + 6) * math.prod(shape) * np.uint64().itemsize
        remedy = "give a larger cell"
        check_memory(
            f"a nest in voxels of {self.cell:g} m",
            needs,
            torch.device("cpu"),
            lambda _: remedy,
            log=False,
        )
        filled = Filled(np.zeros((halves, *shape), np.uint64), np.zeros((6, *shape), np.uint64))
        occupy(filled, self.bits[-1], 0, 0, 0)
        return filled

    def least_height(self, part: int) -> int:
        """Return the least height of a part over its rotations, in voxels."""
        return min(int(self.size[row][2]) for row in self.rows[part])

    def pose(self, row: int, place: Array) -> tuple[int, Array]:
        """Return ``(rotation, translation [3] in metres)`` of a turned part at a place."""
        return self._rotation[row], self._origin + place * self.cell - self._low[row]


@dataclass(frozen=True, eq=False)
class Sketch:
    """A level in coarse voxels.

    Attributes:
        level: The coarse level; its rows are those of the fine one.
        factor: Fine voxels along the side of a coarse one.
        corners: ``[rows, 3]`` int64 offset of each row's coarse voxels from its fine voxels: from
            lower corner to lower corner, in coarse voxels.
        coarser: A sketch in still coarser voxels, or None.
    """

    level: Level
    factor: int
    corners: Array
    coarser: Sketch | None

    def place(self, row: int, place: Sequence[int]) -> Array:
        """Convert the place of a row from coarse voxels to fine voxels, ``[3]``."""
        return (np.array(place) - self.corners[row]) * self.factor


def _fullest(occupied: Array, factor: int) -> Array:
    """Return the fullest blocks of ``factor ** 3`` voxels, about as many as the volume fills."""
    U, V, W = (-(-size // factor) for size in occupied.shape)
    padded = np.zeros((factor * U, factor * V, factor * W), bool)
    padded[tuple(slice(size) for size in occupied.shape)] = occupied
    counts = np.zeros((U, V, W), np.int64)
    for x, y, z in itertools.product(range(factor), repeat=3):
        counts += padded[x::factor, y::factor, z::factor]
    whole = max(1, round(int(counts.sum()) / factor**3))
    fuller = np.bincount(counts.reshape(-1), minlength=factor**3 + 1)[::-1].cumsum()
    least = factor**3 - int((fuller >= whole).argmax())
    return np.asarray(counts >= max(1, least))
