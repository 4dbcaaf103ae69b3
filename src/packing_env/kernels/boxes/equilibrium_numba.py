"""Static equilibrium compiled for the CPU; defined in :mod:`packing_env.reference.equilibrium`.

Sums are taken in the order of `kernels.boxes.equilibrium_eager`, so both return the same bits.
``pile`` is a `pile_numba.Pile`.
"""

from __future__ import annotations

from packing_env.kernels.boxes.equilibrium_eager import FLAT, MARGIN, MAX_CONTACTS, ROUNDS
from packing_env.kernels.compiled.jit import jit

_X, _Y, _ACTIVE, _FORCE, _SUM = 0, 1, 2, 3, 4
"""Rows of ``Pile.plate``: coordinates relative to the load, whether a corner is active, its force,
and the first of six rows with terms to sum.
"""


@jit
def press(pile, start, stop, load, target):
    """Put mass and moments on the contacts start <= c < stop; return whether they hold the load."""
    mass, moment_x, moment_y = load
    # 1. If the centre of mass is inside a contact, by the margin, the first such contact takes the
    #    load.
    x, y = moment_x / mass, moment_y / mass
    for at in range(start, stop):
        target[at, 0] = target[at, 1] = target[at, 2] = 0.0
    for at in range(start, stop):
        rectangle = pile.rectangle[at]
        over = x - rectangle[0] >= MARGIN and rectangle[2] - x >= MARGIN
        if over and y - rectangle[1] >= MARGIN and rectangle[3] - y >= MARGIN:
            target[at, 0], target[at, 1], target[at, 2] = mass, moment_x, moment_y
            return True
    # 2. Otherwise the corners of all contacts share it.
    if stop - start < 2 or stop - start > MAX_CONTACTS:
        return False
    if not _find_forces(pile, start, stop, x, y):
        return False
    corner = 0
    for at in range(start, stop):
        for k in range(4):
            part = mass * pile.plate[_FORCE, corner]
            side_x, side_y = _corner(pile.rectangle[at], k)
            target[at, 0] += part
            target[at, 1] += part * side_x
            target[at, 2] += part * side_y
            corner += 1
    return True


@jit
def _corner(rectangle, k):
    """Return a corner of a contact, moved inside by the margin."""
    # Corners 0 and 1 are at the lower x, 0 and 2 at the lower y.
    x = float(rectangle[0]) + MARGIN if k < 2 else float(rectangle[2]) - MARGIN
    y = float(rectangle[1]) + MARGIN if k % 2 == 0 else float(rectangle[3]) - MARGIN
    return x, y


@jit
def _find_forces(pile, start, stop, x, y):
    """Find the forces at the corners under a mass of 1 at (x, y); return whether forces exist."""
    # 1. Corners relative to the load; all are active at first.
    plate, count, width = pile.plate, 4 * (stop - start), 1
    while width < count:
        width *= 2
    for at in range(start, stop):
        for k in range(4):
            side_x, side_y = _corner(pile.rectangle[at], k)
            corner = 4 * (at - start) + k
            plate[_X, corner], plate[_Y, corner] = side_x - x, side_y - y
            plate[_ACTIVE, corner] = 1.0
    # 2. Solve for a plane of forces, drop the corners that pull, and solve again.
    for _ in range(ROUNDS):
        _add_up(plate, count, width)
        n, sx, sy = plate[_SUM, 0], plate[_SUM + 1, 0], plate[_SUM + 2, 0]
        sxx, sxy, syy = plate[_SUM + 3, 0], plate[_SUM + 4, 0], plate[_SUM + 5, 0]
        # Cramer's rule; corners on a line have no determinant.
        a, b, c = sxx * syy - sxy * sxy, sxy * sy - sx * syy, sx * sxy - sxx * sy
        determinant = n * a + sx * b + sy * c
        if not determinant > FLAT * (n * sxx * syy):
            return False
        # The forces, and whether any of them pulls.
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
    """Sum the terms of the active corners: add the two halves until one number is left."""
    # 1. The terms; 0 in the padding beyond the corners.
    for k in range(width):
        active = k < count and plate[_ACTIVE, k] > 0.0
        x, y = (plate[_X, k], plate[_Y, k]) if active else (0.0, 0.0)
        plate[_SUM, k] = 1.0 if active else 0.0
        plate[_SUM + 1, k], plate[_SUM + 2, k] = x, y
        plate[_SUM + 3, k], plate[_SUM + 4, k], plate[_SUM + 5, k] = x * x, x * y, y * y
    # 2. Add halves, in the order of the eager kernel.
    while width > 1:
        width //= 2
        for row in range(_SUM, _SUM + 6):
            for k in range(width):
                plate[row, k] += plate[row, k + width]
