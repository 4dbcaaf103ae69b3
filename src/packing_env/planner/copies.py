"""Orders that are packed as often as they fit (:class:`Fill`), and counts of complete kits."""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from packing_env.planner.reading.parts import MAX_QUANTITY, Part, Parts
from packing_env.planner.result import Plan

_LOGGER = logging.getLogger("packing_env.planner")

Run = Callable[[Sequence[Part], float, bool], Plan]
"""Packs an order within some seconds; True skips the reasons why parts are left over."""


@dataclass(frozen=True)
class Fill:
    """An order to pack as often as it fits.

    Attributes:
        parts: Parts for :func:`packing_env.planner.read_parts`, in the quantities of one copy. If
            there is a single part, one piece is a copy.
    """

    parts: Parts


def most_copies(order: Sequence[Part], run: Run, seconds: float) -> Plan:
    """Pack the order as often as it fits.

    The number of copies is doubled until some copies are left over; bisection then finds the
    largest number that fits. If the order has a single part, one piece is a copy. If the order does
    not fit once, its plan says why.

    Args:
        order: The parts with the quantities of one copy.
        run: Packs an order.
        seconds: Time for all searches together.

    Returns:
        The plan of whole copies, without the parts of copies that have no room.
    """
    start = time.monotonic()
    one = [replace(order[0], quantity=1)] if len(order) == 1 else list(order)
    most = MAX_QUANTITY // max(part.quantity for part in one)

    def packed(copies: int, share: float) -> Plan:
        spare = max(start + seconds - time.monotonic(), 1e-6)
        return run([part.times(copies) for part in one], spare / share, True)

    # 1. Double the number of copies until some are left over.
    best, whole, more = None, 0, 1
    while True:
        plan = packed(more, 3.0)
        if plan.num_left:
            break
        best, whole = plan, more
        if whole == most:
            _LOGGER.warning("no more than %d copies are packed", most)
            break
        more = min(2 * whole, most)
    if len(one) == 1 and plan.num_packed >= max(whole, order[0].quantity):
        best, whole = _of_packed(plan), plan.num_packed
    # 2. Bisect between the last number that fits and the first that does not.
    while more - whole > 1 and len(one) > 1:
        middle = (whole + more) // 2
        plan = packed(middle, math.log2(more - whole) + 1.0)
        if plan.num_left:
            more = middle
        else:
            best, whole = plan, middle
    if best is None or (len(one) == 1 and whole < order[0].quantity):
        return run(order, seconds, False)
    return replace(best, copies=whole, seconds=time.monotonic() - start)


def _of_packed(plan: Plan) -> Plan:
    """Return a plan that asks for the packed copies only."""
    waiting, containers = plan.num_packed, []
    for packing in plan.containers:
        containers.append(replace(packing, num_items=waiting))
        waiting -= len(packing.items)
    return replace(plan, containers=tuple(containers), left=())


def complete_kits(order: Sequence[Part], plan: Plan) -> dict[str, tuple[int, int]]:
    """Return, for each kit, the number of complete copies and the number in the order.

    Args:
        order: The parts, as :func:`packing_env.planner.read_parts` returns them.
        plan: The plan of these parts.
    """
    packed = Counter(item.name for packing in plan.containers for item in packing.items)
    kits: dict[str, tuple[int, int]] = {}
    for part in order:
        if part.kit is not None:
            name, asked = part.kit
            complete = packed[part.label] // (part.quantity // asked)
            kits[name] = min(complete, kits.get(name, (asked, asked))[0]), asked
    return kits
