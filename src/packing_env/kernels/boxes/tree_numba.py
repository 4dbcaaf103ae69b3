"""The stacking tree compiled for the CPU; defined in :mod:`packing_env.reference.boxes`.

The contacts of the packed boxes and the loads they pass down are computed once for all candidates
of a row. A candidate then only touches the boxes below it. Sums are taken in the order of
`kernels.boxes.tree_eager`, which has the same bits.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from packing_env.kernels.boxes.tree_eager import BLOW_UP, MAX_SHARING, RIDGE, SHRINK, TOLERANCE
from packing_env.kernels.compiled.jit import jit, jit_arrays

Pile = namedtuple(
    "Pile",
    "first below owner following rectangle middle load changed newest mean own stamp mark direct"
    " share matrix points chain plate",
)
"""The packed boxes N of one row, their contacts, and scratch memory; arrays.

A *contact* is where a box rests on another one; those of the candidate come last. A load is mass
and moments ``(m, m x, m y)``.

Attributes:
    first: ``[N + 1]`` box i has the contacts ``first[i] .. first[i + 1]``.
    below: Per contact, the supporting box.
    owner: Per contact, the supported box.
    following: Per contact, the one of the next older box on the same supporting box, or -1.
    rectangle: Per contact, ``(x0, y0, x1, y1)``.
    middle: Per contact, its centre.
    load: Per contact, the load that goes down there.
    changed: Per contact, the load with the current candidate, where it differs.
    newest: Per box, the contact of the last packed box on it, or -1.
    mean: Per box, the mean of the corners of its contacts' hull.
    own: Per box, its own load, without the boxes on it.
    stamp: Per box, the last candidate above it.
    mark: Per box, the last candidate that rests on it.
    direct: Per box, the contact of that candidate.
    share: Scratch: shares of a load.
    matrix: Scratch: normal equations.
    points: Scratch: points to take the hull of.
    chain: Scratch: its upper corners.
    plate: Scratch of `kernels.boxes.equilibrium_numba`: corners of contacts.
