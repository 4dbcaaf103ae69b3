"""Arrays of rules for the compiled search, and loads in the order of packing."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import numpy as np

from packing_env.kernels.loading.arrays_numba import (
    REAR,
    SIDE,
    TOP,
    UNLIMITED,
    Blocks,
    JoinLimits,
    Rules,
)
from packing_env.kernels.stability_rules import LADDER, MARGINS
from packing_env.plan.loading.problem import Cuboid, Problem
from packing_env.types import ParameterError

_LOGGER = logging.getLogger("packing_env.plan.loading")

DOORS = {"top": TOP, "rear": REAR, "side": SIDE}
_FAR_CORNERS = {TOP: 0b011, REAR: 0b010, SIDE: 0b001}
"""Bits of the axes whose far side may take boxes; the side of a door is excluded."""
_FINE_UP_TO, _LONGEST = 2**24, 2**29
"""Longest sides in units for which areas are exact in steps of 1/64 and 1/2 unit."""
_MOST_ROWS = 2
"""A load may begin with up to this many rows along each axis, in the middle of a pallet."""
_OF_ONE_RANK, _WHOLE = 0.5, 0.5
"""Shares of the remaining room for joined blocks that are kept for blocks of boxes of one rank, and
for blocks without a gap."""
_MOST_SINGLY = 50_000
"""Largest number of boxes of a load that are judged one by one."""


def compiled_rules(problem: Problem, repeats: np.ndarray, sides: np.ndarray) -> Rules:
    """Return the rules of a problem for blocks that are grids of equal boxes.

    Args:
        problem: The boxes.
        repeats: Kind, orientation and repetitions of each grid, ``[G, 5]``.
        sides: Sides of the box of each grid, ``[G, 3]``.

    Raises:
        ParameterError: A side of the container has too many units.
    """
    rules, kinds = problem.rules, problem.kinds
    door = DOORS[rules.door]
    levels = np.array([kind.layers for kind in kinds])
    order = _order(problem)
    below = rules.max_load or bool((levels < UNLIMITED).any()) or (len(order) and door != TOP)
    on_like = np.array([kind.on_like for kind in kinds])
    names = list(dict.fromkeys(kind.name for kind in kinds))
    singly = below or rules.no_stacking or rules.fragile == "top" or len(order) or on_like.any()
    longest = max(problem.container)
    _check_length(problem, longest)
    if problem.active and (singly or rules.gap) and sum(problem.counts) > _MOST_SINGLY:
        _LOGGER.warning("these constraints are judged for at most %d boxes of a load", _MOST_SINGLY)
    grids = len(repeats)
    mass = repeats[:, 2:].prod(-1) * np.array([kind.weight for kind in kinds])[repeats[:, 0]]
    spans = sides[:, :2] * repeats[:, 2:4] - np.array(problem.gap[:2])
    shares = -1.0 if rules.balance is None else rules.balance
    # Shares refer to the floor, or to the deck of a pallet.
    over = 2 * np.array(rules.overhang)
    floor = np.array(problem.container[:2]) + np.array(rules.room[:2]) - over
    return Rules(
        active=problem.active,
        by_box=bool(singly or rules.gap),
        below=bool(below),
        sides=sides,
        repeats=np.ascontiguousarray(repeats[:, 2:]),
        parts=np.zeros((grids, 3), np.int32),
        gap=np.array(problem.gap[:2]),
        corners=_far_corners(problem, door),
        door=door,
        support=rules.support,
        hull=rules.stability in LADDER,
        fine=64 if longest <= _FINE_UP_TO else 2,
        margin=MARGINS.get(rules.stability, -1),
        off=shares * floor,
        mass=mass.astype(np.float64),
        moment=0.5 * mass[:, None] * spans,
        slide=not rules.before and not rules.cuts,
        deck=any(rules.overhang),
        floor=np.array(problem.floor),
        cuts=_cuts(problem),
        weight_limit=UNLIMITED if rules.weight_limit is None else rules.weight_limit,
        loads=rules.max_load,
        no_stacking=rules.no_stacking,
        fragile_top=rules.fragile == "top",
        ordered=len(order) > 0,
        order=order,
        stages=1,
        stage=np.zeros(len(kinds), np.int64),
        weight=np.array([kind.weight for kind in kinds]),
        max_load=np.array([kind.max_load for kind in kinds]),
        stackable=np.array([kind.stackable for kind in kinds]),
        fragile=np.array([kind.fragile for kind in kinds]),
        layers=levels,
        on_like=on_like,
        like=np.array([names.index(kind.name) for kind in kinds]),
    )


def _check_length(problem: Problem, longest: int) -> None:
    """Raise if areas of a container with rules would overflow."""
    if problem.active and longest > _LONGEST:
        raise ParameterError(
            f"container: a side has {longest:,} units, more than {_LONGEST:,}, the limit for loads "
            "with rules; use a longer unit"
        )


def _cuts(problem: Problem) -> np.ndarray:
    """Return the cut edges; far walls are at the ends of boxes without their gaps."""
    rows = np.array(problem.rules.cuts, np.int64).reshape(-1, 6)
    ends = np.array(problem.container) - problem.gap
    rows[:, 1::3] = np.where(rows[:, 1::3], ends[rows[:, ::3]], -1)
    return rows


def _far_corners(problem: Problem, door: int) -> int:
    """Return the bits of the axes whose far side may take boxes."""
    if not problem.active:
        return 0b111
    # A load that must be balanced begins at one corner, and is then moved as a whole.
    return _FAR_CORNERS[door] if problem.rules.balance is None else 0


def _order(problem: Problem) -> np.ndarray:
    """Return the ranks of the kinds by each rule: boxes of smaller rank come in first."""
    rows = []
    if problem.rules.fragile == "last":
        rows.append([int(kind.fragile) for kind in problem.kinds])
    if problem.rules.lifo:
        rows.append([-kind.group for kind in problem.kinds])
    return np.array(rows, np.int64).reshape(len(rows), len(problem.kinds))


def flat_first(rules: Rules) -> bool:
    """Return whether the lowest of equally good blocks comes first.

    A low block leaves room for boxes that may only be on top. With stops, the upright block is
    better: it leaves more of the floor to the stops that are unloaded earlier.
    """
    return bool(rules.no_stacking or rules.fragile_top or rules.loads) and not rules.ordered


def in_stages(rules: Rules) -> Iterator[Rules]:
    """Yield rules under which the search fills the container in stages.

    Boxes that have to come in first are placed first. Then, within each of these stages, boxes
    that must not carry the other boxes are placed last.
    """
    order, carried = _ranks(rules), _is_carried(rules)
    for stage in (order, 2 * order + carried) if carried.any() else (order,):
        numbers, stage = np.unique(stage, return_inverse=True)
        if len(numbers) > 1:
            yield rules._replace(stages=len(numbers), stage=stage)


def _ranks(rules: Rules) -> np.ndarray:
    """Return the sum of the ranks of each kind; kinds of rank 0 come in first."""
    order = np.zeros_like(rules.stage)
    for row in rules.order:
        order += np.unique(row, return_inverse=True)[1]
    return order


def _is_carried(rules: Rules) -> np.ndarray:
    """Return for each kind whether it must not carry the other kinds."""
    return (rules.no_stacking & ~rules.stackable) | (rules.fragile_top & rules.fragile)


def join_limits(problem: Problem, rules: Rules, fill: float) -> Iterator[tuple[float, JoinLimits]]:
    """Yield shares of the room for joined blocks, and the limits of these blocks.

    With a door at the rear or the side, boxes of equal rank are joined first, because they come in
    together: for example a wall of boxes, and on top of it boxes that bear nothing. Then come
    blocks without a gap. They are few, so they may become large: the pieces of a cut container fit
    together again.
    """
    heaviest = np.iinfo(np.int64).max
    bears = rules.max_load if rules.loads else np.full_like(rules.max_load, heaviest)
    any_rank = JoinLimits(
        container=np.array(problem.container, np.float64),
        counts=np.array(problem.counts, np.int32),
        fill=fill,
        whole=bool(rules.active and rules.support >= 1.0),
        group=np.zeros_like(rules.stage),
        bears=np.where(_is_carried(rules), 0, bears),
    )
    ranks = _ranks(rules)
    if rules.door != TOP and ranks.any():
        yield _OF_ONE_RANK, any_rank._replace(group=ranks)
    yield _WHOLE, any_rank._replace(fill=1.0)
    yield 1.0, any_rank


def initial_spaces(problem: Problem, sides: np.ndarray) -> list[Cuboid]:
    """Return the initial spaces of an empty container.

    A pallet has several initial spaces: over the deck alone, beyond the deck's edges along one axis
    or both, and over the middle. Among loads of equal volume the first is kept, so the space over
    the deck alone comes first.

    Args:
        problem: The boxes.
        sides: Sides of the boxes, ``[G, 3]``.
    """
    along_x, along_y = (_spans(problem, sides, axis) for axis in range(2))
    return [(a, c, 0, b, d, problem.container[2]) for a, b in along_x for c, d in along_y]


def _spans(problem: Problem, sides: np.ndarray, axis: int) -> list[tuple[int, int]]:
    """Return the initial spaces along x or y.

    A box that is too narrow to stand at the end of the overhang may still reach over the edge of
    the deck, as in a centred row of equal boxes that is a little longer than the deck.
    """
    length, low, high = problem.container[axis], problem.floor[axis], problem.floor[2 + axis]
    # If a share of the base must be supported, even a short overhang may be too long for a box: at
    # a corner of the deck, the box reaches over two edges.
    share = 1.0 if problem.rules.support else 0.5
    rows = {
        ((high - low) // side + 1) * side
        for side in np.unique(sides[:, axis]).tolist()
        if side - low < share * side
    }
    longest = sorted((row for row in rows if row <= length), reverse=True)[:_MOST_ROWS]
    middle = [((length - row) // 2, (length - row) // 2 + row) for row in longest]
    return list(dict.fromkeys([(low, high), (0, length), *middle]))


def joined_rules(rules: Rules, parts: np.ndarray, blocks: Blocks) -> Rules:
    """Return rules for the grids and for the blocks that join them."""
    grids, number = len(rules.mass), len(parts)
    mass = np.resize(rules.mass, number)
    moment = np.resize(rules.moment, (number, 2))
    for n in range(grids, number):
        one, other, axis = parts[n].tolist()
        mass[n] = mass[one] + mass[other]
        moment[n] = moment[one] + moment[other]
        if axis < 2:
            moment[n, axis] += mass[other] * blocks.sides[one, axis]
    return rules._replace(parts=parts, mass=mass, moment=moment)


def entries(rules: Rules, counts: np.ndarray, grids: int) -> int:
    """Return the largest number of entries of a pile."""
    most = int(min(counts.sum(dtype=np.int64), _MOST_SINGLY if rules.by_box else grids))
    return most if rules.active else 0


def in_order(
    problem: Problem, kinds: np.ndarray, grids: np.ndarray, corners: np.ndarray, rules: Rules
) -> np.ndarray:
    """Return the grid and the lower corner of each box of a load, ``[N, 4]``, in packing order.

    Args:
        problem: The boxes.
        kinds: Kind of each grid, ``[G]``.
        grids: Grids of the load in the order in which they were placed, ``[P]``.
        corners: Their lower corners, ``[P, 3]``.
        rules: Rules of the load.
    """
    # List the boxes of each grid layer by layer, then along x, then along y.
    boxes = []
    for grid, corner in zip(grids.tolist(), corners, strict=True):
        along_x, along_y, along_z = rules.repeats[grid].tolist()
        z, x, y = np.meshgrid(
            np.arange(along_z), np.arange(along_x), np.arange(along_y), indexing="ij"
        )
        steps = np.stack([x.ravel(), y.ravel(), z.ravel()], 1)
        low = corner + steps * rules.sides[grid]
        boxes.append(np.concatenate([np.full((len(low), 1), grid), low], 1))
    load = np.concatenate(boxes) if boxes else np.zeros((0, 4), np.int64)
    return settled(problem, kinds, load, rules)


def settled(problem: Problem, kinds: np.ndarray, load: np.ndarray, rules: Rules) -> np.ndarray:
    """Return a load with fragile boxes last, moved towards the middle if it must be balanced.

    ``load [N, 4]`` holds the grid and the lower corner of each box; the other arguments are those
    of :func:`in_order`.
    """
    load = fragile_last(problem, kinds, load, rules)
    # Move the whole load towards the middle, and onto the deck.
    if (problem.rules.balance is not None or rules.deck) and rules.slide and len(load):
        load[:, 1:3] += _slide(problem, kinds, load, rules)
    return load


def fragile_last(problem: Problem, kinds: np.ndarray, load: np.ndarray, rules: Rules) -> np.ndarray:
    """Return a load with fragile boxes last if they have to be; see :func:`settled`."""
    if problem.rules.fragile != "last":
        return load
    return load[np.argsort(rules.fragile[kinds[load[:, 0]]], kind="stable")]


def _slide(problem: Problem, kinds: np.ndarray, load: np.ndarray, rules: Rules) -> np.ndarray:
    """Return how far to move a load along x and y, so that it is balanced if it has to be.

    A load that fits on the deck is moved onto it, unless only a place farther out is balanced. No
    edge of the load is moved off the deck, so every box keeps its support.
    """
    sides = rules.sides[load[:, 0], :2] - rules.gap
    weight = rules.weight[kinds[load[:, 0]]].astype(np.float64)
    low, high = load[:, 1:3].min(0), (load[:, 1:3] + sides).max(0)
    least, most = rules.floor[:2] - low, rules.floor[2:] - rules.gap - high
    off, balanced = np.zeros(2), problem.rules.balance is not None and weight.sum()
    if balanced:
        centre = (weight[:, None] * (load[:, 1:3] + 0.5 * sides)).sum(0) / weight.sum()
        off = 0.5 * (np.array(problem.container[:2]) - rules.gap) - centre
    wanted = np.round(off).astype(np.int64)
    inwards = np.clip(wanted, np.minimum(least, 0), np.maximum(most, 0))
    onto = np.where(least <= most, np.clip(wanted, least, most), inwards)
    return np.where(balanced and np.abs(off - onto) > rules.off, inwards, onto)
