"""Static equilibrium compiled for the CPU; defined in :mod:`packing_env.reference.equilibrium`.

As in `kernels.boxes.tree_numba`, loads of the packed boxes are passed down once for all candidates
of a row, and a candidate only touches the boxes below it. Sums are taken in the order of
`kernels.boxes.equilibrium_eager`, which has the same bits.
"""

from __future__ import annotations

from packing_env.kernels.boxes.equilibrium_eager import FLAT, MARGIN, MAX_CONTACTS, ROUNDS
from packing_env.kernels.boxes.tree_numba import carried, read_contacts, set_contact
from packing_env.kernels.compiled.jit import jit

_X, _Y, _ACTIVE, _FORCE, _SUM = 0, 1, 2, 3, 4
"""Rows of ``Pile.plate``: places relative to the load, whether a corner carries, its force, and
six rows to add up."""


@jit
def read_loads(pile, columns, num):
    """Fill in contacts and loads of the packed boxes of one row; return how many are not held.

    ``pile.mean[i, 0]`` is 1 for a box that is held.
    """
    read_contacts(pile, columns, num)
    falling = 0
    for i in range(num - 1, -1, -1):
        pile.mean[i, 0] = 1.0
        if columns[2, i] > 0:
            start, stop = pile.first[i], pile.first[i + 1]
            mass, x, y = carried(pile, i, 0)
            if not _pass_down(pile, start, stop, mass, x, y, pile.load):
                pile.mean[i, 0] = 0.0
                falling += 1
    return falling


@jit
def stands(pile, columns, num, base, height, found, count, candidate, falling):
    """Return True if a candidate on these contacts leaves a pile that stands; count from 1."""
    start = pile.first[num]
    stop = start + count
    for k in range(count):
        below = found[k, 0]
        set_contact(pile, start + k, below, found[k, 1], found[k, 2], found[k, 3], found[k, 4])
        pile.stamp[below], pile.mark[below], pile.direct[below] = candidate, candidate, start + k
    mass = float(base[3] - base[0]) * float(base[4] - base[1]) * float(height)
    x = mass * (0.5 * float(base[0] + base[3]))
    y = mass * (0.5 * float(base[1] + base[4]))
    if not _pass_down(pile, start, stop, mass, x, y, pile.changed):
        return False
    for i in range(found[count - 1, 0], -1, -1):
        if pile.stamp[i] == candidate and columns[2, i] > 0:
            start, stop = pile.first[i], pile.first[i + 1]
            mass, x, y = carried(pile, i, candidate)
            if not _pass_down(pile, start, stop, mass, x, y, pile.changed):
                return False
            falling -= pile.mean[i, 0] == 0.0  # the candidate holds it down
            for at in range(start, stop):
                pile.stamp[pile.below[at]] = candidate
    return falling == 0


@jit
def _pass_down(pile, start, stop, mass, moment_x, moment_y, load):
    """Put a load on the contacts start <= c < stop; return True if they hold it."""
    x, y = moment_x / mass, moment_y / mass
    for at in range(start, stop):
        load[at, 0] = load[at, 1] = load[at, 2] = 0.0
    for at in range(start, stop):
        rectangle = pile.rectangle[at]
        over = x - rectangle[0] >= MARGIN and rectangle[2] - x >= MARGIN
        if over and y - rectangle[1] >= MARGIN and rectangle[3] - y >= MARGIN:
            load[at, 0], load[at, 1], load[at, 2] = mass, moment_x, moment_y
            return True
    if stop - start < 2 or stop - start > MAX_CONTACTS:
        return False
    if not _press(pile, start, stop, x, y):
        return False
    corner = 0
    for at in range(start, stop):
        for k in range(4):
            part = mass * pile.plate[_FORCE, corner]
            side_x, side_y = _corner(pile.rectangle[at], k)
            load[at, 0] += part
            load[at, 1] += part * side_x
            load[at, 2] += part * side_y
            corner += 1
    return True


@jit
def _corner(rectangle, k):
    """Return a corner of a contact, moved inside by the margin."""
    x = float(rectangle[0]) + MARGIN if k < 2 else float(rectangle[2]) - MARGIN
    y = float(rectangle[1]) + MARGIN if k % 2 == 0 else float(rectangle[3]) - MARGIN
    return x, y


@jit
def _press(pile, start, stop, x, y):
    """Find the forces at the corners under a mass of 1 at (x, y); return True if there are some."""
    plate, count, width = pile.plate, 4 * (stop - start), 1
    while width < count:
        width *= 2
    for at in range(start, stop):
        for k in range(4):
            side_x, side_y = _corner(pile.rectangle[at], k)
            corner = 4 * (at - start) + k
            plate[_X, corner], plate[_Y, corner] = side_x - x, side_y - y
            plate[_ACTIVE, corner] = 1.0
    for _ in range(ROUNDS):
        _add_up(plate, count, width)
        n, sx, sy = plate[_SUM, 0], plate[_SUM + 1, 0], plate[_SUM + 2, 0]
        sxx, sxy, syy = plate[_SUM + 3, 0], plate[_SUM + 4, 0], plate[_SUM + 5, 0]
        a, b, c = sxx * syy - sxy * sxy, sxy * sy - sx * syy, sx * sxy - sxx * sy
        determinant = n * a + sx * b + sy * c
        if not determinant > FLAT * (n * sxx * syy):
            return False
        pulls = False
        for k in range(count):
            force = 0.0
            if plate[_ACTIVE, k] > 0.0:
                force = (a + b * plate[_X, k] + c * plate[_Y, k]) / determinant
                if force < 0.0:
                    plate[_ACTIVE, k] = 0.0
                    pulls = True
            plate[_FORCE, k] = force
        if not pulls:
            return True
    return False


@jit
def _add_up(plate, count, width):
    """Add the terms of the active corners, halves of a power of two at a time."""
    for k in range(width):
        active = k < count and plate[_ACTIVE, k] > 0.0
        x, y = (plate[_X, k], plate[_Y, k]) if active else (0.0, 0.0)
        plate[_SUM, k] = 1.0 if active else 0.0
        plate[_SUM + 1, k], plate[_SUM + 2, k] = x, y
        plate[_SUM + 3, k], plate[_SUM + 4, k], plate[_SUM + 5, k] = x * x, x * y, y * y
    while width > 1:
        width //= 2
        for row in range(_SUM, _SUM + 6):
            for k in range(width):
                plate[row, k] += plate[row, k + width]
