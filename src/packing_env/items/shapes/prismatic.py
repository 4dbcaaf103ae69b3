"""Embedded items of the families `polycubes`, `extrusions` and `brackets`.

Lengths of extrusions and brackets are written in centimetres.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import product

import numpy as np

from packing_env.items.shapes import polygons
from packing_env.items.shapes.layers import Outline, stack
from packing_env.items.shapes.polygons import CM, Length, arc, polygon, rectangle, regular, shifted
from packing_env.items.shapes.solids import Maker, Solid, polycube


def layered(*layers: tuple[Sequence[Outline], Length]) -> Solid:
    """Stack layers (outlines, thickness) in centimetres."""
    return stack([([CM * line for line in lines], thickness * CM) for lines, thickness in layers])


def _prism(height: Length, *outlines: Outline) -> Solid:
    return layered((outlines, height))


def _disc(radius: Length, x: Length = 0.0, y: Length = 0.0, sides: int = 16) -> Outline:
    """Make the outline of a round hole or disc at (x, y)."""
    return shifted(regular(sides, radius), x, y)


def _quartered(side: Outline) -> Outline:
    """Make an outline from its right or lower side, by three quarter turns."""
    x, y = side.T
    return np.vstack([side, *(np.stack(p, 1) for p in ((-y, x), (-x, -y), (y, -x)))])


def _flange() -> Solid:
    bore, bolts = _disc(2.4), [_disc(0.8, x, y, 8) for x, y in regular(6, 6.0).tolist()]
    return layered(([_disc(8, sides=32), bore, *bolts], 2.5), ([_disc(4, sides=24), bore], 5))


def _angle_bracket() -> Solid:
    plate = polygon((0, 0), (3, 0), (14, 0), (14, 10), (3, 10), (0, 10))
    leg = polygon((0, 0), (3, 0), (3, 10), (0, 10))
    return layered(([plate, _disc(1.2, 9.5, 2.5), _disc(1.2, 9.5, 7.5)], 3), ([leg], 9))


def _pillow_block() -> Solid:
    top = [(x, y + 6.0) for x, y in arc(4.5, 0, 180, 12)]
    outline = polygon((-8, 0), (8, 0), (8, 2.5), (4.5, 2.5), *top, (-4.5, 2.5), (-8, 2.5))
    return _prism(7, outline, _disc(2.5, 0, 6))


def _clevis() -> Solid:
    base = [(0.0, 0.0), (6.0, 0.0), (6.0, 8.0), (0.0, 8.0)]
    tip = [(x + 10.0, y + 4.0) for x, y in arc(4.0, -90, 90, 10)]
    ear = ([polygon(*base[:2], *tip, *base[2:]), _disc(1.7, 10, 4)], 2.5)
    return layered(ear, ([polygon(*base)], 4), ear)


def _stepped_block() -> Solid:
    holes = [_disc(0.9, x, y, 8) for x, y in ((7.5, 3.0), (7.5, 8.0), (4.5, 5.5))]
    layers = []
    for edges, inside in ((0, 3, 6, 9), holes), ((0, 3, 6), holes[2:]), ((0, 3), []):
        step = polygon(*((x, 0) for x in edges), *((x, 11) for x in edges[::-1]))
        layers.append(([step, *inside], 3.5))
    return layered(*layers)


def _lever() -> Solid:
    link = polygon(*arc(4.0, 80, 280, 14), *((x + 11.0, y) for x, y in arc(2.5, -80, 80, 8)))
    holes = [_disc(1.6), _disc(1.0, 11.0, sides=8)]
    return layered(([link, *holes], 3), ([_disc(3), _disc(1.8, 11.0, sides=12), *holes], 3))


def _dovetail_slide() -> Solid:
    outline = polygon((-5, 0), (5, 0), (5, 4), (2.2, 4), (3.8, 7), (-3.8, 7), (-2.2, 4), (-5, 4))
    return _prism(12, outline, _disc(1.2, 0, 2)).lying()


def _t_slot_rail() -> Solid:
    """Make an 8 x 8 cm structural profile with one T slot per side."""
    slot = [(4, -1), (2.9, -1), (2.9, -2), (2.2, -2), (1.4, -0.9)]
    return _prism(18, _quartered(polygon((4, -4), *slot, *((x, -y) for x, y in slot[::-1]))))


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

EXTRUSIONS: dict[str, Maker] = {
    "l_profile": lambda: _prism(9, polygon((0, 0), (14, 0), (14, 4), (4, 4), (4, 10), (0, 10))),
    "t_profile": lambda: _prism(
        10, polygon((5, 0), (9, 0), (9, 6), (14, 6), (14, 10), (0, 10), (0, 6), (5, 6))
    ),
    "u_profile": lambda: _prism(
        10, polygon((0, 0), (12, 0), (12, 10), (9, 10), (9, 3), (3, 3), (3, 10), (0, 10))
    ),
    "plus_profile": lambda: _prism(9, _quartered(polygon((-2, -6), (2, -6), (2, -2)))),
    "star_prism": lambda: _prism(6, polygons.star(5, 8.5, 4.5)),
    "gear": lambda: _prism(5, polygons.gear(12, 8.0, 6.4), _disc(1.8)),
    "hexagon_prism": lambda: _prism(9, regular(6, 6.0)),
    # A C-shaped band over 250 degrees.
    "crescent": lambda: _prism(7, polygon(*arc(7.5, 55, 305, 20), *arc(3.8, 305, 55, 16))),
    "ramp": lambda: _prism(10, polygon((0, 0), (15, 0), (15, 8), (13, 8))),
}

BRACKETS: dict[str, Maker] = {
    "flange": _flange,
    "angle_bracket": _angle_bracket,
    "counterbored_block": lambda: layered(
        ([rectangle(12, 9), _disc(1.8)], 3.5), ([rectangle(12, 9), _disc(3.2)], 4)
    ),
    "pillow_block": _pillow_block,
    "clevis": _clevis,
    "stepped_block": _stepped_block,
    "lever": _lever,
    "dovetail_slide": _dovetail_slide,
    "t_slot_rail": _t_slot_rail,
}
