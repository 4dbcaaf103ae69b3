"""The stacking tree compiled for the CPU; defined in :mod:`packing_env.reference.boxes`.

Sums are taken in the order of `kernels.boxes.tree_eager`, so both return the same bits. ``pile`` is
a `pile_numba.Pile`.
"""

from __future__ import annotations

import numpy as np

from packing_env.kernels.boxes.tree_eager import BLOW_UP, MAX_SHARING, RIDGE, SHRINK, TOLERANCE
from packing_env.kernels.compiled.jit import jit


@jit
def share_load(pile, i, start, stop, load, target):
    """Put mass and moments on box i's contacts start <= c < stop; return whether they hold it."""
    # Each share acts at the centre of its contact; an undivided load acts at its centre of mass.
    mass, moment_x, moment_y = load
    x, y = moment_x / mass, moment_y / mass
    directly = _shares(pile, start, stop, x, y)
    for at in range(start, stop):
        part = pile.share[at - start] * mass
        target[at, 0] = part
        target[at, 1] = part * (x if directly else pile.middle[at, 0])
        target[at, 2] = part * (y if directly else pile.middle[at, 1])
    return _is_held(pile, start, stop, pile.mean[i], x, y)


@jit
def _is_held(pile, start, stop, mean, x, y):
    """Return whether (x, y) lies strictly inside the shrunken hull of the contacts; see `eager`."""
    # 1. Move the point away from the mean, instead of shrinking the hull.
    x = (x - SHRINK * mean[0]) * BLOW_UP
    y = (y - SHRINK * mean[1]) * BLOW_UP
    above, below = y + TOLERANCE, y - TOLERANCE
    up_left = up_right = down_left = down_right = -np.inf
    is_left = is_right = False
    # 2. The steepest slopes to corners on its left and right, above and below.
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
def set_mean(pile, i):
    """Set the mean of the corners of the hull of box i's contacts: see `tree_eager`."""
    start, stop = pile.first[i], pile.first[i + 1]
    corners, total_x, total_y = 0, 0, 0
    # Upper corners first, then the lower ones by mirroring.
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
    pile.mean[i, 0] = float(total_x) / float(corners)
    pile.mean[i, 1] = float(total_y) / float(corners)


@jit
def _insert(points, num, x, y):
    """Insert a point into points sorted by x; for equal x only the highest point is kept."""
    # 1. Find its index in the order of x.
    at = num
    while at > 0 and points[at - 1, 0] > x:
        at -= 1
    if at > 0 and points[at - 1, 0] == x:
        points[at - 1, 1] = max(points[at - 1, 1], y)
        return num
    # 2. Shift the points after it.
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
        # Drop corners where the chain does not turn right.
        while num > 1:
            dx, dy = chain[num - 1, 0] - chain[num - 2, 0], chain[num - 1, 1] - chain[num - 2, 1]
            if dx * (y - chain[num - 2, 1]) - dy * (x - chain[num - 2, 0]) < 0:
                break
            num -= 1
        chain[num, 0], chain[num, 1] = x, y
        num += 1
    return num


@jit
def _shares(pile, start, stop, x, y):
    """Fill in the share of each contact; return whether a single contact takes all, at (x, y)."""
    count = stop - start
    pile.share[:count] = 0.0
    # 1. A single contact takes the whole load, and so does the first contact under the centre of
    #    mass.
    for at in range(start, stop):
        corner = pile.rectangle[at]
        over = x - corner[0] > TOLERANCE and y - corner[1] > TOLERANCE
        over = over and corner[2] - x > TOLERANCE and corner[3] - y > TOLERANCE
        if over or count == 1:
            pile.share[at - start] = 1.0
            return True
    # 2. Two share by the lever rule.
    if count == 2:
        along_x = pile.middle[start, 0] - pile.middle[start + 1, 0]
        along_y = pile.middle[start, 1] - pile.middle[start + 1, 1]
        length = along_x * along_x + along_y * along_y
        for k in range(2):
            other = start + 1 - k
            off_x, off_y = x - pile.middle[other, 0], y - pile.middle[other, 1]
            pile.share[k] = abs(off_x * along_x + off_y * along_y) / length
    # 3. More contacts share by least squares; contacts after MAX_SHARING get nothing.
    elif count > 2:
        num = min(count, MAX_SHARING)
        _normal_equations(pile.middle[start : start + num], pile.matrix, x, y)
        _solve(pile.matrix, pile.share, num)
    return False


@jit
def _normal_equations(middle, matrix, x, y):
    """Fill in the upper triangle of the normal equations: see `tree_eager`."""
    # The diagonal collects squares of ratios from the rows above it.
    num = middle.shape[0]
    for i in range(num):
        matrix[i, i] = 0.0
    for i in range(num):
        pairs = 0
        square = matrix[i, i]
        # Lever arms of the load about contact i, along the line to contact j.
        off_x, off_y = x - middle[i, 0], y - middle[i, 1]
        for j in range(i + 1, num):
            along_x, along_y = middle[i, 0] - middle[j, 0], middle[i, 1] - middle[j, 1]
            arm = off_x * along_x + off_y * along_y
            ratio = 0.0
            # A pair whose arm is 0 does not count.
            if not abs(arm) <= TOLERANCE:
                other_x, other_y = x - middle[j, 0], y - middle[j, 1]
                ratio = abs(other_x * along_x + other_y * along_y) / arm
                pairs += 1
            matrix[i, j] = 1.0 - ratio
            matrix[j, j] += ratio * ratio
        matrix[i, i] = (1.0 + RIDGE) + float(pairs) + square


@jit
def _solve(matrix, solved, num):
    """Solve the equations for a right-hand side of ones, in place."""
    # Eliminate.
    solved[:num] = 1.0
    for k in range(num - 1):
        for i in range(k + 1, num):
            factor = matrix[k, i] / matrix[k, k]
            for j in range(i, num):
                matrix[i, j] -= factor * matrix[k, j]
            solved[i] -= factor * solved[k]
    # Substitute backwards.
    for k in range(num - 1, -1, -1):
        solved[k] /= matrix[k, k]
        for i in range(k):
            solved[i] -= matrix[i, k] * solved[k]
