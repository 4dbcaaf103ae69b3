"""Why parts are left over: the messages, and the search for the constraints that are the cause.

A constraint is the cause if one more piece has a place without it. If no constraint keeps a piece
from a place, the containers are packed again without the constraints that take room.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from packing_env.constraints import Constraints
from packing_env.kernels import clock

FALLS = "stands in no pose"
OFF_CELLS = "fits only beyond the cells of the grid; give a smaller cell"
OTHER_FACE = "fits only with a face up that is not allowed"
OTHER_TURN = "fits only turned about z, which is not allowed"
TOO_LARGE = "fits in no orientation"
TOO_HEAVY = "too heavy for any container that it fits into (weight_limit)"
NEVER = (FALLS, OFF_CELLS, OTHER_FACE, OTHER_TURN, TOO_LARGE)
"""Reasons of parts that are never packed. If containers differ, the first in this list counts."""
NO_ROOM = "no room found"
INTERRUPTED = "no room found before the interruption"
NOT_TRIED = "no room found in time; with more seconds, more places and causes are tried"
CAUSES = {
    "no_stacking": "nothing may rest on what is below",
    "max_load": "what is below would bear too much",
    "fragile": "it would follow or rest on fragile parts",
    "lifo": "it would be above a group that is unloaded earlier",
    "weight_limit": "the container would be too heavy",
    "balance": "the centre of mass would be too far off the middle",
    "clearance": "too close to other parts or walls",
    "wall_clearance": "too close to a wall",
    "preplaced": "pre-placed boxes are in its place",
    "support": "too little of its base would be supported",
    "door": "other boxes are in its way in",
    "together": "no container was found with room for all of its set",
    "overhang": "too little of it would be over the deck",
    "cut": "it would be where an edge of the container is cut off",
}
"""The explanation of each constraint as the reason of a left-over part."""
_WORDS = CAUSES | {
    "layers": "the stack would have too many levels",
    "on_like": "it would rest on boxes of another name",
}


class OutOfTimeError(Exception):
    """The deadline has passed."""


def without(rules: Constraints, lifted: Sequence[str]) -> Constraints:
    """Return constraints without the lifted ones."""
    free = Constraints()
    changes = {name: getattr(free, name) for name in lifted if name in CAUSES}
    if "wall_clearance" in lifted:
        changes["wall_clearance"] = 0.0  # None would mean the clearance
    return replace(rules, **changes)


class Load(ABC):
    """A container, filled or empty, in which a part is tried without some constraints.

    Attributes:
        names: The constraints that apply in it.
    """

    names: Sequence[str]

    @abstractmethod
    def has_place(self, part: int, lifted: Sequence[str] = ()) -> bool:
        """Return whether one more piece has a place; the others keep theirs."""

    @abstractmethod
    def takes_more(self, part: int, lifted: Sequence[str]) -> bool:
        """Return whether the container takes more of a part if it is packed again."""


class Causes:
    """Search for the constraints that leave parts over.

    Every part has an equal share of the remaining time. If several constraints are the cause, the
    result names those found within this share, and at least one.

    Args:
        seconds: Time for all trials.
        waiting: Number of left-over parts.
    """

    def __init__(self, seconds: float, waiting: int) -> None:
        self._deadline = clock() + seconds
        self._waiting = waiting
        self._end_of_share = self._deadline
        self._recent: list[str] = []

    def begin_share(self) -> None:
        """Begin the share of the next part."""
        now = clock()
        self._end_of_share = now + (self._deadline - now) / max(self._waiting, 1)
        self._waiting -= 1

    @property
    def share(self) -> float:
        """Seconds that are left of a part's share."""
        return max(self._end_of_share - clock(), 0.0)

    def check_time(self) -> None:
        """Raise `OutOfTimeError` if the time for all trials is up."""
        if clock() > self._deadline:
            raise OutOfTimeError

    def text(self, part: int, loads: Sequence[Load]) -> str:
        """Explain which constraints keep a part out of the containers; "" if none does.

        Args:
            part: The part.
            loads: The containers to try; the first one with a cause counts.

        Raises:
            OutOfTimeError: The time is up, or the part has a place under all constraints, which
                the search did not find in time.
        """
        tests = [partial(load.has_place, part) for load in loads]
        tests += [partial(load.takes_more, part) for load in loads]
        for load, helps in zip([*loads, *loads], tests, strict=True):
            if names := self._fewest(load.names, helps):
                if helps(()):  # the part has a place under all constraints
                    raise OutOfTimeError
                return "; ".join(f"{name}: {_WORDS[name]}" for name in names)
        return ""

    def _fewest(self, names: Sequence[str], helps: Callable[[Sequence[str]], bool]) -> list[str]:
        """Return the constraints whose lifting helps: each alone, or else the fewest together."""
        # 1. Lift each constraint alone; begin with the causes of parts that were examined before.
        latest = [name for name in self._recent if name in names]
        alone = [name for name in latest[:1] if helps([name])]
        if not names or not (alone or helps(names)):
            return []
        for name in dict.fromkeys([*latest, *names]):
            if alone and clock() > self._end_of_share:
                break
            if name not in latest[:1] and helps([name]):
                alone.append(name)
        if alone:
            self._recent = list(dict.fromkeys([*alone, *self._recent]))
            return [name for name in names if name in alone]
        # 2. Lift several together.
        together = list(names)
        for name in names:
            fewer = [each for each in together if each != name]
            together = fewer if helps(fewer) else together
        return together
