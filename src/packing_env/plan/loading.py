"""Container loading: boxes that are all known, in any order, by a beam search over blocks of boxes.

Blocks of equal or matching boxes fill the maximal empty cuboids of the container from its corners;
each step of a beam is judged by a greedy completion, and the beam doubles until the time is over
(Araya and Riff, Computers & Operations Research 2014; rank of blocks: Araya, Guerrero and Nunez,
European Journal of Operational Research 2017).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import product
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from packing_env.core import transition
from packing_env.core.orientation import Placement
from packing_env.plan.packing import Packing, read_row, read_state
from packing_env.types import ParameterError, State, check_integer, check_number

if TYPE_CHECKING:
    from packing_env.envs import PackingEnv

_FILL = 0.98
"""Least share of its cuboid that a block fills."""
_MOST_BLOCKS = 10_000
_MOST_SPACES = 512
_SLICES = 8
"""Parts of a beam per thread, between which the clock is read."""

Sides = tuple[int, int, int]
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class BoxType:
    """Equal boxes.

    Attributes:
        orientations: Sides along x, y and z, one triple per allowed orientation.
        count: Number of boxes.
    """

    orientations: Sequence[Sides]
    count: int


class LoadedBox(NamedTuple):
    """A box in the container.

    Attributes:
        kind: Index of its type.
        orientation: Index in the type's orientations.
        corner: Lower corner.
    """

    kind: int
    orientation: int
    corner: Sides


def load_boxes(
    container: Sides,
    types: Sequence[BoxType],
    *,
    seconds: float = 30.0,
    width: int | None = None,
    threads: int | None = None,
) -> list[LoadedBox]:
    """Return a load of large volume, in an order in which each box can be lowered into its place.

    Every box stands on the floor or on another one; nothing else is asked of stability. Lengths are
    whole numbers of any unit.

    Args:
        container: Its sides.
        types: The boxes.
        seconds: Time after which the best load so far is returned.
        width: Widest beam, a power of two; None: wider until the time is over. A search that ends
            by its width gives the same load on every machine.
        threads: Compiled threads; None for torch's number.

    Raises:
        ParameterError: A side or count is not positive, or numba is missing.
    """
    _check(container, types)
    check_number("seconds", seconds, above=0.0)
    deadline = time.monotonic() + seconds
    count = torch.get_num_threads() if threads is None else check_integer("threads", threads, 1)
    search = _Search(container, types)
    whole = sum(int(np.prod(kind.orientations[0])) * kind.count for kind in types)
    with ThreadPoolExecutor(count) as pool:
        beam = 1
        while search.best < whole and time.monotonic() < deadline:
            if width is not None and beam > width:
                break
            if not search.run(beam, pool, count, deadline, whole):
                break
            beam *= 2
    return _settled(types, search.boxes())


def load_container(
    env: PackingEnv,
    row: int = 0,
    *,
    seconds: float = 30.0,
    width: int | None = None,
    threads: int | None = None,
) -> Packing:
    """Plan the container of a row with all its items known, in any order: :func:`load_boxes`.

    Args:
        env: An environment of ``geometry="boxes"`` and ``stability="none"`` that has been reset;
            its state stays as it is.
        row: See :func:`packing_env.plan.packing_of`.
        seconds: See :func:`load_boxes`, as ``width`` and ``threads``.
        width: See above.
        threads: See above.

    Raises:
        ParameterError: The task has another geometry or rule, or numba is missing.
        PlanError: There is no such row.
    """
    params = env.params
    if params.geometry != "boxes" or params.stability != "none":
        raise ParameterError(
            "loading with all items known serves geometry='boxes' and stability='none', not "
            f"{params.geometry!r} and {params.stability!r}"
        )
    positions: dict[int, list[int]] = {}
    whole = read_row(env, row)
    for position, item in enumerate(whole["item_id"][: int(whole["num_items"])].tolist()):
        positions.setdefault(item, []).append(position)
    length, breadth = (round(side / params.pitch) for side in params.container[:2])
    container: Sides = (length, breadth, params.height_units)
    cuboids, real = env.catalogue.tensors()["cuboid"], env.catalogue.tensors()["orientation_mask"]
    indices = {item: real[item].nonzero().flatten().tolist() for item in positions}
    types = [
        BoxType([(x, y, z) for x, y, z in cuboids[item, indices[item]].tolist()], len(places))
        for item, places in positions.items()
    ]
    loaded = load_boxes(container, types, seconds=seconds, width=width, threads=threads)
    items = list(positions)
    chosen = [(items[box.kind], indices[items[box.kind]][box.orientation], box) for box in loaded]
    order = [positions[item].pop() for item, _, _ in chosen]
    rest = [place for places in positions.values() for place in places]
    return _carried_out(env, whole, [(r, box) for _, r, box in chosen], order + rest)


def _carried_out(
    env: PackingEnv, row: State, boxes: list[tuple[int, LoadedBox]], order: list[int]
) -> Packing:
    """Place the boxes by the rules of the environment, from an empty container on."""
    params, items = env.params, env.catalogue.tensors()
    given = {key: row[key][None] for key in ("item_id", "num_items", "seed", "row", "episode")}
    given["item_id"] = given["item_id"].clone()
    given["item_id"][0, : len(order)] = row["item_id"][order]
    state = transition.begin(**given, params=params)
    for orientation, box in boxes:
        x, y, _ = box.corner
        slot, which, left, front = torch.tensor([[0], [orientation], [x], [y]])
        placement = Placement(slot, which, left, front, torch.ones(1, dtype=torch.bool))
        state, outcome = transition.decide(state, placement, items, params)
        if not bool(outcome.legal):
            raise RuntimeError(f"{box} is not legal in this environment")
    return read_state({key: value[0] for key, value in state.items()}, env.catalogue, params)


class _Search:
    """The blocks of a problem, and the best load so far.

    Args:
        container: Its sides.
        types: The boxes.
    """

    def __init__(self, container: Sides, types: Sequence[BoxType]) -> None:
        self.blocks_compiled, self.compiled = _compiled()
        self.container, self.types = container, types
        self.grids = list(_grids(container, types))
        self.counts = np.array([kind.count for kind in types], np.int32)
        self.parts, blocks = self._blocks()
        sides = np.array([d for kind in types for d in kind.orientations], np.int32)
        self.problem = (
            blocks,
            np.array(container, np.int32),
            _useful(container, sides),
            sides.min(0),
        )
        self.best, self.plan = -1, np.zeros((0, 7), np.int32)

    def _blocks(self) -> tuple[np.ndarray, Arrays]:
        """Return the parts of joined blocks, and the arrays of all."""
        given, kinds = len(self.grids), len(self.types)
        most = max(_MOST_BLOCKS, given)
        sides, used = np.zeros((most, 3), np.int32), np.zeros((most, kinds), np.int32)
        volume, number = np.zeros(most, np.int64), np.zeros(most, np.int32)
        for n, (kind, orientation, repeat) in enumerate(self.grids):
            box = self.types[kind].orientations[orientation]
            sides[n] = np.multiply(box, repeat)
            number[n] = used[n, kind] = np.prod(repeat)
            volume[n] = sides[n].prod(dtype=np.int64)
        parts = np.zeros((most, 3), np.int32)
        arrays = sides, used, volume, number
        container = np.array(self.container, np.int32)
        found = self.blocks_compiled.join_blocks(
            arrays, parts, given, container, self.counts, _FILL
        )
        return parts[:found], tuple(part[:found] for part in arrays)

    def run(
        self, width: int, pool: ThreadPoolExecutor, threads: int, deadline: float, whole: int
    ) -> bool:
        """Search with a beam of one width, keep the best load; return whether it left any out."""
        beam = _new_beam(1, self.counts)
        beam[0][0, 0, 3:], beam[1][0], beam[4][0] = self.container, 1, self.counts
        narrowed = False
        while self.best < whole:
            found = self._expand(beam, width, pool, threads, deadline)
            if found is None:
                return True
            chosen, current, total = found
            kept = _distinct(current.ravel(), total.ravel(), width)
            if not len(kept):
                break
            narrowed |= len(kept) == width or bool((total[:, -1] >= 0).any())
            after = _new_beam(len(kept), self.counts)
            choices = chosen.reshape(-1, 4)[kept]
            self.compiled.extend(self.problem, beam, kept // width, choices, after)
            beam = after
        return narrowed

    def _expand(
        self, beam: Arrays, width: int, pool: ThreadPoolExecutor, threads: int, deadline: float
    ) -> Arrays | None:
        """Return the successors of a beam, or None when the time is over before all are judged."""
        rows, most = len(beam[1]), int(self.counts.sum())
        found = (
            np.zeros((rows, width, 4), np.int32),
            np.zeros((rows, width), np.int64),
            np.full((rows, width), -1, np.int64),
        )

        def judge(start: int, stop: int) -> Arrays | None:
            if time.monotonic() > deadline and self.best >= 0:
                return None
            record = np.zeros((most, 7), np.int32), np.zeros(1, np.int64), np.full(1, self.best)
            self.compiled.expand(self.problem, beam, found, record, start, stop)
            return record

        slices = min(rows, _SLICES * threads)
        edges = [rows * k // slices for k in range(slices + 1)]
        records = list(pool.map(judge, edges[:-1], edges[1:]))
        for record in records:
            if record is not None and record[2][0] > self.best:
                self.best, self.plan = int(record[2][0]), record[0][: record[1][0]].copy()
        return None if any(record is None for record in records) else found

    def boxes(self) -> Iterator[LoadedBox]:
        """Yield the boxes of the best load."""
        pending = [(int(row[6]), tuple(map(int, row[:3]))) for row in self.plan]
        sides = self.problem[0][0]
        while pending:
            block, corner = pending.pop()
            if block < len(self.grids):
                kind, orientation, repeat = self.grids[block]
                box = self.types[kind].orientations[orientation]
                for step in product(*(range(times) for times in repeat)):
                    x, y, z = (c + s * d for c, s, d in zip(corner, step, box, strict=True))
                    yield LoadedBox(kind, orientation, (x, y, z))
                continue
            one, other, axis = (int(part) for part in self.parts[block])
            beside = list(corner)
            beside[axis] += int(sides[one, axis])
            pending += [(one, corner), (other, tuple(beside))]


def _compiled() -> tuple[ModuleType, ModuleType]:
    """Import the compiled functions."""
    try:
        from packing_env.kernels.loading import blocks_numba, numba
    except ImportError as error:
        raise ParameterError(
            "loading boxes needs numba: pip install 'packing-env[fast]'"
        ) from error
    return blocks_numba, numba


def _check(container: Sides, types: Sequence[BoxType]) -> None:
    """Raise on sides and counts that are no positive whole numbers."""
    for side in container:
        check_integer("container", side, 1)
    if not types:
        raise ParameterError("types is empty: there is nothing to load")
    for kind in types:
        check_integer("count", kind.count, 1)
        if not kind.orientations:
            raise ParameterError("orientations is empty: name one triple of sides at least")
        for side in (side for sides in kind.orientations for side in sides):
            check_integer("orientations", side, 1)


def _grids(container: Sides, types: Sequence[BoxType]) -> Iterator[tuple[int, int, Sides]]:
    """Yield type, orientation and repetitions of the blocks of equal boxes."""
    for kind, boxes in enumerate(types):
        for orientation, sides in enumerate(boxes.orientations):
            most = [c // side for c, side in zip(container, sides, strict=True)]
            for nx in range(1, min(boxes.count, most[0]) + 1):
                for ny in range(1, min(boxes.count // nx, most[1]) + 1):
                    for nz in range(1, min(boxes.count // nx // ny, most[2]) + 1):
                        yield kind, orientation, (nx, ny, nz)


def _useful(container: Sides, sides: np.ndarray) -> np.ndarray:
    """Return for each axis the longest sum of boxes' sides up to each length, ``[3, longest]``."""
    found = np.zeros((3, max(container) + 1), np.int32)
    for axis in range(3):
        reached = np.zeros(max(container) + 1, bool)
        reached[0] = True
        lengths = np.unique(sides[:, axis])
        for end in range(1, container[axis] + 1):
            fit = lengths[lengths <= end]
            reached[end] = reached[end - fit].any()
        found[axis] = np.maximum.accumulate(np.where(reached, np.arange(len(reached)), 0))
    return found


