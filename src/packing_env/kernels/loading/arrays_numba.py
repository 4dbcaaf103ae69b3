"""Arrays of `packing_env.kernels.loading`, and what ``halt`` holds; they need no compiler."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

HURRY = 1
"""A load is completed with the first block that fits each space, without a comparison."""
STOP = 2
"""A kernel returns at once."""


TOP, REAR, SIDE = 0, 1, 2
"""Doors: boxes come in from above, along -x from the far wall, or along -y from the far wall."""


class Blocks(NamedTuple):
    """M blocks of boxes of T types.

    Attributes:
        sides: ``[M, 3]``.
        kinds: Types of the boxes in ascending order, then -1, ``[M, K]`` int32.
        amounts: Boxes of each of them, ``[M, K]`` int32.
        volume: Of the boxes, ``[M]``.
        worth: ``volume * (number of boxes)^-0.2``, ``[M]``.
    """

    sides: np.ndarray
    kinds: np.ndarray
    amounts: np.ndarray
    volume: np.ndarray
    worth: np.ndarray


class Rules(NamedTuple):
    """Rules that placed boxes satisfy beside having room; of T types, G grids, M blocks.

    Attributes:
        active: False: nothing, and all else is unused.
        by_box: True if boxes count singly: a rule looks at what rests on a box.
        below: True if a rule looks at all that is below a box, not only at what it rests on.
        sides: Of a box of each grid, the gap included, ``[G, 3]``.
        repeats: Of the box in each grid, ``[G, 3]``.
        parts: The two blocks and the axis of each joined block, ``[M, 3]``.
        gap: Clearance along x and y, which the sides include, ``[2]``.
        corners: Bits of the axes at whose far side of a space blocks may be placed.
        door: ``TOP``, ``REAR`` or ``SIDE``.
        support: Share of a base that must be supported.
        hull: True if the centre must be over the hull of the contacts.
        fine: Steps per unit, in which margins are rounded up: 64, or 2 where lengths are long.
        margin: Percent of the base's sides by which it must be inside; -1: the edge is enough.
        off: How far the centre of mass of a load may be off the middle along x and y, ``[2]``;
            negative: any.
        mass: Of each block, milligrams, ``[M]`` float64.
        moment: Of each block about its lower corner along x and y, ``[M, 2]`` float64.
        slide: True if a whole load may be moved in the container, to be in balance.
        weight_limit: Of a load, milligrams.
        loads: True if ``max_load`` holds.
        no_stacking: True if ``stackable`` holds.
        fragile_top: True if only fragile boxes may rest on fragile ones.
        ordered: True if ``order`` has rows.
        order: Boxes of a smaller number must be able to come in first and to go out last,
            ``[K, T]``.
        weight: Of a box, milligrams, ``[T]``.
        max_load: Milligrams that a box bears, ``[T]``.
        stackable: ``[T]``.
        fragile: ``[T]``.
        layers: Levels of a stack that begins with the box, ``[T]``.
        on_like: True if a box may only rest on its like and on the floor, ``[T]``.
        like: Equal numbers are alike, ``[T]``.
    """

    active: bool
    by_box: bool
    below: bool
    sides: np.ndarray
    repeats: np.ndarray
    parts: np.ndarray
    gap: np.ndarray
    corners: int
    door: int
    support: float
    hull: bool
    fine: int
    margin: int
    off: np.ndarray
    mass: np.ndarray
    moment: np.ndarray
    slide: bool
    weight_limit: int
    loads: bool
    no_stacking: bool
    fragile_top: bool
    ordered: bool
    order: np.ndarray
    weight: np.ndarray
    max_load: np.ndarray
    stackable: np.ndarray
    fragile: np.ndarray
    layers: np.ndarray
    on_like: np.ndarray
    like: np.ndarray


class Pile(NamedTuple):
    """Contents of a container, for :class:`Rules`: N entries, cuboids without gaps.

    Attributes:
        boxes: Lower and upper corner, ``[N, 6]``.
        kind: Type; -1: it was there before, ``[N]`` int32.
        weights: Milligrams, ``[N]``.
        borne: Milligrams that rest on it, directly or through others, ``[N]``.
        first: Where its supports begin in ``on``, ``[N + 1]`` int32.
        on: Entries that it rests on, int32.
        depth: Zeros, ``[N]`` int32.
        size: Number of entries, ``[1]``.
        total: Weight of the boxes, ``[1]``.
        contacts: Of the box that is judged: entry, x0, y0, x1, y1, ``[C, 5]``.
        points: Corners of contacts, ``[4 C, 2]``.
        hull: ``[8 C, 2]``.
        parts: Blocks that wait to be taken apart, and their lower corners, ``[W, 4]``.
        box: ``[6]``, in use by one function at a time.
        corner: ``[3]``, the same.
    """

    boxes: np.ndarray
    kind: np.ndarray
    weights: np.ndarray
    borne: np.ndarray
    first: np.ndarray
    on: np.ndarray
    depth: np.ndarray
    size: np.ndarray
    total: np.ndarray
    contacts: np.ndarray
    points: np.ndarray
    hull: np.ndarray
    parts: np.ndarray
    box: np.ndarray
    corner: np.ndarray


class Problem(NamedTuple):
    """A container and what may be placed in it.

    Attributes:
        blocks: See there.
        order: Blocks that may be placed, of descending worth.
        container: Its sides ``[3]``.
        useful: Longest sum of boxes' sides, by axis and by length in steps of ``2^shift``.
        shift: See above.
        least: Shortest side of a box by axis, ``[3]``.
        rules: See there.
        before: Cuboids that are in the container from the start, ``[B, 6]``.
    """

    blocks: Blocks
    order: np.ndarray
    container: np.ndarray
    useful: np.ndarray
    shift: int
    least: np.ndarray
    rules: Rules
    before: np.ndarray
