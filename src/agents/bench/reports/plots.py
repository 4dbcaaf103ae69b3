"""Pictures of benchmark results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agents.bench.base import Row
from agents.bench.reports.table import shared
from packing_env.extras import require

_SIDE = 4.2
"""Width and height of a panel in inches."""


def draw_steps(rows: Sequence[Row], swept: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Draw decisions per second over the batch size and over every swept key, as a PNG file."""
    panels = ["rows", *swept]
    size = (_SIDE * len(panels), _SIDE)
    figure = require("matplotlib.figure", "plots").Figure(figsize=size, layout="constrained")
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, key in zip(places, panels, strict=True):
        for name, points in _lines(rows, key, swept).items():
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
        axes.set_yscale("log")
        if key == "rows":
            axes.set_xscale("log", base=2)
        axes.set_xlabel("containers" if key == "rows" else key)
        axes.set_ylabel("decisions per second")
        axes.grid(visible=True, which="both", alpha=0.3)
        axes.legend(fontsize="small")
    figure.savefig(path)


def _lines(
    rows: Sequence[Row], key: str, swept: Mapping[str, Sequence[Any]]
) -> dict[str, list[tuple[Any, float]]]:
    """Return the points over ``key`` of each line of the plot, by the line's name."""
    lines: dict[str, list[tuple[Any, float]]] = {}
    common = {*shared(rows), "rows"}
    for row in rows:
        own = [name for name in swept if name in row.case]
        if own != ([] if key == "rows" else [key]) or "decisions_per_second" not in row.values:
            continue
        others = {k: v for k, v in row.case.items() if k != key and k not in common}
        name = " ".join(str(value) for value in others.values()) or "all"
        place = row.case[key] if isinstance(row.case[key], int | float) else str(row.case[key])
        lines.setdefault(name, []).append((place, row.values["decisions_per_second"]))
    return lines
