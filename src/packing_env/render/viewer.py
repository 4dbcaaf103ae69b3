"""A packing as one HTML page that shows the solids in 3-D, without network or other files.

The page is ``viewer.html``. Its script draws with WebGL 2. It is part of the page, because browsers
do not load modules from local files. Vertices are rounded to 1/65535 of the size of their solid.
"""

from __future__ import annotations

import base64
import html
import json
import math
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from packing_env.plan import Packing, PlacedItem, whole_file
from packing_env.plan.solids import cut_wedges
from packing_env.render.figures import title_of
from packing_env.render.scene import PALETTE
from packing_env.render.solids import Triangles, floor_of, placed_solid
from packing_env.values import UNITS

MAX_FACES = 100_000
"""Largest number of triangles of all different solids of a page; with more, the finest details are
left out.
"""
_STEPS = 65535
_SHOWN = 1e-4
"""Metres to which the page rounds lengths."""
_GAP = 0.25
"""Gap between containers, as a share of the largest container."""


def save_html(path: str | Path, packings: Packing | Sequence[Packing], *, title: str = "") -> None:
    """Write packings side by side as one page: slider, play, hover, exploded view, cut plane.

    ``page.html#7`` opens it with the first seven items.
    """
    several = [packings] if isinstance(packings, Packing) else list(packings)
    data = json.dumps(_scene(several), separators=(",", ":")).replace("<", "\\u003c")
    page = files("packing_env.render").joinpath("viewer.html").read_text(encoding="utf-8")
    page = page.replace("@TITLE@", html.escape(title or "Packing, step by step"))
    with whole_file(path) as draft:
        draft.write_text(page.replace("@DATA@", data), encoding="utf-8")


def _scene(packings: Sequence[Packing]) -> dict[str, Any]:
    unit = packings[0].shown_unit
    metres = UNITS[unit] if unit else 1.0
    solids: dict[Any, Triangles] = {}
    items = [
        _item(item, number, packing, solids)
        for number, packing in enumerate(packings)
        for item in packing.items
    ]
    share = MAX_FACES // max(1, len(solids))
    place = {key: index for index, key in enumerate(solids)}
    return {
        "note": _note(packings),
        "unit": unit,
        "factor": 1.0 / metres,
        "digits": math.ceil(math.log10(metres / _SHOWN)) if unit else 0,
        "containers": [
            {
                "size": packing.container,
                "corner": corner,
                "floor": floor_of(packing),
                "planes": cut_wedges(packing)[:, :4].tolist(),
            }
            for packing, corner in zip(packings, side_by_side(packings), strict=True)
        ],
        "meshes": [_encoded(solid, share) for solid in solids.values()],
        "items": [{**item, "mesh": place[item["mesh"]]} for item in items],
    }


def _note(packings: Sequence[Packing]) -> str:
    if len(packings) == 1:
        return title_of(packings[0]).replace("   ", " · ")
    shares = [f"{100 * p.utilization:.1f} % with {len(p.items)} items" for p in packings]
    return f"{len(packings)} containers: {', '.join(shares)}"


def side_by_side(packings: Sequence[Packing]) -> list[tuple[float, float, float]]:
    """Return the lower corner of each container in a row of them along x."""
    gap = _GAP * max(max(packing.container) for packing in packings)
    ends = np.cumsum([packing.container[0] + gap for packing in packings])
    return [
        (float(end - gap - packing.container[0]), 0.0, 0.0)
        for end, packing in zip(ends, packings, strict=True)
    ]


def _item(
    item: PlacedItem, number: int, packing: Packing, solids: dict[Any, Triangles]
) -> dict[str, Any]:
    """Return an item as the script reads it; if its solid (in metres) is new, add it."""
    part = placed_solid(item, packing.cell)
    solids.setdefault(part.key, part.solid)
    corners = part.placed().reshape(-1, 3)
    nest = packing.geometry == "solids"
    way, leaves = [0.0, 0.0, 0.0 if nest else 1.0], ""
    if nest:
        leaves = f"leaves {item.leaves}" if item.leaves else "interlocked"
    if item.leaves:
        way["xyz".index(item.leaves[1])] = 1.0 if item.leaves[0] == "+" else -1.0
    return {
        "mesh": part.key,
        "turn": part.turn.ravel().round(9).tolist(),
        "move": part.move.round(9).tolist(),
        "centre": ((corners.min(0) + corners.max(0)) / 2).round(6).tolist(),
        "container": number,
        "colour": PALETTE[item.order % len(PALETTE)].round(3).tolist(),
        "name": item.name,
        "order": item.order + 1,
        "z": item.z,
        "support": item.support_ratio,
        "weight": item.handling.get("weight", 0.0),
        "way": way,
        "leaves": leaves,
    }


def _encoded(solid: Triangles, most: int) -> dict[str, Any]:
    """Return triangles as vertices in whole steps and faces, both in base64.

    If there are too many triangles, vertices are rounded to coarser and coarser grids, which
    removes small faces.
    """
    low, high = solid.min((0, 1)), solid.max((0, 1))
    longest = float((high - low).max())
    grid = _STEPS
    while True:
        pitch = longest / grid
        steps = np.round((solid - low) / pitch).astype(np.int64)
        a, b, c = steps.transpose(1, 0, 2)
        there = (a != b).any(1) & (b != c).any(1) & (c != a).any(1)
        if there.sum() <= most or grid <= 32:
            break
        grid = min(grid, 1024) * 3 // 4
    steps *= _STEPS // grid
    vertices, faces = np.unique(steps[there].reshape(-1, 3), axis=0, return_inverse=True)
    wide = len(vertices) > _STEPS
    return {
        "low": low.tolist(),
        "step": [pitch / (_STEPS // grid)] * 3,
        "wide": wide,
        "vertices": _base64(vertices.astype("<u2")),
        "faces": _base64(faces.ravel().astype("<u4" if wide else "<u2")),
    }


def _base64(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii")
