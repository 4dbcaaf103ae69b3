"""The learning curve of a run, drawn from its ``metrics.csv``."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from packing_env.extras import require
from packing_env.plan import whole_file

PANELS = (
    ("utilization", ("utilization", "held_out/utilization")),
    ("return", ("return", "held_out/return")),
    ("loss", ("loss",)),
)
"""Panels: title, and the columns that they show."""
Points = list[tuple[float, float]]
_NO_LEVELS: Mapping[str, float] = {}


def read_points(table: Path, columns: Sequence[str]) -> dict[str, Points]:
    """Return frames and finite values of columns of ``metrics.csv``; empty columns are left out."""
    curves: dict[str, Points] = {name: [] for name in columns}
    with table.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            for name in columns:
                try:
                    point = float(row["frames"]), float(row.get(name) or math.nan)
                except (KeyError, ValueError):
                    continue
                if all(map(math.isfinite, point)):
                    curves[name].append(point)
    return {name: points for name, points in curves.items() if points}


def save_curve(
    table: Path, path: Path, title: str = "", levels: Mapping[str, float] = _NO_LEVELS
) -> bool:
    """Plot the columns of ``metrics.csv`` over frames as a PNG; return False if all are empty.

    Args:
        table: The file ``metrics.csv``.
        path: The picture to write.
        title: Its title.
        levels: Held-out utilizations, such as those of heuristics, drawn as horizontal lines.

    Raises:
        MissingPackageError: Matplotlib is not installed.
        OSError: A file cannot be read or written.
    """
    if not table.is_file():
        return False
    panels = [(name, read_points(table, columns)) for name, columns in PANELS]
    panels = [(name, lines) for name, lines in panels if lines]
    if not panels:
        return False
    figure_class = require("matplotlib.figure", "learning curves").Figure
    figure = figure_class(figsize=(4 * len(panels), 3.2), layout="constrained")
    figure.suptitle(title)
    for axes, (name, lines) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True
    ):
        for label, points in lines.items():
            frames, values = zip(*points, strict=True)
            axes.plot(frames, values, marker="." if len(points) < 30 else "", label=label)
        if name == "loss" and all(value > 0 for points in lines.values() for _, value in points):
            axes.set_yscale("log")
        axes.set(xlabel="frames", title=name)
        axes.grid(visible=True, alpha=0.3)
        if name == "utilization":
            for number, (label, level) in enumerate(levels.items(), 1):
                axes.axhline(level, linestyle="--", color=f"C{number + 1}", label=label)
        if len(axes.get_legend_handles_labels()[0]) > 1:
            axes.legend(fontsize="small")
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=110, format="png")
    return True
