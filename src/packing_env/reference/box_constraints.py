"""The specification of the constraints of an order of boxes, with exact lengths.

A :class:`~.box_load.BoxCase` is a box in its place. Each rule returns the reason why the box may
not be there, or "". The balance is a rule of the finished load (:func:`off_balance`).
"""

from __future__ import annotations

import numpy as np

from packing_env.reference.box_load import BoxCase, BoxLoad, way
from packing_env.reference.boxes import Box
from packing_env.reference.constraints import (
    fragile,
    max_load,
    no_stacking,
    reasons,
    weight_limit,
)


def lifo(case: BoxCase) -> str:
    """Name an item that must be unloaded while another item is in its way, or return ""."""
    load, own, door = case.load, case.handling.group, case.load.rules.door
    boxes = load.pile.corners[:, load.pile.num_fixed :]

    # 1. Smaller groups: the box is in their way out, or rests on them.
    blocked = _overlap(_ways(boxes, door), case.box)
    if door != "top":
        blocked |= case.below
    for i in sorted(blocked):
        group = load.items[i].handling.group
        if group < own:
            return (
                f"it is of group {own} and in the way of item {i} of group {group}, which is "
                "unloaded first"
            )

    # 2. Larger groups: they are in its way out, or rest on it. No other pair needs a test: if the
    #    item lies between a larger and a smaller group, it breaks the rule with one of them.
    blocking = _overlap(boxes, way(case.box, door, load.container))
    if door != "top":
        blocking |= case.above
    for i in sorted(blocking):
        group = load.items[i].handling.group
        if group > own:
            return (
                f"item {i} of group {group} is in its way, but it is of group {own}, which is "
                "unloaded first"
            )
    return ""


def _ways(boxes: np.ndarray, door: str) -> np.ndarray:
    """Return :func:`way` of boxes ``[6, N]``, without an end."""
    swept = boxes.copy()
    swept[{"rear": 3, "side": 4, "top": 5}[door]] = np.iinfo(np.int64).max
    return swept


def _overlap(boxes: np.ndarray, box: Box) -> set[int]:
    """Return which boxes ``[6, N]`` share a volume with a box."""
    corner = np.array(box, np.int64)[:, None]
    shares = ((boxes[:3] < corner[3:]) & (corner[:3] < boxes[3:])).all(0)
    return {*np.nonzero(shares)[0].tolist()}


def clearance(case: BoxCase) -> str:
    """Name the first box that stands too close to the new one, or return ""."""
    least, shared = case.load.rules.clearance, case.meeting.shared
    close = np.nonzero((shared[2] > 0) & (-shared[0] < least) & (-shared[1] < least))[0]
    if len(close) == 0:
        return ""
    gap, i = int(-shared[:2, close[0]].min()), int(close[0]) - case.load.pile.num_fixed
    other = "a pre-placed box" if i < 0 else f"item {i}"
    return f"{other} is {gap} units beside it, not {least}"


def wall_clearance(case: BoxCase) -> str:
    """Return the distance of a wall that is too close, or ""."""
    x0, y0, _, x1, y1, _ = case.box
    gap = min(x0, y0, case.load.container[0] - x1, case.load.container[1] - y1)
    least = case.load.rules.walls
    return "" if gap >= least else f"it is {gap} units from a wall, not {least}"


def cut(case: BoxCase) -> str:
    """Return the cut edge that the box crosses in its place or on its way in, or ""."""
    rules, container = case.load.rules, case.load.container
    swept = way(case.box, rules.door, container)
    for number, edge in enumerate(rules.cuts):
        if edge.takes(swept, container, rules.walls):
            inside = edge.takes(case.box, container, rules.walls)
            return f"it {'reaches' if inside else 'comes in'} beyond the plane of cut {number + 1}"
    return ""


def support(case: BoxCase) -> str:
    """Return the share of the base that is supported if it is too little, or ""."""
    touch, least = case.meeting.touch, case.load.rules.support
    if least is None or touch.support >= least * touch.area:
        return ""
    return f"{touch.support_ratio:.1%} of its base is supported"


def layers(case: BoxCase) -> str:
    """Name the item whose stack would have too many levels, or return ""."""
    room, first = min(case.rooms.values())
    if room >= 0:
        return ""
    most = [*(item.handling for item in case.load.items), case.handling][first].layers or 0
    return f"{most - room} levels in the stack on item {first}, which allows {most}"


def on_like(case: BoxCase) -> str:
    """Name an item of another name that is under the box or on it, or return ""."""
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


def broken(case: BoxCase) -> dict[str, str]:
    """Return the constraints that a placement breaks, each with the reason."""
    rules = case.load.rules
    return reasons(
        case,
        {
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
        },
    )


def off_balance(load: BoxLoad) -> str:
    """Return how far the centre of mass of the finished load is off the middle, or "".

    The distance is a share of the floor's sides or, if the load may overhang, of the deck's sides.
    """
    share = load.rules.balance
    if share is None:
        return ""
    for axis, name in enumerate(("length", "width")):
        room = load.container[axis]
        moment = 0
        for number, item in enumerate(load.items):
            box = load.pile.box(number)
            moment += item.handling.weight * (box[axis] + box[3 + axis] - room)
        side = room - 2 * load.rules.overhang[axis]
        if abs(moment) > 2 * share * side * load.weight:
            off = abs(moment) / (2 * side * load.weight)
            return f"the centre of mass is {off:.1%} of the floor's {name} off the middle"
    return ""
