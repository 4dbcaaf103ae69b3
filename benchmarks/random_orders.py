"""Random orders with random constraints: boxes, and meshes beside boxes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from scipy.spatial import ConvexHull

from packing_env.planner import Part, read_parts
from packing_env.planner.reading.parts import repeated

STABILITIES = ("none", "com_hull", "com_hull_10", "com_hull_20", "stands")
_MIXED = 0.2
"""Share of the orders that have meshes."""
Order = dict[str, Any]
"""``parts`` and the arguments of `pack`; with ``fill`` the order is packed as often as it fits."""


def draw_order(random: np.random.Generator, folder: Path) -> Order:
    """Draw an order; its meshes are written to a folder."""
    return _mixed_order(random, folder) if random.random() < _MIXED else _box_order(random)


# ------------------------------------------------------------------ orders of boxes


def _box_order(random: np.random.Generator) -> Order:
    parts = _boxes(random)
    largest = max(float(max(part.sides or (1.0,))) for part in parts) / 100
    container = (largest * random.uniform(0.8, 4.0, 3)).round(3)
    weights = [float(part.handling["weight"]) for part in parts]
    total = sum(part.quantity * w for part, w in zip(parts, weights, strict=True))
    limit = total * random.uniform(0.2, 1.0)
    if random.random() < 0.3:  # single boxes may be too heavy
        limit = max(weights) * random.uniform(0.3, 1.5)
    drawn = {
        "weight_limit": max(float(round(limit, 2)), 0.01),
        "balance": float(random.choice([0.02, 0.1, 0.3])),
        "clearance": float(random.choice([0.001, 0.0035])),
        "wall_clearance": float(random.choice([0.0, 0.002])),
        "support": float(random.choice([0.3, 0.7, 1.0])),
        "door": str(random.choice(["top", "rear", "side"])),
        "fragile": str(random.choice(["last", "top"])),
        "preplaced": [
            [0.0, 0.0, 0.0, *(container * random.uniform(0.1, 0.5, 3)).round(4).tolist()]
        ],
    }
    options: Order = {name: value for name, value in drawn.items() if random.random() < 0.25}
    kind = random.random()
    if kind < 0.25:
        options = _on_pallet(options, container, random)
    elif kind < 0.5:
        options |= {"cut": _cuts(options.get("door", "top"), container, random)}
    walls = (
        options["wall_clearance"] if "wall_clearance" in options else options.get("clearance", 0.0)
    )
    if 2 * walls >= container[:2].min():
        options = {k: v for k, v in options.items() if not k.endswith("clearance")}
    times = int(random.integers(2, 4)) if random.random() < 0.1 else 1
    if times > 1 and len(parts) > 1:
        parts = [replace(part, kit=("kit", times)) for part in repeated(parts, times)]
    several = "cut" not in options and "preplaced" not in options and random.random() < 0.25
    return {
        "parts": read_parts(parts),
        "container": _sizes(container, random) if several else tuple(container.tolist()),
        "stability": str(random.choice(STABILITIES)),
        "containers": int(random.integers(1, 4)),
        "choose": str(random.choice(["fewest", "cheapest", "balanced"])) if several else "fewest",
        "fill": bool(random.random() < 0.05),
    } | options


def _boxes(random: np.random.Generator) -> list[Part]:
    """Draw the boxes of an order, millimetres."""
    longest = int(random.choice([8, 40, 300]))
    values, priorities, sets = (random.random(3) < (0.1, 0.15, 0.15)).tolist()
    parts = []
    for number in range(int(random.integers(1, 7))):
        handling: dict[str, Any] = {"weight": float(random.integers(1, 40)) / 4}
        drawn: dict[str, tuple[float, Any]] = {
            "max_load": (0.3, float(random.integers(0, 60)) / 2),
            "stackable": (0.2, False),
            "fragile": (0.2, True),
            "group": (0.2, int(random.integers(0, 3))),
            "layers": (0.15, int(random.integers(1, 4))),
            "on_like": (0.1, True),
            "value": (1.0 * values, float(random.integers(0, 20))),
            "priority": (0.7 * priorities, int(random.integers(1, 4))),
            "together": (0.5 * sets, str(random.choice(["red", "blue"]))),
        }
        handling |= {k: value for k, (share, value) in drawn.items() if random.random() < share}
        faces = [(), ("+z",), ("+z", "-z"), ("+x", "+y")][
            int(random.choice(4, p=[0.6, 0.2, 0.1, 0.1]))
        ]
        a, b, c = (side / 10 for side in random.integers(1, longest + 1, 3).tolist())
        parts.append(
            Part(
                sides=(a, b, c),
                unit="cm",
                name=f"box {number}",
                quantity=int(random.integers(1, 13)),
                handling=handling,
                faces=faces,
                turn=bool(random.random() < 0.8),
            )
        )
    return parts


def _sizes(container: np.ndarray, random: np.random.Generator) -> list[str]:
    """Draw two or three sizes of containers with a number, a cost, and perhaps a weight limit."""
    sizes = []
    for _ in range(int(random.integers(2, 4))):
        x, y, z = (1000 * container * random.uniform(0.6, 1.2, 3)).round().clip(8).tolist()
        entry = f"{x:g}x{y:g}x{z:g}mm,cost={random.integers(1, 50)}"
        entry += f",number={random.integers(1, 4)}" if random.random() < 0.7 else ""
        limit = random.uniform(1, 60)
        entry += f",weight_limit={limit:.1f}kg" if random.random() < 0.3 else ""
        sizes.append(entry)
    return sizes


def _on_pallet(options: Order, container: np.ndarray, random: np.random.Generator) -> Order:
    """Return options of a pallet with an overhang; a pallet has no door and no walls."""
    overhang = (container[:2] * random.choice([0.0, 0.02, 0.2, 0.4], 2)).round(3)
    others = {name: value for name, value in options.items() if name != "door"}
    return others | {"overhang": overhang.tolist(), "wall_clearance": 0.0}


def _cuts(door: str, container: np.ndarray, random: np.random.Generator) -> list[list[Any]]:
    """Draw one or two parallel edges that are cut off, but no edge at the door."""
    closed = {"rear": "+x", "side": "+y", "top": "+z"}[door]
    one, other = sorted(random.choice(3, 2, replace=False).tolist())
    edges = [f"{a}{'xyz'[one]}{b}{'xyz'[other]}" for a in "+-" for b in "+-"]
    chosen = random.permutation([e for e in edges if closed not in (e[:2], e[2:])])
    sides = container[[one, other]]
    return [
        [str(edge), *(sides * random.uniform(0.05, 0.45, 2)).round(3).clip(0.001).tolist()]
        for edge in chosen[: random.integers(1, 3)]
    ]


# ------------------------------------------------------------------ meshes beside boxes


def _mixed_order(random: np.random.Generator, folder: Path) -> Order:
    """Draw an order with meshes, for a coarse grid."""
    cell = 0.005
    cells = random.integers(6, 15, 3)
    strips = random.choice([0.0, 0.5], 3, p=[0.7, 0.3])  # cells do not cover all of the floor
    container = ((cells + strips) * cell).round(4)
    parts = []
    for number in range(int(random.integers(1, 5))):
        handling: dict[str, Any] = {"weight": float(random.integers(1, 40)) / 4}
        drawn: dict[str, tuple[float, Any]] = {
            "max_load": (0.2, float(random.integers(0, 40)) / 2),
            "stackable": (0.15, False),
            "fragile": (0.2, True),
            "group": (0.2, int(random.integers(0, 3))),
        }
        handling |= {k: value for k, (share, value) in drawn.items() if random.random() < share}
        faces = [(), ("+z",), ("+x", "+y")][int(random.choice(3, p=[0.6, 0.2, 0.2]))]
        common: dict[str, Any] = {
            "quantity": int(random.integers(1, 5)),
            "handling": handling,
            "faces": faces,
            "turn": bool(random.random() < 0.8),
        }
        a, b, c = random.integers(
            8, 1 + int(random.choice([500, 1200]) * container.max()), 3
        ).tolist()
        if number and random.random() < 0.5:
            parts.append(Part(sides=(a, b, c), unit="mm", name=f"box {number}", **common))
            continue
        if number and random.random() < 0.1:
            a = b = c = 0.001
        file = folder / f"part {number}.stl"
        _solid(random, np.array([a, b, c], float)).export(file)
        parts.append(Part(str(file), unit="mm", **common))
    weights = [float(part.handling["weight"]) for part in parts]
    drawn_rules: dict[str, Any] = {
        "weight_limit": float(round(max(weights) * random.uniform(0.3, 6.0), 2)),
        "balance": float(random.choice([0.05, 0.2, 0.4])),
        "clearance": float(random.choice([0.001, 0.005])),
        "wall_clearance": float(random.choice([0.0, 0.005])),
        "fragile": str(random.choice(["last", "top"])),
        "preplaced": [[0.0, 0.0, 0.0, *(cells // 3 * cell).round(4).tolist()]],
    }
    return {
        "parts": read_parts(parts),
        "container": tuple(container.tolist()),
        "cell": cell,
        "stability": str(random.choice(["none", "com_hull", "com_hull_20", "stands"])),
        "containers": int(random.integers(1, 3)),
        "fill": False,
    } | {name: value for name, value in drawn_rules.items() if random.random() < 0.25}


def _solid(random: np.random.Generator, sides: np.ndarray) -> trimesh.Trimesh:
    """Return a cone, the hull of random points, an extruded polygon, or an angle."""
    kind = int(random.integers(4))
    if kind == 0:
        solid = trimesh.creation.cone(0.5, 1.0, sections=12)
    elif kind == 1:
        solid = trimesh.convex.convex_hull(random.uniform(size=(12, 3)))
    elif kind == 2:
        angles = np.sort(random.uniform(0, 2 * np.pi, 7))
        corners = np.stack([np.cos(angles), np.sin(angles)], 1)
        corners = corners[ConvexHull(corners).vertices]
        both = [np.column_stack([corners, np.full(len(corners), z)]) for z in (0.0, 1.0)]
        solid = trimesh.convex.convex_hull(np.concatenate(both))
    else:
        solid = _angle()
    solid.apply_translation(-solid.bounds[0])
    solid.vertices = solid.vertices * (sides / solid.extents)
    return solid


def _angle() -> trimesh.Trimesh:
    """Return a profile in the form of the letter L."""
    outline = [(0, 0), (3, 0), (3, 1), (1, 1), (1, 3), (0, 3)]
    vertices = [(x, y, z) for z in (0, 1) for x, y in outline]
    base = [(0, 1, 2), (0, 2, 3), (0, 3, 5), (3, 4, 5)]
    faces = [(c, b, a) for a, b, c in base] + [(a + 6, b + 6, c + 6) for a, b, c in base]
    for i in range(6):
        j = (i + 1) % 6
        faces += [(i, j, j + 6), (i, j + 6, i + 6)]
    return trimesh.Trimesh(vertices, faces)
