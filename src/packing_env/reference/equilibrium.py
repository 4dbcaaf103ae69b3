"""The specification of static equilibrium of piles of boxes, in plain loops.

A pile stands if there are vertical forces between its boxes that hold each box with its load.
Without friction, bodies stay at rest iff such forces exist (Gauss's principle of least constraint:
the accelerations are unique, so it suffices that one set of forces gives no acceleration). Friction
and walls can only add support. The search for forces starts at the top box and goes down; each load
is distributed to its supports once. So every accepted pile is in equilibrium, but some piles in
equilibrium are refused: 1 % of the random piles for which a linear programme finds forces
(`benchmarks/equilibrium.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from packing_env.reference.stability import Rectangle

Load = tuple[float, float, float]
"""Mass, and mass times position along ``x`` and ``y``."""

MARGIN = 1 / 64
"""Units; forces act at least this far inside a contact. With whole units, a load may lie exactly on
the edge of its support, where the slightest push topples it; this margin makes such piles unstable.
"""
ROUNDS = 6
"""Number of solutions that are tried for the forces at the corners of several contacts."""
MAX_CONTACTS = 16
"""If a load lies above none of its contacts and has more contacts than this, it is refused."""
FLAT = 1e-9
"""Corners whose determinant, as a share of the product of the diagonal, is smaller lie on a line.
"""


def loads_below(load: Load, contacts: Sequence[Rectangle]) -> list[Load] | None:
    """Return each contact's share of the load, or None if the contacts cannot hold it.

    - If the centre of mass is at least :data:`MARGIN` inside a contact, the first such contact in
      packing order takes the whole load.
    - Otherwise each corner of each contact, moved inside by the margin, is a spring; all springs
      have the same stiffness. The load tilts as a rigid plate: the force at ``(x, y)`` is ``a + b x
      + c y``, where a, b and c follow from the balance of force and of both moments. Corners that
      would have to pull are left out and the forces are solved again, up to :data:`ROUNDS` times.
    """
    mass, x, y = load[0], load[1] / load[0], load[2] / load[0]
    for number, (x0, y0, x1, y1) in enumerate(contacts):
        if min(x - x0, x1 - x, y - y0, y1 - y) >= MARGIN:
            return [load if i == number else (0.0, 0.0, 0.0) for i in range(len(contacts))]
    if not 2 <= len(contacts) <= MAX_CONTACTS:
        return None
    corners = [
        (number, at_x, at_y)
        for number, (x0, y0, x1, y1) in enumerate(contacts)
        for at_x in (x0 + MARGIN, x1 - MARGIN)
        for at_y in (y0 + MARGIN, y1 - MARGIN)
    ]
    for _ in range(ROUNDS):
        forces = plate([(at_x - x, at_y - y) for _, at_x, at_y in corners])
        if forces is None:
            return None
        if min(forces) >= 0:
            loads = np.zeros((len(contacts), 3))
            for (number, at_x, at_y), force in zip(corners, forces, strict=True):
                loads[number] += mass * force, mass * force * at_x, mass * force * at_y
            return [(float(m), float(mx), float(my)) for m, mx, my in loads]
        corners = [c for c, force in zip(corners, forces, strict=True) if force >= 0]
    return None


def plate(at: list[tuple[float, float]]) -> list[float] | None:
    """Return the forces at points that carry a mass of 1 at the origin; None if all lie on a line.

    The forces are ``a + b x + c y``; negative forces pull. Their sum is 1, and their moments are 0.
    """
    rows = [[1.0, x, y] for x, y in at]
    matrix = [[math.fsum(row[i] * row[j] for row in rows) for j in range(3)] for i in range(3)]
    (n, sx, sy), (_, sxx, sxy), (_, _, syy) = matrix
    # the first column of the adjugate, which solves for a mass at the origin
    a, b, c = sxx * syy - sxy * sxy, sxy * sy - sx * syy, sx * sxy - sxx * sy
    determinant = n * a + sx * b + sy * c
    if determinant <= FLAT * (n * sxx * syy):
        return None
    return [(a + b * x + c * y) / determinant for x, y in at]
