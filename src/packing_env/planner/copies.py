"""Orders that are packed as often as they fit (:class:`Fill`), and counts of complete kits."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from packing_env.kernels import clock
from packing_env.planner.reading.parts import (
    COPY,
    MAX_QUANTITY,
    Part,
    Parts,
    repeated,
    with_names,
)
from packing_env.planner.result import Plan

_LOGGER = logging.getLogger("packing_env.planner")

GROWTH = 16
"""Largest factor between two numbers of copies that are tried one after the other."""

Run = Callable[[Sequence[Part], float, bool], Plan]
"""Packs an order within some seconds; True skips the reasons why parts are left over."""


@dataclass(frozen=True)
class Fill:
    """An order to pack as often as it fits.

    Attributes:
        parts: Parts for :func:`packing_env.planner.read_parts`, in the quantities of one copy. If
            there is a single part, its quantity is ignored: one piece is one copy.
    """

    parts: Parts


def most_copies(
    order: Sequence[Part], run: Run, seconds: float, *, pieces: int | None = None
) -> Plan:
    """Pack the order as often as it fits.

    The number of copies grows until some are left over, first up to what the volume of one copy
    suggests. The search then goes down from there to a number that fits, and bisects between the
    two while there is time. If the order has a single part, its quantity is ignored: one piece is
    one copy. If the order does not fit once, its plan says why.

    Args:
        order: The parts with the quantities of one copy.
        run: Packs an order.
        seconds: Time for all searches together.
        pieces: Largest number of pieces that can be packed; None means no limit.

    Returns:
        The plan of whole copies, without the parts of copies that have no room.
    """
    start = clock()
    one = [replace(order[0], quantity=1)] if len(order) == 1 else list(order)
    most = MAX_QUANTITY // max(part.quantity for part in one)
    if pieces is not None:
        most = max(1, min(most, pieces // sum(part.quantity for part in one)))

    stopped = False  # by the user

    def left() -> float:
        return start + seconds - clock()

    def packed(copies: int, share: float) -> Plan:
        nonlocal seconds, stopped
        spare = max(left(), 1e-6)
        plan = run(with_names(repeated(one, copies)), spare / share, True)
        if plan.interrupted:
            seconds, stopped = 1e-6, True
        return plan

    best, whole = None, 0
    try:
        single = order[0].quantity if len(one) == 1 else None
        for plan, copies in _growing(packed, most, single, left):
            best, whole = plan, copies
    except KeyboardInterrupt:  # during the first load of a container
        if best is None:
            raise
        stopped = True
    if best is None or (len(one) == 1 and whole < order[0].quantity and not stopped):
        plan = run(order, seconds, False)
        return replace(plan, interrupted=plan.interrupted or stopped)
    return replace(best, copies=whole, seconds=clock() - start, interrupted=stopped)


def _growing(
    packed: Callable[[int, float], Plan],
    most: int,
    single: int | None,
    left: Callable[[], float],
) -> Iterator[tuple[Plan, int]]:
    """Yield plans of more and more copies, and their number.

    Args:
        packed: Packs a number of copies in a share of the time.
        most: Largest number of copies.
        single: Quantity of the part if there is one part.
        left: Returns the seconds that are left.
    """
    # 1. Up to more copies than the first container has volume for, then doubled until some are left
    # over. A step is at most GROWTH, because weights or heights may allow far fewer copies.
    whole, more, by_volume, volume = 0, 1, 0, 0.0
    while True:
        plan = packed(more, 3.0)
        if plan.num_left:
            break
        whole = more
        yield plan, whole
        if whole == most:
            _LOGGER.warning("no more than %d copies are packed", most)
            break
        if whole == 1:
            volume = plan.utilization * plan.capacity
            by_volume = math.floor(1.0 / (plan.utilization or 1.0)) + 1
        more = min(max(2 * whole, min(GROWTH * whole, by_volume)), most)
    if single is not None and plan.num_packed >= max(whole, single):
        yield _of_packed(plan), plan.num_packed
    # 2. Go down in growing steps, at least to the volume that was packed, until all copies fit.
    # Then bisect between the last number that fits and the first that does not, while there is
    # time.
    fits, step = False, 1
    while more - whole > 1 and single is None and (left() > 0.0 or not fits):
        middle = (whole + more) // 2
        if not fits:
            whole_copies = math.floor(plan.utilization * plan.capacity / (volume or 1.0))
            middle = max(whole + 1, min(whole_copies, more - step))
            step *= 2
        plan = packed(middle, math.log2(more - whole) + 1.0)
        if plan.num_left:
            more = middle
        else:
            whole, fits = middle, True
            yield plan, whole


def _of_packed(plan: Plan) -> Plan:
    """Return a plan that asks for the packed copies only."""
    waiting, containers = plan.num_packed, []
    for packing in plan.containers:
        containers.append(replace(packing, num_items=waiting))
        waiting -= len(packing.items)
    return replace(plan, containers=tuple(containers), left=())


def wants_kits(order: Sequence[Part]) -> bool:
    """Return whether an order has kits, and states no worth that decides what is packed first."""
    stated = {key for part in order for key in part.handling}
    return any(part.kit for part in order) and not stated & {"priority", "value"}


def complete_kits(order: Sequence[Part], plan: Plan) -> dict[str, tuple[int, int]]:
    """Return, for each kit, the number of complete copies and the number in the order.

    Args:
        order: The parts, as :func:`packing_env.planner.read_parts` returns them.
        plan: The plan of these parts.
    """
    packed = Counter(item.name for packing in plan.containers for item in packing.items)
    kits: dict[str, tuple[int, int]] = {}
    broken: set[tuple[str, int]] = set()
    for part in order:
        if part.kit is not None:
            name, asked = part.kit
            copy, complete = _copy(part), kits.get(name, (asked, asked))[0]
            if copy is None:
                complete = min(complete, packed[part.label] // (part.quantity // asked))
            elif packed[part.label] < part.quantity:
                broken.add((name, copy))
            kits[name] = complete, asked
    numbers = Counter(name for name, _ in broken)
    return {name: (min(n, asked - numbers[name]), asked) for name, (n, asked) in kits.items()}


def _copy(part: Part) -> int | None:
    """Return the number of the copy that the label of a part states; None without a label."""
    label = part.handling.get("together") if part.kit else None
    return None if label is None else int(label.rpartition(COPY)[2])


def whole_kits(order: Sequence[Part], plan: Plan, run: Run, seconds: float) -> list[int] | None:
    """Return the quantities that complete as many kits as possible: kit 1, then kit 2, ...

    Bisection finds the largest number of kits that fit together with all parts that belong to no
    kit.

    Args:
        order: The parts.
        plan: A plan of all parts.
        run: Packs an order.
        seconds: Time for all searches together.

    Returns:
        The quantities; None if the plan already has as many complete kits.

    Raises:
        KeyboardInterrupt: A search was interrupted.
    """
    kits = complete_kits(order, plan)
    few, many = sum(n for n, _ in kits.values()), sum(asked for _, asked in kits.values())
    best, spare = None, seconds / max(1.0, math.log2(max(many - few, 1)) + 1.0)
    while many - few > 1 and not plan.interrupted:
        middle = (few + many) // 2
        numbers = _quantities(order, kits, middle)
        parts = [replace(p, quantity=n) for p, n in zip(order, numbers, strict=True) if n]
        trial = run(parts, spare, True)
        if trial.interrupted:
            raise KeyboardInterrupt
        if trial.num_left:
            many = middle
        else:
            few, best = middle, numbers
    return best


def _quantities(
    order: Sequence[Part], kits: dict[str, tuple[int, int]], complete: int
) -> list[int]:
    """Return the quantities of the first kits, in the order of the kits, and of all other parts."""
    numbers: dict[str, int] = {}
    for name, (_, asked) in kits.items():
        numbers[name] = min(complete, asked)
        complete -= numbers[name]
    quantities = []
    for part in order:
        number, copy = part.quantity, _copy(part)
        if part.kit is not None:
            name, asked = part.kit
            number = numbers[name] * (part.quantity // asked) if copy is None else number
            number = 0 if copy is not None and copy > numbers[name] else number
        quantities.append(number)
    return quantities
