"""Piles of boxes, compiled for the CPU: pass loads down, check whether contacts hold them.

The contacts of the packed boxes, and the loads that these boxes pass down, are computed once for
all candidates of a row. A candidate then only changes the boxes below it. The rule determines how
contacts share a load and whether they hold it: :mod:`.tree_numba` or :mod:`.equilibrium_numba`.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from packing_env.kernels.boxes.equilibrium_numba import press
from packing_env.kernels.boxes.tree_eager import MAX_SHARING
from packing_env.kernels.boxes.tree_numba import set_mean, share_load
from packing_env.kernels.compiled.jit import jit, jit_arrays

Pile = namedtuple(
    "Pile",
    "first below owner following rectangle middle load changed newest mean held own stamp mark"
    " direct share matrix points chain plate",
)
"""The packed boxes N of one row, their contacts, and scratch memory, all as arrays.

A *contact* is a rectangle in which a box rests on another one; the candidate's contacts come last.
A load is mass and moments ``(m, m x, m y)``.

Attributes:
    first: ``[N + 2]`` box i has the contacts ``first[i] .. first[i + 1]``; the candidate is box N.
    below: Per contact, the supporting box.
    owner: Per contact, the supported box.
    following: Per contact, the contact between the same supporting box and the next older box on
        it, or -1.
    rectangle: Per contact, ``(x0, y0, x1, y1)``.
    middle: Per contact, its centre.
    load: Per contact, the load that it passes down.
    changed: Per contact, the load including the current candidate, if the candidate changes it.
    newest: Per box, the contact of the last packed box that rests on it, or -1.
    mean: Per box, the mean of the corners of its contacts' hull, for the stacking tree.
    held: Per box, whether its contacts hold it.
    own: Per box, its own load, without the boxes on it.
    stamp: Per box, the number of the last candidate that it carries, directly or through others.
    mark: Per box, the number of the last candidate that rests directly on it.
    direct: Per box, the contact of the candidate whose number is in ``mark``.
    share: Scratch: shares of a load.
    matrix: Scratch: normal equations.
    points: Scratch: points whose hull is computed.
    chain: Scratch: the upper corners of this hull.
    plate: Scratch of `equilibrium_numba`: corners of contacts, and terms to add up.
