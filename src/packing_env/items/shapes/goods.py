"""Embedded items of the families `rods_plates` and `household`.

Household items follow the nominal dimensions (millimetres) of Calli, Walsman, Singh, Srinivasa,
Abbeel and Dollar, "Benchmarking in Manipulation Research: Using the Yale-CMU-Berkeley Object and
Model Set", IEEE Robotics & Automation Magazine 22(3), 2015. The forms are drawn here from those
numbers; they are not the scanned meshes. Where the published numbers leave a part open (the handle
of the mug, the grip of the drill), its size is ours.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from packing_env.items.shapes import polygons
from packing_env.items.shapes.layers import extrusion, stack
from packing_env.items.shapes.polygons import MM, Length, arc, polygon, rectangle, regular, shifted
from packing_env.items.shapes.revolved import bowl_profile, revolved
from packing_env.items.shapes.solids import Maker, Solid, box, loft


def _perforated_plate() -> Solid:
    at = (-0.05, 0.0, 0.05)
    holes = [shifted(regular(12, 0.015), x, y) for x in at for y in at]
    return extrusion(rectangle(0.16, 0.16), 0.025, holes)


def _can(diameter: Length, height: Length) -> Solid:
    """Make a can with a slightly narrower foot and lid; millimetres."""
    r, h = diameter / 2, height
    return revolved((0.94 * r, 0.0), (r, 0.05 * h), (r, 0.95 * h), (0.94 * r, h), unit=MM)


def _mustard_bottle() -> Solid:
    """Make a bottle of 50 x 85 x 175 mm: oval body, shoulders, and a round cap with a nozzle."""
    heights = [0, 5, 95, 115, 135, 135, 150, 175]
    widths = [(80, 46), (85, 50), (85, 50), (74, 46), (40, 36), (30, 30), (26, 26), (8, 8)]
    halves = [(x * MM / 2, y * MM / 2) for x, y in widths]
    return loft(regular(24, 1.0), [z * MM for z in heights], halves)


def _banana() -> Solid:
    """Make a banana, 36 mm thick, 190 mm long; cross-sections at right angles to its length."""
    t = np.linspace(-1.0, 1.0, 15)
    radius = 18 * np.clip(1 - np.abs(t) ** 5, 0, 1) ** 0.5
    radius[[0, -1]] = [3.0, 5.0]
    offsets = [(0.0, y * MM) for y in (40 * t**2).tolist()]
    heights = (95 * MM * (t + 1)).tolist()
    return loft(regular(12, 1.0), heights, (radius * MM).tolist(), offsets).lying()


def _apple() -> Solid:
    """Make an apple, 75 mm in diameter, dimpled at both ends."""
    angle = np.deg2rad(np.linspace(-90, 90, 13))
    radius = np.where(np.abs(angle) < 1.57, 37.5 * np.cos(angle), 0.0)
    dimple = 10 * np.sign(angle) * (1 - np.cos(angle)) ** 4
    height = 37.5 * np.sin(angle) - dimple
    height -= height.min()
    return revolved(*zip(radius.tolist(), height.tolist(), strict=True), unit=MM)


def _mug() -> Solid:
    """Make a mug, 80 mm in diameter, 82 mm high, with a square handle."""
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
    """Make a wine glass, 89 x 137 mm: foot, stem and a hollow bowl."""
    outside = [(35, 0), (35, 3), (6, 8), (6, 55), (30, 70), (44.5, 95), (40, 137)]
    inside = [(37, 137), (41, 95), (27, 73), (0, 60)]
    return revolved(*outside, *inside, unit=MM)


def _power_drill() -> Solid:
    """Make a drill, 184 mm long and 46 mm thick, on its side; the grip is 26 mm thick.

    The outlines are side views: the whole tool, its motor housing, and its battery.
    """
    grip = [(20.0, 46.0), (60.0, 46.0), (60.0, 130.0), (20.0, 130.0)]
    foot = [(90.0, 130.0), (90.0, 165.0), (0.0, 165.0), (0.0, 130.0)]
    chuck = [(135.0, 0.0), (184.0, 10.0), (184.0, 36.0), (135.0, 46.0)]
    housing = [(0.0, 0.0), chuck[0], chuck[3], grip[1], grip[0], (0.0, 46.0)]
    battery = [*foot, grip[3], grip[2]]
    whole = [(0.0, 0.0), *chuck, *grip[1:3], *foot, grip[3], grip[0], (0.0, 46.0)]
    side = ([MM * polygon(*housing), MM * polygon(*battery)], 10 * MM)
    return stack([side, ([MM * polygon(*whole)], 26 * MM), side])


RODS_PLATES: dict[str, Maker] = {
    "round_rod": lambda: extrusion(regular(16, 0.02), 0.2).lying(),
    "square_bar": partial(box, 0.2, 0.05, 0.05),
    "hexagon_rod": lambda: extrusion(regular(6, 0.032), 0.18).lying(),
    "half_round_bar": lambda: extrusion(polygon(*arc(0.045, 0, 180, 12)), 0.18).lying(),
    "board": partial(box, 0.2, 0.13, 0.025),
    "plank": partial(box, 0.21, 0.07, 0.04),
    "disc": lambda: extrusion(regular(32, 0.085), 0.025),
    "perforated_plate": _perforated_plate,
    "dumbbell": lambda: revolved(
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
        polygons.superellipse(0.35, 24) * [97 * MM / 2, 50 * MM / 2], 82 * MM
    ),
    "mustard_bottle": _mustard_bottle,
    "banana": _banana,
    "apple": _apple,
    "mug": _mug,
    "bowl": lambda: revolved(*bowl_profile(7.95, 5.3, 0.5), segments=28),
    "wine_glass": _wine_glass,
    "power_drill": _power_drill,
    "wood_block": partial(box, 85 * MM, 85 * MM, 200 * MM),
}
