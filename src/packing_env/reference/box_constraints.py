"""The specification of the constraints of an order of boxes, with exact lengths.

A :class:`~.box_load.Case` is a box in its place. Each rule returns the reason why the box may not
be there, or "". The balance is a rule of the finished load (:func:`off_balance`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from packing_env.reference.box_load import Case, Load, way
from packing_env.reference.boxes import Box


def no_stacking(case: Case) -> str:
    """Return the item that would carry another one but must not, or ""."""
    for i in sorted(case.on):
        if not case.load.items[i].handling.stackable:
            return f"it rests on item {i}, on which nothing may be stacked"
    if case.carried and not case.handling.stackable:
        return f"item {min(case.carried)} rests on it, on which nothing may be stacked"
    return ""


def max_load(case: Case) -> str:
    """Return the first item that would bear too much, or ""."""
    load, new = case.load, len(case.load.items)
    limit = load.limit.copy()
    limit[new] = case.handling.max_load
    over = np.nonzero(case.borne > limit)[0]
    if len(over) == 0:
        return ""
    i = int(over[0])
    return f"item {i} would bear {case.borne[i] / 1e6:g} kg, its limit is {limit[i] / 1e6:g} kg"


def fragile(case: Case) -> str:
    """Return the fragile item that comes before the box or is under it, or ""."""
    load = case.load
    if load.rules.fragile == "last":
        first = load.first_fragile
        late = first is not None and not case.handling.fragile
        return f"it comes after item {first}, which is fragile" if late else ""
    for i in sorted(case.on):
        if load.items[i].handling.fragile and not case.handling.fragile:
            return f"it rests on item {i}, which is fragile"
    for i in sorted(case.carried):
        if case.handling.fragile and not load.items[i].handling.fragile:
            return f"item {i} rests on it, and it is fragile"
    return ""


def lifo(case: Case) -> str:
    """Return the item that must be unloaded while another item is in its way, or ""."""
    load, own, fixed = case.load, case.handling.group, case.load.pile.num_fixed
    count, door = len(load.items), load.rules.door
    group = load.group[:count]

    # 1. Smaller groups: the box is in their way out, or rests on them.
    boxes = load.pile.corners[:, fixed:]
    blocked = _overlap(_ways(boxes, door), case.box)
    if load.rules.follows_piles and door != "top":
        blocked |= case.below[:count]
    first = np.nonzero(blocked & (group < own))[0]
    if len(first):
        i = int(first[0])
        return f"its group {own} is in the way of item {i} of group {group[i]}, unloaded before it"

    # 2. Larger groups: they are in its way out, or rest on it. If a larger group rests on a
    #    smaller one through the item, one of the two already breaks the rule with the item.
    blocking = _overlap(boxes, way(case.box, door, load.container))
    if load.rules.follows_piles and door != "top":
        blocking |= case.above[:count]
    last = np.nonzero(blocking & (group > own))[0]
    if len(last):
        i = int(last[0])
        return f"item {i} of group {group[i]} is in its way, and its group {own} is unloaded before"
    return ""


def _ways(boxes: np.ndarray, door: str) -> np.ndarray:
    """Return :func:`way` of boxes ``[6, N]``, without an end."""
    swept = boxes.copy()
    swept[{"rear": 3, "side": 4, "top": 5}[door]] = np.iinfo(np.int64).max
    return swept


def _overlap(boxes: np.ndarray, box: Box) -> np.ndarray:
    """Test which boxes ``[6, N]`` share a volume with one."""
    corner = np.array(box, np.int64)[:, None]
    return np.asarray(((boxes[:3] < corner[3:]) & (corner[:3] < boxes[3:])).all(0))


def weight_limit(case: Case) -> str:
    """Return the weight of the load if it would be too heavy, or ""."""
    limit, total = case.load.rules.weight_limit, case.load.total + case.handling.weight
    if limit is not None and total > limit:
        return f"{total / 1e6:g} kg in a container for {limit / 1e6:g} kg"
    return ""


def clearance(case: Case) -> str:
    """Return the first box that is too close beside the case's box, or ""."""
    least, shared = case.load.rules.clearance, case.meeting.shared
    close = np.nonzero((shared[2] > 0) & (-shared[0] < least) & (-shared[1] < least))[0]
    if len(close) == 0:
        return ""
    gap, i = int(-shared[:2, close[0]].min()), int(close[0]) - case.load.pile.num_fixed
    other = "a pre-placed box" if i < 0 else f"item {i}"
    return f"{other} is {gap} units beside it, not {least}"


