"""Embedded items of the families `extrusions` and `brackets` (lengths written in centimetres)."""

from __future__ import annotations

from functools import partial

import numpy as np

from packing_env.items.shapes.layers import Outline, extrusion, stack
from packing_env.items.shapes.polygons import (
    Length,
    arc,
    gear,
    polygon,
    rectangle,
    regular,
    shifted,
    star,
)
from packing_env.items.shapes.solids import Maker, Solid

CM = 0.01


def _hole(radius: Length, x: Length = 0.0, y: Length = 0.0, sides: int = 16) -> Outline:
    """Make the outline of a round hole at (x, y), centimetres."""
    return CM * shifted(regular(sides, radius), x, y)


def _crescent() -> Outline:
    """Make the outline of a C-shaped band over 250 degrees."""
    return CM * polygon(*arc(7.5, 55, 305, 20), *arc(3.8, 305, 55, 16))


def _t_slot() -> Outline:
    """Make the outline of an 8 x 8 cm structural profile with one T slot per side."""
    quarter = np.array([(1.0, 4.0), (1.0, 2.9), (2.0, 2.9), (2.0, 2.2), (0.9, 1.4)])
    corner = np.array(
        [(4.0, -4.0), (4.0, -1.0), (2.9, -1.0), (2.9, -2.0), (2.2, -2.0), (1.4, -0.9)]
    )
    mirrored = quarter[:, [1, 0]][::-1]
    side = np.vstack([corner, mirrored])
    turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    sides = [side]
    for _ in range(3):
        sides.append(sides[-1] @ turn)
    return CM * np.vstack(sides)


def _flange() -> Solid:
    bore, bolts = _hole(2.4), [_hole(0.8, x, y, sides=8) for x, y in regular(6, 6.0).tolist()]
    disc, hub = CM * regular(32, 8.0), CM * regular(24, 4.0)
    return stack([([disc, bore, *bolts], 2.5 * CM), ([hub, bore], 5 * CM)])


def _angle_bracket() -> Solid:
    plate = CM * polygon((0, 0), (3, 0), (14, 0), (14, 10), (3, 10), (0, 10))
    leg = CM * polygon((0, 0), (3, 0), (3, 10), (0, 10))
    holes = [_hole(1.2, 9.5, y) for y in (2.5, 7.5)]
    return stack([([plate, *holes], 3 * CM), ([leg], 9 * CM)])


def _counterbored_block() -> Solid:
    block = CM * rectangle(12, 9)
    return stack([([block, _hole(1.8)], 3.5 * CM), ([block, _hole(3.2)], 4 * CM)])


def _pillow_block() -> Solid:
    top = [(x, y + 6.0) for x, y in arc(4.5, 0, 180, 12)]
    outline = polygon((-8, 0), (8, 0), (8, 2.5), (4.5, 2.5), *top, (-4.5, 2.5), (-8, 2.5))
    return extrusion(CM * outline, 7 * CM, [_hole(2.5, 0, 6)])


def _clevis() -> Solid:
    base = [(0.0, 0.0), (6.0, 0.0), (6.0, 8.0), (0.0, 8.0)]
    tip = [(x + 10.0, y + 4.0) for x, y in arc(4.0, -90, 90, 10)]
    ear = CM * polygon(*base[:2], *tip, *base[2:])
    layer = [ear, _hole(1.7, 10, 4)]
    return stack([(layer, 2.5 * CM), ([CM * polygon(*base)], 4 * CM), (layer, 2.5 * CM)])


def _stepped_block() -> Solid:
    steps = [
        polygon((0, 0), (3, 0), (6, 0), (9, 0), (9, 11), (6, 11), (3, 11), (0, 11)),
        polygon((0, 0), (3, 0), (6, 0), (6, 11), (3, 11), (0, 11)),
        polygon((0, 0), (3, 0), (3, 11), (0, 11)),
    ]
    holes = [[(7.5, 3.0), (7.5, 8.0), (4.5, 5.5)], [(4.5, 5.5)], []]
    return stack(
        [
            ([CM * step, *(_hole(0.9, x, y, sides=8) for x, y in at)], 3.5 * CM)
            for step, at in zip(steps, holes, strict=True)
        ]
    )


def _lever() -> Solid:
    big, small = arc(4.0, 80, 280, 14), [(x + 11.0, y) for x, y in arc(2.5, -80, 80, 8)]
    link = CM * polygon(*big, *small)
    holes = [_hole(1.6), _hole(1.0, 11.0, sides=8)]
    bosses = [CM * regular(16, 3.0), CM * shifted(regular(12, 1.8), 11.0, 0.0)]
    return stack([([link, *holes], 3 * CM), ([*bosses, *holes], 3 * CM)])


def _dovetail_slide() -> Solid:
    outline = polygon((-5, 0), (5, 0), (5, 4), (2.2, 4), (3.8, 7), (-3.8, 7), (-2.2, 4), (-5, 4))
    return extrusion(CM * outline, 12 * CM, [_hole(1.2, 0, 2)]).lying()


EXTRUSIONS: dict[str, Maker] = {
    "l_profile": lambda: extrusion(
        CM * polygon((0, 0), (14, 0), (14, 4), (4, 4), (4, 10), (0, 10)), 9 * CM
    ),
    "t_profile": lambda: extrusion(
        CM * polygon((5, 0), (9, 0), (9, 6), (14, 6), (14, 10), (0, 10), (0, 6), (5, 6)), 10 * CM
    ),
    "u_profile": lambda: extrusion(
        CM * polygon((0, 0), (12, 0), (12, 10), (9, 10), (9, 3), (3, 3), (3, 10), (0, 10)), 10 * CM
    ),
    "plus_profile": lambda: extrusion(
        CM
        * polygon(
            *[(-2, -6), (2, -6), (2, -2), (6, -2), (6, 2), (2, 2)],
            *[(2, 6), (-2, 6), (-2, 2), (-6, 2), (-6, -2), (-2, -2)],
        ),
        9 * CM,
    ),
    "star_prism": lambda: extrusion(CM * star(5, 8.5, 4.5), 6 * CM),
    "gear": lambda: extrusion(CM * gear(12, 8.0, 6.4), 5 * CM, [_hole(1.8)]),
    "hexagon_prism": lambda: extrusion(CM * regular(6, 6.0), 9 * CM),
    "crescent": lambda: extrusion(_crescent(), 7 * CM),
    "ramp": lambda: extrusion(CM * polygon((0, 0), (15, 0), (15, 8), (13, 8)), 10 * CM),
}

BRACKETS: dict[str, Maker] = {
    "flange": _flange,
    "angle_bracket": _angle_bracket,
    "counterbored_block": _counterbored_block,
    "pillow_block": _pillow_block,
    "clevis": _clevis,
    "stepped_block": _stepped_block,
    "lever": _lever,
    "dovetail_slide": _dovetail_slide,
    "t_slot_rail": partial(extrusion, _t_slot(), 18 * CM),
}
