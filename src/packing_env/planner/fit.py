"""The fit of parts in containers, in their allowed quarter turns."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import TypeVar

from packing_env.items import CatalogueError
from packing_env.planner.reading.parts import Part
from packing_env.planner.reasons import OTHER_FACE, OTHER_TURN, TOO_LARGE
from packing_env.values import UNITS

Length = TypeVar("Length", int, float, Fraction)


def fits(
    orientations: Sequence[Sequence[float | Fraction]], room: Sequence[float | Fraction]
) -> bool:
    """Return whether a part fits into a room in one of its orientations."""
    return any(
        all(side <= length for side, length in zip(sides, room, strict=True))
        for sides in orientations
    )


def allowed_orientations(
    part: Part, sides: Sequence[Length]
) -> list[tuple[Length, Length, Length]]:
    """Return the distinct sides along x, y and z of a part; the orientation of the file first."""
    upright = {face[1] for face in part.faces}
    allowed: dict[tuple[Length, Length, Length], None] = {}
    for i, j, k in itertools.permutations(range(3)):
        if (part.turn or i == 0) and (not upright or "xyz"[k] in upright):
            allowed[sides[i], sides[j], sides[k]] = None
    return list(allowed)


def misfit(part: Part, sides: Sequence[Length], rooms: Sequence[Sequence[Length]]) -> str:
    """Return why a part fits into none of some rooms; "" if it fits into one of them."""
    free = replace(part, turn=True)
    for each, reason in ((part, ""), (free, OTHER_TURN), (replace(free, faces=()), OTHER_FACE)):
        turned = allowed_orientations(each, sides)
        if any(fits(turned, room) for room in rooms):
            return reason
    return TOO_LARGE


def none_fits(
    parts: Sequence[Part],
    room: Sequence[float | Fraction],
    unit: str,
    reason: Callable[[int], str],
) -> CatalogueError:
    """Return the error for an order of which no part fits; it names the smallest part.

    Args:
        parts: The order.
        room: The part of the container that may be used, ``(X, Y, H)`` metres.
        unit: Unit of the lengths in the message.
        reason: Function that returns why a part does not fit.
    """
    sizes = [sorted(part.exact_sides, reverse=True) for part in parts]
    smallest = min(range(len(sizes)), key=sizes.__getitem__)
    free, sides = (
        " x ".join(f"{float(length) / UNITS[unit]:.6g}" for length in lengths)
        for lengths in (room, parts[smallest].exact_sides)
    )
    return CatalogueError(
        f"no part fits into the container, of which {free} {unit} may be used; the smallest part, "
        f"{parts[smallest].label}, is {sides} {unit}: {reason(smallest)}. State the unit of the "
        "parts (--unit), or give a larger container"
    )