def wall_clearance(case: Case) -> str:
    """Return the distance of a wall that is too close, or ""."""
    x0, y0, _, x1, y1, _ = case.box
    gap = min(x0, y0, case.load.container[0] - x1, case.load.container[1] - y1)
    least = case.load.rules.walls
    return "" if gap >= least else f"it is {gap} units from a wall, not {least}"


def cut(case: Case) -> str:
    """Return the cut edge that the box crosses in its place or on its way in, or ""."""
    rules, container = case.load.rules, case.load.container
    swept = way(case.box, rules.door, container)
    for number, edge in enumerate(rules.cuts):
        if edge.takes(swept, container, rules.walls):
            inside = edge.takes(case.box, container, rules.walls)
            return f"it {'reaches' if inside else 'comes in'} beyond the plane of cut {number + 1}"
    return ""


def support(case: Case) -> str:
    """Return the share of the base that is supported if it is too little, or ""."""
    touch, least = case.meeting.touch, case.load.rules.support
    if least is None or touch.support >= least * touch.area:
        return ""
    return f"{touch.support / touch.area:.1%} of its base is supported"


def layers(case: Case) -> str:
    """Return the item whose stack would have too many levels, or ""."""
    room, first = min(case.rooms.values())
    if room >= 0:
        return ""
    most = [*(item.handling for item in case.load.items), case.handling][first].layers or 0
    return f"{most - room} levels in the stack on item {first}, which allows {most}"


def on_like(case: Case) -> str:
    """Return the item of another name that is under the box or on it, or ""."""
    items, meeting = case.load.items, case.meeting
    like = case.handling.like or case.name
    if case.handling.on_like:
        if meeting.supporting[: case.load.pile.num_fixed].any() and case.box[2] > 0:
            return "it rests on a pre-placed box"
        for i in sorted(case.on):
            if (items[i].handling.like or items[i].name) != like:
                return f"it rests on item {i}, {items[i].name!r}"
    for i in sorted(case.carried):
        if items[i].handling.on_like and (items[i].handling.like or items[i].name) != like:
            return f"item {i}, {items[i].name!r}, rests on it"
    return ""


def broken(case: Case) -> dict[str, str]:
    """Return the constraints that a placement breaks, each with the reason."""
    rules = case.load.rules
    holds: dict[Callable[[Case], str], bool] = {
        no_stacking: rules.no_stacking,
        max_load: rules.max_load,
        fragile: rules.fragile is not None,
        lifo: rules.lifo,
        weight_limit: rules.weight_limit is not None,
        clearance: rules.clearance > 0,
        wall_clearance: rules.walls > 0,
        cut: len(rules.cuts) > 0,
        support: rules.support is not None,
        layers: True,  # attributes of items apply without a rule of the plan
        on_like: True,
    }
    reasons = {rule.__name__: rule(case) for rule, active in holds.items() if active}
    return {name: reason for name, reason in reasons.items() if reason}


def off_balance(load: Load) -> str:
    """Return how far the centre of mass of the finished load is off the middle, or "".

    The share refers to the floor; under a load that overhangs, to the deck.
    """
    share = load.rules.balance
    if share is None:
        return ""
    for axis, name in enumerate(("length", "width")):
        room = load.container[axis]
        moment = sum(
            item.handling.weight * (item.box[axis] + item.box[3 + axis] - room)
            for item in load.items
        )
        side = room - 2 * load.rules.overhang[axis]
        if abs(moment) > 2 * share * side * load.total:
            off = abs(moment) / (2 * side * load.total)
            return f"the centre of mass is {off:.1%} of the floor's {name} off the middle"
    return ""