"""


@jit_arrays
def new_pile(num):
    """Allocate a pile of ``num`` boxes."""
    # Each box may rest on all boxes before it, and the candidate on all boxes.
    contacts = num * (num + 1) // 2
    return Pile(
        first=np.empty(num + 2, np.int64),
        below=np.empty(contacts, np.int64),
        owner=np.empty(contacts, np.int64),
        following=np.empty(contacts, np.int64),
        rectangle=np.empty((contacts, 4), np.int64),
        middle=np.empty((contacts, 2), np.float64),
        load=np.empty((contacts, 3), np.float64),
        changed=np.empty((contacts, 3), np.float64),
        newest=np.empty(num, np.int64),
        mean=np.empty((num + 1, 2), np.float64),
        held=np.empty(num, np.bool_),
        own=np.empty((num, 3), np.float64),
        stamp=np.empty(num, np.int64),
        mark=np.empty(num, np.int64),
        direct=np.empty(num, np.int64),
        share=np.empty(max(num, MAX_SHARING), np.float64),
        matrix=np.empty((MAX_SHARING, MAX_SHARING), np.float64),
        points=np.empty((2 * num, 2), np.int64),
        chain=np.empty((2 * num, 2), np.int64),
        plate=np.empty((10, 4 * MAX_SHARING), np.float64),
    )


@jit
def read_pile(pile, columns, num, tree):
    """Fill in contacts and loads of the packed boxes of one row; return how many are not held.

    The stacking tree does not check packed boxes, so its result is 0.
    """
    # From the last packed box to the first, so that all loads on a box are known.
    _read_contacts(pile, columns, num)
    falling = 0
    for i in range(num - 1, -1, -1):
        pile.held[i] = True
        if columns[2, i] > 0:
            if tree:
                set_mean(pile, i)
            held = _pass_down(pile, i, _carried(pile, i, 0), pile.load, tree)
            if not (held or tree):
                pile.held[i] = False
                falling += 1
    return falling


@jit
def _read_contacts(pile, columns, num):
    """Fill in the contacts of the packed boxes of one row, and their own loads."""
    # Own loads, and contacts with the boxes packed before.
    at = 0
    for i in range(num):
        pile.first[i] = at
        pile.newest[i], pile.stamp[i], pile.mark[i] = -1, 0, 0
        mass = float(columns[3, i] - columns[0, i]) * float(columns[4, i] - columns[1, i])
        mass *= float(columns[5, i] - columns[2, i])
        pile.own[i, 0] = mass
        pile.own[i, 1] = mass * (0.5 * float(columns[0, i] + columns[3, i]))
        pile.own[i, 2] = mass * (0.5 * float(columns[1, i] + columns[4, i]))
        if columns[2, i] > 0:
            at = _add_contacts(pile, columns, i, at)
    pile.first[num] = at


@jit
def _add_contacts(pile, columns, i, at):
    """Append the contacts of packed box i; return the index of the next contact."""
    for j in range(i):
        # The list of the boxes that rest on box j begins with the newest one.
        if columns[5, j] == columns[2, i]:
            x0, y0 = max(columns[0, i], columns[0, j]), max(columns[1, i], columns[1, j])
            x1, y1 = min(columns[3, i], columns[3, j]), min(columns[4, i], columns[4, j])
            if x0 < x1 and y0 < y1:
                _set_contact(pile, at, j, x0, y0, x1, y1)
                pile.owner[at] = i
                pile.following[at] = pile.newest[j]
                pile.newest[j] = at
                at += 1
    return at


@jit
def _set_contact(pile, at, below, x0, y0, x1, y1):
    """Set a contact: the supporting box and the shared rectangle."""
    pile.below[at] = below
    pile.rectangle[at, 0], pile.rectangle[at, 1] = x0, y0
    pile.rectangle[at, 2], pile.rectangle[at, 3] = x1, y1
    pile.middle[at, 0], pile.middle[at, 1] = 0.5 * float(x0 + x1), 0.5 * float(y0 + y1)


@jit
def _carried(pile, i, candidate):
    """Return mass and moments of box i with its load; candidate 0 means no candidate."""
    mass, x, y = pile.own[i, 0], pile.own[i, 1], pile.own[i, 2]
    # 1. Add the candidate, if it rests on the box.
    if candidate > 0 and pile.mark[i] == candidate:
        at = pile.direct[i]
        mass += pile.changed[at, 0]
        x += pile.changed[at, 1]
        y += pile.changed[at, 2]
    # 2. Add the packed boxes that rest on it, the last one first; boxes that carry the candidate
    #    have a changed load.
    at = pile.newest[i]
    while at >= 0:
        load = pile.load
        if candidate > 0 and pile.stamp[pile.owner[at]] == candidate:
            load = pile.changed
        mass += load[at, 0]
        x += load[at, 1]
        y += load[at, 2]
        at = pile.following[at]
    return mass, x, y


@jit
def _pass_down(pile, i, load, target, tree):
    """Put mass and moments of box i on its contacts; return whether these hold the load."""
    start, stop = pile.first[i], pile.first[i + 1]
    if tree:
        return share_load(pile, i, start, stop, load, target)
    return press(pile, start, stop, load, target)


@jit
def stands(pile, columns, num, base, contacts, candidate, falling, tree):
    """Return whether the pile is stable with a candidate on these contacts.

    Candidates are numbered from 1. base is (x0, y0, z0, x1, y1, z1); falling is the number that
    :func:`read_pile` returned.
    """
    rectangles, count = contacts
    # 1. Append its contacts to the contacts of the packed boxes.
    start = pile.first[num]
    pile.first[num + 1] = start + count
    for k in range(count):
        below = rectangles[k, 0]
        _set_contact(
            pile, start + k, below,
            rectangles[k, 1], rectangles[k, 2], rectangles[k, 3], rectangles[k, 4],
        )  # fmt: skip
        pile.stamp[below], pile.mark[below], pile.direct[below] = candidate, candidate, start + k
    # 2. Put its load on them.
    mass = float(base[3] - base[0]) * float(base[4] - base[1]) * float(base[5] - base[2])
    x = mass * (0.5 * float(base[0] + base[3]))
    y = mass * (0.5 * float(base[1] + base[4]))
    if tree:
        set_mean(pile, num)
    if not _pass_down(pile, num, (mass, x, y), pile.changed, tree):
        return False
    # 3. From the last packed box that carries it down, put each box's load on its contacts.
    for i in range(rectangles[count - 1, 0], -1, -1):
        if pile.stamp[i] == candidate and columns[2, i] > 0:
            if not _pass_down(pile, i, _carried(pile, i, candidate), pile.changed, tree):
                return False
            falling -= not pile.held[i]  # with the candidate, this box is held
            for at in range(pile.first[i], pile.first[i + 1]):
                pile.stamp[pile.below[at]] = candidate
    return falling == 0
