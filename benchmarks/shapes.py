"""Model the embedded items, and write ``src/packing_env/items/shapes.npz``.

    python benchmarks/shapes.py

The package contains the triangles, because NumPy's sines differ between processors, and episodes
must be equal on all of them. A change of a shape changes episodes, so it needs a new version of the
environment; ``benchmarks/convex_parts.py`` must run after it.

Household items follow the nominal dimensions (millimetres) of Calli, Walsman, Singh, Srinivasa,
Abbeel and Dollar, "Benchmarking in Manipulation Research: Using the Yale-CMU-Berkeley Object and
Model Set", IEEE Robotics & Automation Magazine 22(3), 2015. The forms are modelled here from these
numbers; they are not the scanned meshes. Where the published numbers do not define a part (the
handle of the mug, the grip of the drill), we chose its size. Other lengths are centimetres, except
those of `polycube`, `superquadric`, `box` and `extrusion`, which are metres.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
from shape_makers import (
    CM,
    MM,
    Length,
    Maker,
    Outline,
    Solid,
    arc,
    box,
    extrusion,
    gear,
    loft,
    polycube,
    polygon,
    rectangle,
    regular,
    revolution,
    shifted,
    stack,
    star,
    superellipse,
    superquadric,
)  # fmt: skip

from packing_env.items import shapes


def _layered(*layers: tuple[Sequence[Outline], Length]) -> Solid:
    return stack([([CM * line for line in lines], thickness * CM) for lines, thickness in layers])


def _prism(height: Length, *outlines: Outline) -> Solid:
    return _layered((outlines, height))


def _disc(radius: Length, x: Length = 0.0, y: Length = 0.0, sides: int = 16) -> Outline:
    return shifted(regular(sides, radius), x, y)


def _quartered(side: Outline) -> Outline:
    """Make an outline from one side (the right or the lower) and its three quarter turns."""
    x, y = side.T
    return np.vstack([side, *(np.stack(p, 1) for p in ((-y, x), (-x, -y), (y, -x)))])


def _flange() -> Solid:
    bore, bolts = _disc(2.4), [_disc(0.8, x, y, 8) for x, y in regular(6, 6.0).tolist()]
    return _layered(([_disc(8, sides=32), bore, *bolts], 2.5), ([_disc(4, sides=24), bore], 5))


def _angle_bracket() -> Solid:
    plate = polygon((0, 0), (3, 0), (14, 0), (14, 10), (3, 10), (0, 10))
    leg = polygon((0, 0), (3, 0), (3, 10), (0, 10))
    return _layered(([plate, _disc(1.2, 9.5, 2.5), _disc(1.2, 9.5, 7.5)], 3), ([leg], 9))


def _pillow_block() -> Solid:
    top = [(x, y + 6.0) for x, y in arc(4.5, 0, 180, 12)]
    outline = polygon((-8, 0), (8, 0), (8, 2.5), (4.5, 2.5), *top, (-4.5, 2.5), (-8, 2.5))
    return _prism(7, outline, _disc(2.5, 0, 6))


def _clevis() -> Solid:
    base = [(0.0, 0.0), (6.0, 0.0), (6.0, 8.0), (0.0, 8.0)]
    tip = [(x + 10.0, y + 4.0) for x, y in arc(4.0, -90, 90, 10)]
    ear = ([polygon(*base[:2], *tip, *base[2:]), _disc(1.7, 10, 4)], 2.5)
    return _layered(ear, ([polygon(*base)], 4), ear)


def _stepped_block() -> Solid:
    holes = [_disc(0.9, x, y, 8) for x, y in ((7.5, 3.0), (7.5, 8.0), (4.5, 5.5))]
    layers = []
    for edges, inside in ((0, 3, 6, 9), holes), ((0, 3, 6), holes[2:]), ((0, 3), []):
        step = polygon(*((x, 0) for x in edges), *((x, 11) for x in edges[::-1]))
        layers.append(([step, *inside], 3.5))
    return _layered(*layers)


def _lever() -> Solid:
    link = polygon(*arc(4.0, 80, 280, 14), *((x + 11.0, y) for x, y in arc(2.5, -80, 80, 8)))
    holes = [_disc(1.6), _disc(1.0, 11.0, sides=8)]
    return _layered(([link, *holes], 3), ([_disc(3), _disc(1.8, 11.0, sides=12), *holes], 3))


def _dovetail_slide() -> Solid:
    outline = polygon((-5, 0), (5, 0), (5, 4), (2.2, 4), (3.8, 7), (-3.8, 7), (-2.2, 4), (-5, 4))
    return _prism(12, outline, _disc(1.2, 0, 2)).lying()


def _t_slot_rail() -> Solid:
    slot = [(4, -1), (2.9, -1), (2.9, -2), (2.2, -2), (1.4, -0.9)]
    return _prism(18, _quartered(polygon((4, -4), *slot, *((x, -y) for x, y in slot[::-1]))))


def _revolved(
    *profile: tuple[Length, Length], segments: int = 24, closed: bool = False, unit: Length = CM
) -> Solid:
    return revolution([(r * unit, z * unit) for r, z in profile], segments, closed)


def _tapered(sides: int, *profile: tuple[Length, Length]) -> Solid:
    radii, heights = (np.array(profile) * CM).T.tolist()
    return loft(regular(sides, 1.0, turn=np.pi / sides), heights, radii)


def _bowl_profile(radius: Length, height: Length, wall: Length) -> list[tuple[float, float]]:
    """Make the profile of a round bowl with a flat foot: up to the rim, then down the cavity."""
    outside = [(radius * c, height * (1 - s)) for c, s in arc(1.0, 70, 0, 6)]
    inner = radius - wall
    inside = [(inner * c, height - (height - wall) * s) for c, s in arc(1.0, 0, 90, 6)]
    foot = (outside[0][0], 0.0)
    return [foot, *outside[1:], *inside[:-1], (0.0, wall)]


def _tray(outer: Outline, floor: Length, height: Length, *pockets: Outline) -> Solid:
    """Make an open box from the thickness of its floor and the height of its walls above it."""
    return _layered(([outer], floor), ([outer, *pockets], height))


def _perforated_plate() -> Solid:
    at = (-0.05, 0.0, 0.05)
    holes = [shifted(regular(12, 0.015), x, y) for x in at for y in at]
    return extrusion(rectangle(0.16, 0.16), 0.025, holes)


def _can(diameter: Length, height: Length) -> Solid:
    r, h = diameter / 2, height
    return _revolved((0.94 * r, 0.0), (r, 0.05 * h), (r, 0.95 * h), (0.94 * r, h), unit=MM)


def _mustard_bottle() -> Solid:
    """Make a bottle of 50 x 85 x 175 mm: oval body, shoulders, and a round cap with a nozzle."""
    heights = [0, 5, 95, 115, 135, 135, 150, 175]
    widths = [(80, 46), (85, 50), (85, 50), (74, 46), (40, 36), (30, 30), (26, 26), (8, 8)]
    halves = [(x * MM / 2, y * MM / 2) for x, y in widths]
    return loft(regular(24, 1.0), [z * MM for z in heights], halves)


def _banana() -> Solid:
    """Make a banana, 36 mm thick and 190 mm long, from sections at right angles to its axis."""
    t = np.linspace(-1.0, 1.0, 15)
    radius = 18 * np.clip(1 - np.abs(t) ** 5, 0, 1) ** 0.5
    radius[[0, -1]] = [3.0, 5.0]
    offsets = [(0.0, y * MM) for y in (40 * t**2).tolist()]
    heights = (95 * MM * (t + 1)).tolist()
    return loft(regular(12, 1.0), heights, (radius * MM).tolist(), offsets).lying()


def _apple() -> Solid:
    angle = np.deg2rad(np.linspace(-90, 90, 13))
    radius = np.where(np.abs(angle) < 1.57, 37.5 * np.cos(angle), 0.0)
    dimple = 10 * np.sign(angle) * (1 - np.cos(angle)) ** 4
    height = 37.5 * np.sin(angle) - dimple
    height -= height.min()
    return _revolved(*zip(radius.tolist(), height.tolist(), strict=True), unit=MM)


def _mug() -> Solid:
    wall = regular(24, 40 * MM, turn=np.pi / 24)
    half = float(wall[0, 1])
    near, far = 58 * MM, 70 * MM
    arm = np.vstack([wall, [[near, -half], [far, -half], [far, half], [near, half]]])
    bar = polygon((near, -half), (far, -half), (far, half), (near, half))
    cavity = regular(24, 34 * MM, turn=np.pi / 24)
    hollow, held = [wall, cavity], [arm, cavity]
    layers = [wall], hollow, held, [wall, bar, cavity], held, hollow
    return stack([(lines, h * MM) for lines, h in zip(layers, (8, 8, 11, 30, 11, 14), strict=True)])


def _wine_glass() -> Solid:
    outside = [(35, 0), (35, 3), (6, 8), (6, 55), (30, 70), (44.5, 95), (40, 137)]
    inside = [(37, 137), (41, 95), (27, 73), (0, 60)]
    return _revolved(*outside, *inside, unit=MM)


def _power_drill() -> Solid:
    """Make a drill on its side, 184 mm long and 46 mm thick; the grip is 26 mm thick.

    The outlines are side views of the whole tool, its motor housing, and its battery.
    """
    grip = [(20.0, 46.0), (60.0, 46.0), (60.0, 130.0), (20.0, 130.0)]
    foot = [(90.0, 130.0), (90.0, 165.0), (0.0, 165.0), (0.0, 130.0)]
    chuck = [(135.0, 0.0), (184.0, 10.0), (184.0, 36.0), (135.0, 46.0)]
    housing = [(0.0, 0.0), chuck[0], chuck[3], grip[1], grip[0], (0.0, 46.0)]
    battery = [*foot, grip[3], grip[2]]
    whole = [(0.0, 0.0), *chuck, *grip[1:3], *foot, grip[3], grip[0], (0.0, 46.0)]
    side = ([MM * polygon(*housing), MM * polygon(*battery)], 10 * MM)
    return stack([side, ([MM * polygon(*whole)], 26 * MM), side])


# ---------------------------------------------------------------------- tables

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

EXTRUSIONS: dict[str, Maker] = {
    "l_profile": lambda: _prism(9, polygon((0, 0), (14, 0), (14, 4), (4, 4), (4, 10), (0, 10))),
    "t_profile": lambda: _prism(
        10, polygon((5, 0), (9, 0), (9, 6), (14, 6), (14, 10), (0, 10), (0, 6), (5, 6))
    ),
    "u_profile": lambda: _prism(
        10, polygon((0, 0), (12, 0), (12, 10), (9, 10), (9, 3), (3, 3), (3, 10), (0, 10))
    ),
    "plus_profile": lambda: _prism(9, _quartered(polygon((-2, -6), (2, -6), (2, -2)))),
    "star_prism": lambda: _prism(6, star(5, 8.5, 4.5)),
    "gear": lambda: _prism(5, gear(12, 8.0, 6.4), _disc(1.8)),
    "hexagon_prism": lambda: _prism(9, regular(6, 6.0)),
    # A C-shaped band over 250 degrees.
    "crescent": lambda: _prism(7, polygon(*arc(7.5, 55, 305, 20), *arc(3.8, 305, 55, 16))),
    "ramp": lambda: _prism(10, polygon((0, 0), (15, 0), (15, 8), (13, 8))),
}

REVOLUTIONS: dict[str, Maker] = {
    "cone": lambda: _revolved((6.5, 0), (0, 16)),
    "vase": lambda: _revolved((3.5, 0), (5.5, 3), (6, 6), (4.5, 10), (3, 13), (4, 16)),
    "bottle": lambda: _revolved((4, 0), (4.2, 1), (4.2, 10), (3.5, 12), (1.6, 14.5), (1.6, 18)),
    "spool": lambda: _revolved((6, 0), (6, 2), (3, 2), (3, 9), (6, 9), (6, 11)),
    "hourglass": lambda: _revolved((6, 0), (5.5, 1.5), (2, 7), (5.5, 12.5), (6, 14)),
    "dome": lambda: _revolved(*[(7.2 * c, 7.2 * s) for c, s in arc(1.0, 0, 90, 8)[:-1]], (0, 7.2)),
    "torus": lambda: _revolved(
        *[(5.5 + 2.5 * c, 2.5 + 2.5 * s) for c, s in arc(1.0, -90, 240, 11)], closed=True
    ),
    "barrel": lambda: _revolved((4.5, 0), (5.4, 3), (5.7, 6.5), (5.4, 10), (4.5, 13)),
    "pawn": lambda: _revolved(
        *[(4.5, 0), (4.5, 2), (3, 3.5), (2, 9), (3.2, 9.8), (2, 10.6)],
        *[(3.2 * c, 13.3 + 3.2 * s) for c, s in arc(1.0, -50, 90, 6)[:-1]],
        (0, 16.5),
    ),
}

BRACKETS: dict[str, Maker] = {
    "flange": _flange,
    "angle_bracket": _angle_bracket,
    "counterbored_block": lambda: _layered(
        ([rectangle(12, 9), _disc(1.8)], 3.5), ([rectangle(12, 9), _disc(3.2)], 4)
    ),
    "pillow_block": _pillow_block,
    "clevis": _clevis,
    "stepped_block": _stepped_block,
    "lever": _lever,
    "dovetail_slide": _dovetail_slide,
    "t_slot_rail": _t_slot_rail,
}

CUPS: dict[str, Maker] = {
    "tumbler": lambda: _revolved((4, 0), (5, 12), (4, 12), (3.1, 1.2), (0, 1.2)),
    "deep_bowl": lambda: _revolved(*_bowl_profile(8.5, 7.0, 1.2)),
    "dish": lambda: _revolved((7, 0), (8.5, 4), (7.3, 4), (6, 1.4), (0, 1.4), segments=28),
    "pipe": lambda: _revolved((5.5, 0), (5.5, 13), (4, 13), (4, 0), closed=True),
    "funnel": lambda: _revolved(
        (1.8, 0), (1.8, 5), (7.5, 11), (6.5, 11), (0.9, 4.6), (0.9, 0), closed=True
    ),
    "hexagon_cup": lambda: _tapered(6, (5, 0), (6.5, 9), (5.2, 9), (4, 1.5), (0, 1.5)),
    "planter": lambda: _tapered(4, (6, 0), (8.5, 10), (7, 10), (4.8, 1.5), (0, 1.5)),
    "open_box": lambda: _tray(rectangle(13, 10), 1, 8, rectangle(11, 8)),
    "tray": lambda: _tray(rectangle(18, 13), 1, 3, rectangle(16, 11)),
    "divided_tray": lambda: _tray(
        rectangle(18, 10), 1.5, 4, *(shifted(rectangle(7.5, 8), x, 0) for x in (-4.25, 4.25))
    ),
}

RODS_PLATES: dict[str, Maker] = {
    "round_rod": lambda: extrusion(regular(16, 0.02), 0.2).lying(),
    "square_bar": partial(box, 0.2, 0.05, 0.05),
    "hexagon_rod": lambda: extrusion(regular(6, 0.032), 0.18).lying(),
    "half_round_bar": lambda: extrusion(polygon(*arc(0.045, 0, 180, 12)), 0.18).lying(),
    "board": partial(box, 0.2, 0.13, 0.025),
    "plank": partial(box, 0.21, 0.07, 0.04),
    "disc": lambda: extrusion(regular(32, 0.085), 0.025),
    "perforated_plate": _perforated_plate,
    "dumbbell": lambda: _revolved(
        (4.5, 0), (4.5, 4), (1.6, 4), (1.6, 12), (4.5, 12), (4.5, 16)
    ).lying(),
}

HOUSEHOLD: dict[str, Maker] = {
    "cracker_box": partial(box, 158 * MM, 60 * MM, 210 * MM),
    "sugar_box": partial(box, 89 * MM, 38 * MM, 175 * MM),
    "tomato_soup_can": partial(_can, 66, 101),
    "master_chef_can": partial(_can, 102, 139),
    "tuna_fish_can": partial(_can, 85, 33),
    "potted_meat_can": lambda: extrusion(
        superellipse(0.35, 24) * [97 * MM / 2, 50 * MM / 2], 82 * MM
    ),
    "mustard_bottle": _mustard_bottle,
    "banana": _banana,
    "apple": _apple,
    "mug": _mug,
    "bowl": lambda: _revolved(*_bowl_profile(7.95, 5.3, 0.5), segments=28),
    "wine_glass": _wine_glass,
    "power_drill": _power_drill,
    "wood_block": partial(box, 85 * MM, 85 * MM, 200 * MM),
}

TABLES: dict[str, dict[str, Maker]] = {
    "polycubes": POLYCUBES,
    "superquadrics": SUPERQUADRICS,
    "extrusions": EXTRUSIONS,
    "revolutions": REVOLUTIONS,
    "brackets": BRACKETS,
    "cups": CUPS,
    "rods_plates": RODS_PLATES,
    "household": HOUSEHOLD,
}
"""For each family, the makers by the names of the items."""


def solids() -> dict[str, Solid]:
    """Make all items; a name is ``family/item``."""
    return {
        f"{family}/{name}": make()
        for family, table in TABLES.items()
        for name, make in table.items()
    }


def main() -> None:
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    made = solids()
    np.savez_compressed(
        shapes.FILE,
        names=np.array(list(made)),
        counts=np.array([(len(solid.vertices), len(solid.faces)) for solid in made.values()]),
        vertices=np.concatenate([solid.vertices for solid in made.values()]),
        faces=np.concatenate([solid.faces for solid in made.values()]).astype(np.uint16),
    )
    print(f"wrote {shapes.FILE}: {Path(shapes.FILE).stat().st_size} bytes")


if __name__ == "__main__":
    main()