"""


@jit_arrays
def new_pile(num):
    """Allocate a pile of ``num`` boxes."""
    contacts = num * (num + 1) // 2
    return Pile(
        first=np.empty(num + 1, np.int64),
        below=np.empty(contacts, np.int64),
        owner=np.empty(contacts, np.int64),
        following=np.empty(contacts, np.int64),
        rectangle=np.empty((contacts, 4), np.int64),
        middle=np.empty((contacts, 2), np.float64),
        load=np.empty((contacts, 3), np.float64),
        changed=np.empty((contacts, 3), np.float64),
        newest=np.empty(num, np.int64),
        mean=np.empty((num, 2), np.float64),
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
def read_pile(pile, columns, num):
    """Fill in the contacts and loads of the packed boxes of one row."""
    read_contacts(pile, columns, num)
    for i in range(num):
        if columns[2, i] > 0:
            pile.mean[i, 0], pile.mean[i, 1] = _hull_mean(pile, pile.first[i], pile.first[i + 1])
    for i in range(num - 1, 0, -1):
        start, stop = pile.first[i], pile.first[i + 1]
        if start < stop:
            mass, x, y = _total(pile, i, 0)
            _pass_down(pile, start, stop, mass, x, y, pile.load)


@jit
def read_contacts(pile, columns, num):
    """Fill in the contacts of the packed boxes of one row, and their own loads."""
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
    """Append the contacts of packed box i; return where the next contact goes."""
    for j in range(i):
        if columns[5, j] == columns[2, i]:
            x0, y0 = max(columns[0, i], columns[0, j]), max(columns[1, i], columns[1, j])
            x1, y1 = min(columns[3, i], columns[3, j]), min(columns[4, i], columns[4, j])
            if x0 < x1 and y0 < y1:
                set_contact(pile, at, j, x0, y0, x1, y1)
                pile.owner[at] = i
                pile.following[at] = pile.newest[j]
                pile.newest[j] = at
                at += 1
    return at


@jit
def set_contact(pile, at, below, x0, y0, x1, y1):
    """Set a contact: the supporting box and the shared rectangle."""
    pile.below[at] = below
    pile.rectangle[at, 0], pile.rectangle[at, 1] = x0, y0
    pile.rectangle[at, 2], pile.rectangle[at, 3] = x1, y1
    pile.middle[at, 0], pile.middle[at, 1] = 0.5 * float(x0 + x1), 0.5 * float(y0 + y1)


@jit
def _total(pile, i, candidate):
    """Return mass and centre of mass of box i and its load; candidate 0 is no candidate."""
    mass, x, y = carried(pile, i, candidate)
    return mass, x / mass, y / mass


@jit
def carried(pile, i, candidate):
    """Return mass and moments of box i and its load; candidate 0 is no candidate."""
    mass, x, y = pile.own[i, 0], pile.own[i, 1], pile.own[i, 2]
    if candidate > 0 and pile.mark[i] == candidate:
        at = pile.direct[i]
        mass += pile.changed[at, 0]
        x += pile.changed[at, 1]
        y += pile.changed[at, 2]
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
def holds(pile, columns, num, base, height, found, count, candidate):
    """Return True if a candidate on these contacts and all boxes below hold; count from 1."""
    start = pile.first[num]
    stop = start + count
    for k in range(count):
        below = found[k, 0]
        set_contact(pile, start + k, below, found[k, 1], found[k, 2], found[k, 3], found[k, 4])
        pile.stamp[below], pile.mark[below], pile.direct[below] = candidate, candidate, start + k
    mass = float(base[3] - base[0]) * float(base[4] - base[1]) * float(height)
    x = mass * (0.5 * float(base[0] + base[3])) / mass
    y = mass * (0.5 * float(base[1] + base[4])) / mass
    mean_x, mean_y = _hull_mean(pile, start, stop)
    if not _is_held(pile, start, stop, mean_x, mean_y, x, y):
        return False
    _pass_down(pile, start, stop, mass, x, y, pile.changed)
    for i in range(found[count - 1, 0], -1, -1):
        if pile.stamp[i] == candidate and columns[2, i] > 0:
            start, stop = pile.first[i], pile.first[i + 1]
            mass, x, y = _total(pile, i, candidate)
            if not _is_held(pile, start, stop, pile.mean[i, 0], pile.mean[i, 1], x, y):
                return False
            _pass_down(pile, start, stop, mass, x, y, pile.changed)
            for at in range(start, stop):
                pile.stamp[pile.below[at]] = candidate
    return True


# ---------------------------------------------------------------------- the outline


@jit
def _is_held(pile, start, stop, mean_x, mean_y, x, y):
    """Return True if (x, y) lies strictly inside the shrunken hull of the contacts; see eager."""
    x = (x - SHRINK * mean_x) * BLOW_UP
    y = (y - SHRINK * mean_y) * BLOW_UP
    above, below = y + TOLERANCE, y - TOLERANCE
    up_left = up_right = down_left = down_right = -np.inf
    is_left = is_right = False
    for at in range(start, stop):
        high, low = pile.rectangle[at, 3] - above, below - pile.rectangle[at, 1]
        for side in range(0, 4, 2):
            dx = pile.rectangle[at, side] - x
            distance = max(abs(dx), TOLERANCE)
            steep, shallow = high / distance, low / distance
            is_left |= dx < -TOLERANCE
            is_right |= dx > TOLERANCE
            if dx <= TOLERANCE:
                up_left, down_left = max(up_left, steep), max(down_left, shallow)
            if dx >= -TOLERANCE:
                up_right, down_right = max(up_right, steep), max(down_right, shallow)
    return is_left and is_right and up_left + up_right > 0 and down_left + down_right > 0


@jit
def _hull_mean(pile, start, stop):
    """Return the mean of the corners of the contacts' hull, without points inside an edge."""
    corners, total_x, total_y = 0, 0, 0
    for way in range(2):
        num = 0
        for at in range(start, stop):
            y = -pile.rectangle[at, 1] if way else pile.rectangle[at, 3]
            num = _insert(pile.points, num, pile.rectangle[at, 0], y)
            num = _insert(pile.points, num, pile.rectangle[at, 2], y)
        upper = _upper_chain(pile.points[:num], pile.chain)
        for k in range(upper):
            total_x += pile.chain[k, 0]
            total_y += -pile.chain[k, 1] if way else pile.chain[k, 1]
        corners += upper
    corners = max(corners, 1)
    return float(total_x) / float(corners), float(total_y) / float(corners)


