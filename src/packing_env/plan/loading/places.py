"""Places for one more box in a finished load: corners where faces meet, and the middle."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from packing_env.kernels.loading.arrays_numba import Blocks, Room
from packing_env.kernels.loading.arrays_numba import Problem as Loading
from packing_env.plan.loading.compiled import compiled
from packing_env.plan.loading.problem import BoxType, LoadedBox, LoadRules, Problem, Sides
from packing_env.plan.loading.rules import compiled_rules, fragile_last, settled

_COMPARISONS = 300_000_000
"""Largest number of pairs of boxes that a search for places compares in a second."""
_LEAST_SECONDS, _MOST_SECONDS = 1.0, 10.0
"""Range of the time for a search for places; Ctrl-C waits for its end."""


class Places:
    """Places for one more box in loads of a problem.

    A load is an array ``[N, 4]`` in the order of packing. A row holds an index into :attr:`kinds`
    and :attr:`orientations`, and the lower corner of a box.

    Attributes:
        kinds: ``[S]`` kind of box; there is an entry for each orientation of each kind.
        orientations: ``[S]`` index of the orientation among those of the kind.
        is_complete: False once a search for a place was given up.

    Args:
        problem: The boxes.
        seconds: Approximate time after which a search is given up, from 1 to 10.
    """

    def __init__(self, problem: Problem, seconds: float = 1.0) -> None:
        self._find = compiled("places_numba").find_place
        self._new_pile, self._tables = compiled("rules_numba").new_pile, compiled("tables_numba")
        self._problem = problem
        repeats = np.array(
            [
                (kind, number, 1, 1, 1)
                for kind, orientations in enumerate(problem.orientations)
                for number in range(len(orientations))
            ]
        )
        sides = np.array([each for kind in problem.orientations for each in kind])
        self.kinds, self.orientations = repeats[:, 0], repeats[:, 1]
        self._rules = compiled_rules(problem, repeats, sides)
        volume = sides.prod(-1).astype(np.float64)
        blocks = Blocks(
            sides,
            repeats[:, :1].astype(np.int32),
            np.ones((len(sides), 1), np.int32),
            volume,
            volume,
        )
        room = Room(
            container=np.array(problem.container),
            before=np.array(problem.before, np.int64).reshape(-1, 6),
            order=np.zeros(0, np.int32),
            useful=np.zeros((3, 1), np.int64),
            shift=0,
            least=sides.min(0),
            lengths=np.zeros((0, 3), np.int64),
        )
        self._loading = Loading(blocks, self._rules, room)
        self._budget = np.array(
            [int(_COMPARISONS * min(max(seconds, _LEAST_SECONDS), _MOST_SECONDS))]
        )

    @property
    def is_complete(self) -> bool:
        """True unless a search was given up."""
        return bool(self._budget[0] >= 0)

    def load_of(self, boxes: np.ndarray) -> np.ndarray:
        """Convert rows of kind, orientation and corner, ``[N, 5]``, to a load."""
        first = np.searchsorted(self.kinds, boxes[:, 0])
        return np.concatenate([(first + boxes[:, 1])[:, None], boxes[:, 2:]], 1)

    def with_one_more(self, load: np.ndarray, kind: int) -> np.ndarray | None:
        """Return a load with one more box of a kind in its lowest place; None if none was found."""
        before, sides = self._loading.room.before, self._loading.blocks.sides
        count = len(load)
        placed = np.zeros((count + 1, 7), np.int64)
        placed[:count, :3], placed[:count, 6] = load[:, 1:], load[:, 0]
        placed[:count, 3:6] = load[:, 1:] + sides[load[:, 0]]
        number = count + len(before)
        pile = self._new_pile(number)
        tables, table = self._tables.problem_tables(self._loading), self._tables.table_of(pile)
        memory = (np.zeros(number, np.int32), np.zeros(6, np.int64))
        for single in np.flatnonzero(self.kinds == kind).tolist():
            if not self.is_complete:
                return None
            lengths = self._lengths(placed[:count], sides[single])
            if self._find(tables, table, placed, single, lengths, memory, self._budget):
                more = np.concatenate([load, placed[-1:, [6, 0, 1, 2]]])
                return fragile_last(self._problem, self.kinds, more, self._rules)
        return None

    def settled(self, load: np.ndarray) -> np.ndarray:
        """Return a load, moved as a whole towards the middle or onto the deck."""
        return settled(self._problem, self.kinds, load, self._rules)

    def _lengths(self, placed: np.ndarray, sides: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the possible coordinates of a box's lower corner along each axis."""
        rules, before = self._rules, self._loading.room.before
        gap = np.array([*rules.gap, 0])
        low = np.concatenate([placed[:, :3], before[:, :3]])
        high = np.concatenate([placed[:, 3:6], before[:, 3:] + gap])
        last = self._loading.room.container - sides
        # 1. Beside faces of boxes, walls and edges of a deck, and in the middle.
        corners = []
        for axis in range(3):
            ends = [np.array([0]), high[:, axis]]
            if axis < 2:
                deck = rules.floor[axis], rules.floor[2 + axis] - sides[axis]
                ends += [np.array([last[axis], *deck]), low[:, axis] - sides[axis]]
                if rules.deck or len(rules.cuts) or rules.off[0] >= 0:
                    ends.append(np.array([last[axis] // 2]))
            corners.append(np.unique(np.concatenate(ends)))
        # 2. Beside the planes of cut edges.
        planes = [self._beside_cuts(axis, corners, sides - gap) for axis in range(3)]
        lengths = [np.concatenate([one, *more]) for one, more in zip(corners, planes, strict=True)]
        inside = [(each >= 0) & (each <= end) for each, end in zip(lengths, last, strict=True)]
        return tuple(np.unique(each[there]) for each, there in zip(lengths, inside, strict=True))

    def _beside_cuts(
        self, axis: int, corners: Sequence[np.ndarray], sides: np.ndarray
    ) -> list[np.ndarray]:
        """Return the coordinates along x or y at which a box touches the plane of each cut."""
        coordinates = []
        for cut in self._rules.cuts.reshape(-1, 2, 3).tolist():
            for (own, wall, length), (other, far, reach) in (cut, cut[::-1]):
                if own == axis < 2:
                    distance = corners[other] if far < 0 else far - corners[other] - sides[other]
                    least = -((distance - reach) * length // reach)  # rounded up
                    coordinates.append(least if wall < 0 else wall - least - sides[axis])
        return coordinates


def fill_places(problem: Problem, boxes: np.ndarray, seconds: float = 1.0) -> np.ndarray:
    """Add every left-over box that has a place, the most valuable first; return the load.

    Args:
        problem: The boxes, with their counts.
        boxes: Kind, orientation and corner in the order of packing, ``[N, 5]``.
        seconds: As for :class:`Places`.
    """
    left = np.array(problem.counts) - np.bincount(boxes[:, 0], minlength=len(problem.counts))
    if not left.any():
        return boxes
    # 1. Add boxes until none has a place.
    places = Places(problem, seconds)
    load = places.load_of(boxes)
    worth = np.array(problem.values or problem.volumes)
    largest = np.argsort(-worth, kind="stable").tolist()
    settled_count = len(load)
    waiting = [kind for kind in largest if left[kind]]
    while waiting and places.is_complete:
        kind = waiting.pop(0)
        more = places.with_one_more(load, kind)
        if more is not None:
            load, left[kind] = more, left[kind] - 1
        elif not waiting and len(load) > settled_count:
            # The load moves only now: a single box in the middle would be in the way of others.
            load = places.settled(load)
            settled_count = len(load)
        else:
            continue
        # An added box may carry others, and a moved load may leave room for them.
        waiting = [each for each in largest if left[each]]
    if len(load) > settled_count:
        load = places.settled(load)
    # 2. Convert the load to rows of the problem.
    single = load[:, 0]
    return np.stack([places.kinds[single], places.orientations[single], *load[:, 1:].T], 1)


def add_boxes(
    container: Sides, types: Sequence[BoxType], load: Sequence[LoadedBox], rules: LoadRules
) -> list[LoadedBox]:
    """Return a finished load with every other box of some types that has a place.

    Args:
        container: Its sides.
        types: The boxes, with the numbers that the load may have.
        load: The boxes in the order of packing.
        rules: Rules that the load satisfies.
    """
    problem = Problem(container, types, rules)
    return problem.loaded(fill_places(problem, problem.rows(load)), load)


def has_place(
    container: Sides,
    types: Sequence[BoxType],
    load: Sequence[LoadedBox],
    kind: int,
    rules: LoadRules,
    seconds: float = 1.0,
) -> bool | None:
    """Return whether one more box of a type has a place in a finished load; None if unknown.

    Args:
        container: Its sides.
        types: The boxes; every box of the load fits.
        load: The boxes in the order of packing.
        kind: Index of the type.
        rules: Rules that the load with the box has to satisfy.
        seconds: As for :class:`Places`.
    """
    problem = Problem(container, types, rules)
    own = problem.kind_of(kind)
    if own is None:
        return False
    places = Places(problem, seconds)
    fits = places.with_one_more(places.load_of(problem.rows(load)), own) is not None
    return fits if fits or places.is_complete else None
