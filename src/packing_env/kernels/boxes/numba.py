"""Cuboids as integer boxes, compiled for the CPU by `kernels.compiled.jit`."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from packing_env.kernels.boxes.pile_numba import new_pile, read_pile, stands
from packing_env.kernels.compiled import stability_rules as rules
from packing_env.kernels.compiled.jit import array, jit, kernel, run
from packing_env.kernels.compiled.stable import contacts_hold
from packing_env.kernels.stability_rules import NAMES, Support


@jit
def _columns(boxes, columns):
    """Copy each coordinate of the packed boxes of one row to its own line; return their count."""
    # Boxes come first, then zeros.
    num = 0
    while num < boxes.shape[0] and boxes[num, 3] > boxes[num, 0]:
        for axis in range(6):
            columns[axis, num] = boxes[num, axis]
        num += 1
    return num


@jit
def _is_box(lower, size):
    sides = size[0] > 0 and size[1] > 0 and size[2] > 0
    return sides and lower[0] >= 0 and lower[1] >= 0


@jit
def _drop_row(columns, num, x0, y0, x1, y1):
    """Return the highest top under a base; without branches, so the loop vectorises."""
    z = np.int32(0)
    for i in range(num):
        over = (columns[0, i] < x1) & (x0 < columns[3, i])
        over &= (columns[1, i] < y1) & (y0 < columns[4, i])
        z = max(z, columns[5, i] if over else np.int32(0))
    return z


@kernel
def _drop(boxes, lower, size, z, start, stop):
    """Fill z for the rows start <= b < stop."""
    columns = np.empty((6, boxes.shape[1]), np.int32)
    for b in range(start, stop):
        num = _columns(boxes[b], columns)
        for p in range(lower.shape[1]):
            z[b, p] = 0
            if _is_box(lower[b, p], size[b, p]):
                x0, y0 = lower[b, p, 0], lower[b, p, 1]
                x1, y1 = np.int32(x0 + size[b, p, 0]), np.int32(y0 + size[b, p, 1])
                z[b, p] = _drop_row(columns, num, x0, y0, x1, y1)


@jit
def _contacts(columns, num, base, rectangles):
    """List the contacts of a base as (box, x0, y0, x1, y1); return their count and total area."""
    x0, y0, z, x1, y1, _ = base
    count, area = 0, 0
    for i in range(num):
        if columns[5, i] == z:
            # The overlap, if it has an area.
            u0, v0 = max(columns[0, i], x0), max(columns[1, i], y0)
            u1, v1 = min(columns[3, i], x1), min(columns[4, i], y1)
            if u0 < u1 and v0 < v1:
                rectangles[count, 0], rectangles[count, 1], rectangles[count, 2] = i, u0, v0
                rectangles[count, 3], rectangles[count, 4] = u1, v1
                count += 1
                area += (u1 - u0) * (v1 - v0)
    return count, area


@jit
def _corners(columns, num, base):
    """Return the highest top over the corner cells of the base, and how many cells have it."""
    highest, count = 0, 0
    # The highest top over each corner cell; the floor is at 0.
    for corner in range(4):
        x = base[0] if corner < 2 else base[3] - 1
        y = base[1] if corner % 2 == 0 else base[4] - 1
        level = 0
        for i in range(num):
            over = (columns[0, i] <= x) & (x < columns[3, i])
            over &= (columns[1, i] <= y) & (y < columns[4, i])
            level = max(level, columns[5, i] if over else 0)
        if level > highest:
            highest, count = level, 0
        count += level == highest
    return highest, count


@jit
def _one_box(columns, num, base, rectangles, rule):
    """Return whether a box on others is stable by a rule that checks one box by itself."""
    # 1. Support and corners.
    count, supported = _contacts(columns, num, base, rectangles)
    area = (base[3] - base[0]) * (base[4] - base[1])
    shares = rules.limits(rule, area)
    corners, touching = 0, False
    if rules.CORNERS[rule]:
        highest, corners = _corners(columns, num, base)
        touching = highest == base[2]
        if not rules.AT_HIGHEST[rule] and not touching:
            corners = 0
    # 2. Compute the hull only if the rule needs it.
    in_hull = False
    if rules.HULLS[rule]:
        without = Support(supported, shares, corners, touching, False, area)
        if rules.COUNTS[rule] and rules.judge(rule, without):
            return True  # rules are monotone: then the hull cannot change the result
        # In half units, so that all numbers are whole; see `eager`.
        inset = 1 if rules.CENTRES[rule] else 0
        in_hull = contacts_hold(rectangles, count, 2, inset, base[0] + base[3], base[1] + base[4])
    # 3. The verdict.
    return rules.judge(rule, Support(supported, shares, corners, touching, in_hull, area))


@jit
def _at_rest(lower, size, z):
    """Return (x0, y0, z0, x1, y1, z1) in 64 bits."""
    x, y, z0 = int(lower[0]), int(lower[1]), int(z)
    return x, y, z0, x + int(size[0]), y + int(size[1]), z0 + int(size[2])


@kernel
def _stable(boxes, lower, size, z, rule, result, start, stop):
    """Fill ``result`` for the rows start <= b < stop by a rule that checks one box by itself."""
    columns = np.empty((6, boxes.shape[1]), np.int32)
    rectangles = np.empty((boxes.shape[1], 5), np.int64)
    for b in range(start, stop):
        num = _columns(boxes[b], columns)
        for p in range(lower.shape[1]):
            result[b, p] = _is_box(lower[b, p], size[b, p])
            if result[b, p] and z[b, p] > 0:
                base = _at_rest(lower[b, p], size[b, p], z[b, p])
                result[b, p] = _one_box(columns, num, base, rectangles, rule)


@kernel
def _stable_pile(boxes, lower, size, z, tree, result, start, stop):
    """Fill ``result`` for the rows start <= b < stop by the stacking tree, or by equilibrium."""
    columns = np.empty((6, boxes.shape[1]), np.int32)
    rectangles = np.empty((boxes.shape[1], 5), np.int64)
    pile = new_pile(boxes.shape[1])
    for b in range(start, stop):
        # The pile is read once per row, at the first candidate that is not on the floor.
        num, is_read, falling = _columns(boxes[b], columns), False, 0
        for p in range(lower.shape[1]):
            result[b, p] = _is_box(lower[b, p], size[b, p])
            if result[b, p] and z[b, p] > 0:
                if not is_read:
                    falling = read_pile(pile, columns, num, tree)
                    is_read = True
                base = _at_rest(lower[b, p], size[b, p], z[b, p])
                count, _ = _contacts(columns, num, base, rectangles)
                contacts = (rectangles, count)
                result[b, p] = stands(pile, columns, num, base, contacts, p + 1, falling, tree)


def box_drop(boxes: Tensor, lower: Tensor, size: Tensor) -> Tensor:
    """Carry out `packing_env.kernels.box_drop`."""
    z = lower.new_empty(lower.shape[:2])
    arrays = (array(boxes), array(lower), array(size), z.numpy())
    run(_drop, arrays, z.shape[0], z.numel() * boxes.shape[1])
    return z


def box_stable(boxes: Tensor, lower: Tensor, size: Tensor, z: Tensor, rule: str) -> Tensor:
    """Carry out `packing_env.kernels.box_stable`."""
    result = z.new_empty(z.shape, dtype=torch.bool)
    arrays = (array(boxes), array(lower), array(size), array(z))
    work = 4 * z.numel() * boxes.shape[1]
    if rule in NAMES:
        run(_stable, (*arrays, NAMES.index(rule), result.numpy()), z.shape[0], work)
    else:
        tree = rule == "stacking_tree"
        run(_stable_pile, (*arrays, tree, result.numpy()), z.shape[0], 8 * work)
    return result