@jit
def _insert(points, num, x, y):
    """Insert a point into those sorted by x; of one x only the highest is kept."""
    at = num
    while at > 0 and points[at - 1, 0] > x:
        at -= 1
    if at > 0 and points[at - 1, 0] == x:
        points[at - 1, 1] = max(points[at - 1, 1], y)
        return num
    for k in range(num, at, -1):
        points[k, 0], points[k, 1] = points[k - 1, 0], points[k - 1, 1]
    points[at, 0], points[at, 1] = x, y
    return num + 1


@jit
def _upper_chain(points, chain):
    """Copy the corners of the upper side of the hull of sorted points; return their count."""
    num = 0
    for k in range(points.shape[0]):
        x, y = points[k, 0], points[k, 1]
        while num > 1:
            dx, dy = chain[num - 1, 0] - chain[num - 2, 0], chain[num - 1, 1] - chain[num - 2, 1]
            if dx * (y - chain[num - 2, 1]) - dy * (x - chain[num - 2, 0]) < 0:
                break
            num -= 1
        chain[num, 0], chain[num, 1] = x, y
        num += 1
    return num


# ---------------------------------------------------------------------- shares


@jit
def _pass_down(pile, start, stop, mass, x, y, load):
    """Put a load with centre of mass (x, y) on the contacts start <= c < stop."""
    directly = _shares(pile, start, stop, x, y)
    for at in range(start, stop):
        part = pile.share[at - start] * mass
        load[at, 0] = part
        load[at, 1] = part * (x if directly else pile.middle[at, 0])
        load[at, 2] = part * (y if directly else pile.middle[at, 1])


@jit
def _shares(pile, start, stop, x, y):
    """Fill in the share that each contact takes; return True if one takes all, at (x, y)."""
    count = stop - start
    pile.share[:count] = 0.0
    for at in range(start, stop):
        corner = pile.rectangle[at]
        over = x - corner[0] > TOLERANCE and y - corner[1] > TOLERANCE
        over = over and corner[2] - x > TOLERANCE and corner[3] - y > TOLERANCE
        if over or count == 1:
            pile.share[at - start] = 1.0
            return True
    if count == 2:
        along_x = pile.middle[start, 0] - pile.middle[start + 1, 0]
        along_y = pile.middle[start, 1] - pile.middle[start + 1, 1]
        length = along_x * along_x + along_y * along_y
        for k in range(2):
            other = start + 1 - k
            off_x, off_y = x - pile.middle[other, 0], y - pile.middle[other, 1]
            pile.share[k] = abs(off_x * along_x + off_y * along_y) / length
    elif count > 2:
        num = min(count, MAX_SHARING)
        _normal_equations(pile.middle[start : start + num], pile.matrix, x, y)
        _solve(pile.matrix, pile.share, num)
    return False


@jit
def _normal_equations(middle, matrix, x, y):
    """Fill in the upper triangle."""
    num = middle.shape[0]
    for i in range(num):
        matrix[i, i] = 0.0
    for i in range(num):
        pairs = 0
        square = matrix[i, i]
        off_x, off_y = x - middle[i, 0], y - middle[i, 1]
        for j in range(i + 1, num):
            along_x, along_y = middle[i, 0] - middle[j, 0], middle[i, 1] - middle[j, 1]
            arm = off_x * along_x + off_y * along_y
            ratio = 0.0
            if not abs(arm) <= TOLERANCE:
                other_x, other_y = x - middle[j, 0], y - middle[j, 1]
                ratio = abs(other_x * along_x + other_y * along_y) / arm
                pairs += 1
            matrix[i, j] = 1.0 - ratio
            matrix[j, j] += ratio * ratio
        matrix[i, i] = (1.0 + RIDGE) + float(pairs) + square


@jit
def _solve(matrix, solved, num):
    """Solve for a right side of ones, in place."""
    solved[:num] = 1.0
    for k in range(num - 1):
        for i in range(k + 1, num):
            factor = matrix[k, i] / matrix[k, k]
            for j in range(i, num):
                matrix[i, j] -= factor * matrix[k, j]
            solved[i] -= factor * solved[k]
    for k in range(num - 1, -1, -1):
        solved[k] /= matrix[k, k]
        for i in range(k):
            solved[i] -= matrix[i, k] * solved[k]
