"""Embedded items of the families `polycubes` and `superquadrics`."""

from __future__ import annotations

from functools import partial
from itertools import product

from packing_env.items.shapes.solids import Maker, polycube, superquadric

# Tetracubes, pentacubes and larger unions of cubes with edges of 4 to 6 cm.
POLYCUBES: dict[str, Maker] = {
    "tetracube_l": partial(polycube, [(0, 0, 0), (1, 0, 0), (2, 0, 0), (2, 1, 0)], 0.05),
    "tetracube_t": partial(polycube, [(0, 0, 0), (1, 0, 0), (2, 0, 0), (1, 1, 0)], 0.055),
    "tetracube_skew": partial(polycube, [(0, 0, 0), (1, 0, 0), (1, 1, 0), (2, 1, 0)], 0.05),
    "tetracube_screw": partial(polycube, [(0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 1)], 0.06),
    "tetracube_tripod": partial(polycube, [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], 0.06),
    "pentacube_cross": partial(
        polycube, [(1, 0, 0), (0, 1, 0), (1, 1, 0), (2, 1, 0), (1, 2, 0)], 0.05
    ),
    "arch": partial(
        polycube,
        [(x, y, z) for x, y, z in product(range(3), range(2), range(2)) if x != 1 or z],
        0.04,
    ),
    "staircase": partial(
        polycube,
        [(x, y, z) for x, y, z in product(range(3), range(2), range(3)) if x + z < 3],
        0.04,
    ),
}

SUPERQUADRICS: dict[str, Maker] = {
    "sphere": partial(superquadric, (0.055, 0.055, 0.055)),
    "ellipsoid": partial(superquadric, (0.085, 0.055, 0.045)),
    "rounded_box": partial(superquadric, (0.06, 0.045, 0.04), (0.3, 0.3)),
    "rounded_cylinder": partial(superquadric, (0.045, 0.045, 0.065), (0.3, 1.0)),
    "pillow": partial(superquadric, (0.08, 0.065, 0.035), (1.0, 0.4)),
    "octahedron": partial(superquadric, (0.085, 0.085, 0.085), (2.0, 2.0), 8, 4),
    "bicone": partial(superquadric, (0.07, 0.07, 0.09), (2.0, 1.0), 24, 2),
    "pinched_star": partial(superquadric, (0.1, 0.1, 0.05), (0.6, 2.6), 24, 10),
}