def _new_beam(rows: int, counts: np.ndarray) -> Arrays:
    """Return the arrays of empty loads."""
    return (
        np.zeros((rows, _MOST_SPACES, 6), np.int32),
        np.zeros(rows, np.int32),
        np.zeros((rows, int(counts.sum()), 7), np.int32),
        np.zeros(rows, np.int32),
        np.zeros((rows, len(counts)), np.int32),
        np.zeros(rows, np.int64),
    )


def _distinct(current: np.ndarray, total: np.ndarray, width: int) -> np.ndarray:
    """Return the successors with the largest completions, one of each pair of volumes."""
    kept: dict[tuple[Any, Any], int] = {}
    for place in np.argsort(-total, kind="stable"):
        if total[place] < 0 or len(kept) == width:
            break
        kept.setdefault((current[place], total[place]), int(place))
    return np.array(list(kept.values()), np.int64)


def _settled(types: Sequence[BoxType], boxes: Iterator[LoadedBox]) -> list[LoadedBox]:
    """Lower the boxes onto each other, the lowest first."""
    placed: list[LoadedBox] = []
    corners = np.zeros((0, 6), np.int64)
    for box in sorted(boxes, key=lambda box: box.corner[::-1]):
        (x, y, _), (dx, dy, dz) = box.corner, types[box.kind].orientations[box.orientation]
        over_x = (corners[:, 0] < x + dx) & (corners[:, 3] > x)
        over_y = (corners[:, 1] < y + dy) & (corners[:, 4] > y)
        z = int(corners[over_x & over_y, 5].max(initial=0))
        placed.append(box._replace(corner=(x, y, z)))
        corners = np.vstack([corners, (x, y, z, x + dx, y + dy, z + dz)])
    return placed
