"""The load plan for printing: a PDF in A4 that marks the boxes of each step, for the loader.

Consecutive equal boxes with the same orientation form one step if together they fill a cuboid: a
row, a layer or a block. Pages are readable without colour.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from packing_env.extras import require
from packing_env.plan import Packing, PlacedItem, whole_file
from packing_env.render.raster import look_at, rasterize
from packing_env.render.scene import AZIMUTH, ELEVATION
from packing_env.render.solids import CORNERS, triangles
from packing_env.values import UNITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

A4 = (8.27, 11.69)
ROWS, COLUMNS = 4, 2
"""Number of steps on a page."""
FIRST_PARTS, MORE_PARTS = 30, 50
"""Rows of the table on the first page, and on each later page."""
PIXELS = 440
AXES = ("x", "y", "up")
DOORS = {
    "top": "from above",
    "rear": "through the rear door, at the far end of x",
    "side": "through the side door, at the far end of y",
}
READING = (
    "How to read the steps",
    "Load them in their order. Tick the square.",
    "The parts of a step are dark (orange), the others light.",
    "Places are measured from the inner corner 0: along x,",
    "along y, and up from the floor, to the nearest corner.",
    "The small plan shows what lies at the same height, and",
    "dotted what carries the step. Numbers at its edges are",
    "where the step begins and ends.",
    "Equal parts that fill a row, a layer or a block are one",
    "step: begin at the bottom, farthest from the door.",
)
_NEXT, _THERE = np.array([0.91, 0.47, 0.12, 1.0]), np.array([0.93, 0.93, 0.93, 1.0])
_LINE = np.array([0.15, 0.15, 0.15, 1.0])
_NARROW = 0.15
"""Length of a step, as a share of the container, below which its two ends share a label."""
_LIGHT = np.array([0.72, 0.86, 1.0])
"""Brightness of faces across x, of faces across y, and of tops."""
_CLOSE = 1e-7
"""Largest difference of equal lengths, metres."""


@dataclass(frozen=True, eq=False)
class Step:
    """Items that are loaded together.

    Attributes:
        items: The items in the order of loading.
        low: ``[3]`` metres, lower corner of all items together.
        high: ``[3]`` metres, upper corner of all items together.
        side: ``[3]`` metres, sides of the bounding box of one item.
    """

    items: tuple[PlacedItem, ...]
    low: np.ndarray
    high: np.ndarray
    side: np.ndarray

    @property
    def counts(self) -> tuple[int, int, int]:
        """Counts along x, along y and along z."""
        x, y, z = np.round((self.high - self.low) / self.side).astype(int).tolist()
        return x, y, z


def save_pdf(
    path: str | Path, packings: Packing | Sequence[Packing], *, unit: str | None = None
) -> None:
    """Write the load plan of containers: for each an overview, then its steps.

    Args:
        path: The file, written atomically.
        packings: The containers.
        unit: Unit of lengths; by default :attr:`Packing.shown_unit` of each container.

    Raises:
        MissingPackageError: Matplotlib is not installed.
    """
    several = [packings] if isinstance(packings, Packing) else list(packings)
    pages = require("matplotlib.backends.backend_pdf", "PDF files").PdfPages
    with whole_file(path) as draft, pages(draft) as book:
        for number, packing in enumerate(several, 1):
            unit_of_page = packing.shown_unit if unit is None else unit
            sheet = _Sheet(packing, unit_of_page, f"Container {number} of {len(several)}")
            for figure in sheet.pages():
                book.savefig(figure)


def steps_of(packing: Packing, bounds: tuple[np.ndarray, np.ndarray] | None = None) -> list[Step]:
    """Group the items of a container into steps, in the order of loading."""
    low, high = bounds_of(packing) if bounds is None else bounds
    steps: list[Step] = []
    start = 0
    while start < len(packing.items):
        steps.append(_largest(packing.items, low, high, start))
        start += len(steps[-1].items)
    return steps


def _largest(items: Sequence[PlacedItem], low: np.ndarray, high: np.ndarray, start: int) -> Step:
    """Return the largest group that begins with an item and fills a cuboid."""
    first, side = items[start], high[start] - low[start]
    lower, upper = low[start], high[start]
    group = Step((first,), lower, upper, side)
    for stop in range(start + 1, len(items)):
        item = items[stop]
        alike = np.abs(high[stop] - low[stop] - side).max() <= _CLOSE
        same = item.name == first.name and np.allclose(item.rotation, first.rotation)
        if item.extent is None or not alike or not same:
            break
        lower, upper = np.minimum(lower, low[stop]), np.maximum(upper, high[stop])
        count = stop - start + 1
        if abs((upper - lower).prod() - count * side.prod()) <= _CLOSE * side.prod():
            group = Step(tuple(items[start : stop + 1]), lower, upper, side)
    return group


class _View:
    """A picture in parallel projection to which items are added; the nearest surface is visible.

    Attributes:
        owner: ``[P, P]`` order of the item in each pixel; -1 for no item.
        light: ``[P, P]`` brightness of each pixel.
    """

    def __init__(self, packing: Packing, pixels: int) -> None:
        extent = np.asarray(packing.container)
        self.pixels, self.cell, self.corners = pixels, packing.cell, CORNERS * extent
        self.camera = look_at(self.corners, (pixels, pixels), AZIMUTH, ELEVATION, margin=0.08)
        self.near = np.zeros((pixels, pixels))
        self.light = np.ones((pixels, pixels))
        self.owner = np.full((pixels, pixels), -1)

    def add(self, items: Sequence[PlacedItem]) -> None:
        """Add items; the time depends only on the pixels of these items."""
        solids = [triangles(item, self.cell) for item in items]
        if not solids:
            return
        owner = np.repeat([item.order for item in items], [len(solid) for solid in solids])
        solid = np.concatenate(solids)
        normal = np.cross(solid[:, 1] - solid[:, 0], solid[:, 2] - solid[:, 0])
        normal /= np.maximum(np.linalg.norm(normal, axis=1, keepdims=True), 1e-300)
        light = np.abs(normal) @ _LIGHT
        number, near = rasterize(self.camera.project(solid), (self.pixels, self.pixels))
        nearer = (number >= 0) & (near > self.near)
        self.near[nearer] = near[nearer]
        self.owner[nearer], self.light[nearer] = owner[number[nearer]], light[number[nearer]]

    def picture(self, marked: Sequence[PlacedItem]) -> np.ndarray:
        """Return ``[P, P, 4]`` RGBA: marked items are dark, all others are light."""
        colour = np.full((*self.owner.shape, 4), _THERE)
        colour[np.isin(self.owner, [item.order for item in marked])] = _NEXT
        colour[..., :3] *= self.light[..., None]
        colour[self.owner < 0] = 0.0
        for array in (self.owner, self.light):  # draw outlines between items or faces
            colour[:-1][np.diff(array, axis=0) != 0] = _LINE
            colour[:, :-1][np.diff(array, axis=1) != 0] = _LINE
        return colour

    def draw(self, axes: Axes, marked: Sequence[PlacedItem], block: np.ndarray | None) -> None:
        """Draw the container, the items, and the edges of a block that others may hide."""
        self._edges(axes, self.corners, "0.6", 0.6, 1)
        axes.imshow(self.picture(marked), interpolation="antialiased", zorder=2)
        if block is not None:
            low, high = block
            self._edges(axes, low + CORNERS * (high - low), "black", 0.7, 3)
        x, y, _ = self.corners.max(0)
        for text, place in (
            ("0", (0, 0, 0)), ("x", (x / 2, 0, 0)), ("y", (x, y / 2, 0)),
        ):  # fmt: skip
            column, row, _ = self.camera.project(np.array(place, float))
            axes.text(column, row + 0.02 * self.pixels, text, ha="center", va="top", fontsize=7)
        axes.set_axis_off()

    def _edges(
        self, axes: Axes, corners: np.ndarray, colour: str, width: float, level: int
    ) -> None:
        """Draw the edges of a cuboid; hidden edges are dashed."""
        flat = self.camera.project(corners)[:, :2]
        ends = [
            (flat[a], flat[b], (np.nan, np.nan))
            for a, b in itertools.combinations(range(8), 2)
            if np.abs(CORNERS[a] - CORNERS[b]).sum() == 1
        ]
        x, y = np.concatenate(ends).T
        axes.plot(x, y, "--", color=colour, linewidth=width, zorder=level)


class _Sheet:
    """The pages of one container."""

    def __init__(self, packing: Packing, unit: str, title: str) -> None:
        self.packing, self.unit, self.title = packing, unit, title
        self.metres = UNITS[unit] if unit else 1.0
        # Positions are measured from the corner of the deck; boxes may reach over its edge.
        self.deck = np.array([*packing.constraints.get("overhang", (0.0, 0.0)), 0.0])
        self.bounds = bounds_of(packing)
        self.steps = steps_of(packing, self.bounds)
        self.rectangle = require("matplotlib.patches", "PDF files").Rectangle
        self.polygons = require("matplotlib.collections", "PDF files").PolyCollection
        self.figure: type[Figure] = require("matplotlib.figure", "PDF files").Figure

    def pages(self) -> Iterator[Figure]:
        """Yield the overview, then the steps."""
        names = list(dict.fromkeys(item.name for item in self.packing.items))
        yield self._overview(names[:FIRST_PARTS], whole=True)
        for first in range(FIRST_PARTS, len(names), MORE_PARTS):
            yield self._overview(names[first : first + MORE_PARTS], whole=False)
        view, size = _View(self.packing, PIXELS), ROWS * COLUMNS
        for first in range(0, len(self.steps), size):
            figure = self._blank(f"steps {first + 1} to {min(first + size, len(self.steps))}")
            for place, step in enumerate(self.steps[first : first + size]):
                view.add(step.items)
                row, column = divmod(place, COLUMNS)
                self._step(figure, (0.06 + 0.46 * column, 0.715 - 0.225 * row), first + place, view)
            yield figure

    def length(self, *metres: float, unit: bool = True) -> str:
        """Format lengths in the unit."""
        text = " x ".join(f"{length / self.metres + 0.0:.7g}" for length in metres)
        return f"{text} {self.unit}".rstrip() if unit else text

    def _blank(self, what: str) -> Figure:
        figure = self.figure(figsize=A4)
        _text(figure, 0.06, 0.965, f"{self.title}: {what} of {len(self.steps)}", 11, bold=True)
        return figure

    def _overview(self, names: Sequence[str], *, whole: bool) -> Figure:
        """Draw the list of parts; the first page also explains the sheet."""
        packing, top = self.packing, 0.92
        figure = self.figure(figsize=A4)
        _text(figure, 0.06, 0.955, f"Load plan, {self.title}", 16, bold=True)
        weights = [item.handling.get("weight") for item in packing.items]
        if whole:
            # 1. Draw the container and the finished load.
            lines = [
                f"inside {self.length(*packing.container - 2 * self.deck)} along x, y, up",
                f"{len(weights)} parts in {len(self.steps)} steps",
                f"{100 * packing.utilization:.1f} % of the volume",
                f"loaded {DOORS[packing.constraints.get('door', 'top')]}",
            ]
            if self.deck.any():
                lines.append(f"boxes may reach over the deck by {self.length(*self.deck[:2])}")
            if any(weights):
                lines.append(f"weight of the load {sum(w or 0.0 for w in weights):.7g} kg")
            _text(figure, 0.06, 0.93, "\n".join([*lines, "", *READING]), 9)
            view = _View(packing, 2 * PIXELS)
            view.add(packing.items)
            view.draw(figure.add_axes((0.52, 0.6, 0.44, 0.34)), (), None)
            top = 0.57

        # 2. Draw the table of parts.
        count = Counter(item.name for item in packing.items)
        first = {item.name: item for item in reversed(packing.items)}
        _text(figure, 0.06, top, "parts", 9, bold=True)
        _text(figure, 0.12, top, "name", 9, bold=True)
        _text(figure, 0.55, top, "length x width x height", 9, bold=True)
        _text(figure, 0.85, top, "kg each", 9, bold=True)
        for row, name in enumerate(names, 1):
            item, height = first[name], top - 0.0165 * row
            sides = [side * item.scale * UNITS[item.unit] for side in item.extent or ()]
            _text(figure, 0.06, height, f"{count[name]}", 9)
            _text(figure, 0.12, height, name, min(9, 9 * 46 / len(name)))
            _text(figure, 0.55, height, self.length(*sides) if sides else "as its file", 9)
            _text(figure, 0.85, height, f"{item.handling.get('weight', '')}", 9)
        return figure

    def _step(self, figure: Figure, corner: tuple[float, float], number: int, view: _View) -> None:
        """Draw a step: text above, the load at the left, its level from above at the right."""
        step, (left, bottom) = self.steps[number], corner
        item, count = step.items[0], len(step.items)
        title = f"\u2610 {number + 1}   {count} x {item.name}"
        _text(figure, left, bottom + 0.222, title, min(10, 10 * 44 / len(title)), bold=True)
        x, y, z = step.counts
        block = f"; {x} along x, {y} along y, {z} high" if count > 1 else ""
        at = (
            f"{axis} {self.length(value, unit=False)}"
            for axis, value in zip(AXES, step.low - self.deck, strict=True)
        )
        lines = (
            f"{self.length(*step.side)} along x, y, up, {_lying(item)}",
            f"from {', '.join(at)}{block}",
        )
        _text(figure, left, bottom + 0.205, "\n".join(lines), 7.5)
        axes = figure.add_axes((left - 0.01, bottom, 0.235, 0.182))
        view.draw(axes, step.items, np.stack((step.low, step.high)))
        self._level(figure.add_axes((left + 0.245, bottom + 0.02, 0.175, 0.145)), step)

    def _level(self, axes: Axes, step: Step) -> None:
        """Draw the level of a step from above, with its neighbours and distances from the walls."""
        over_x, over_y, _ = self.deck / self.metres
        wide, deep, _ = (np.asarray(self.packing.container) - 2 * self.deck) / self.metres
        low, high = (
            (bounds[: step.items[-1].order + 1] - self.deck) / self.metres for bounds in self.bounds
        )
        base, close = step.low[2] / self.metres, _CLOSE / self.metres
        new = np.arange(len(low)) >= step.items[0].order
        beside = ~new & (low[:, 2] < base + close) & (high[:, 2] > base + close)
        below = ~new & (np.abs(high[:, 2] - base) <= close)
        for rows, style in (
            (below, {"facecolor": "white", "edgecolor": "0.6", "linestyle": ":"}),
            (beside, {"facecolor": _THERE, "edgecolor": _LINE}),
            (new, {"facecolor": _NEXT, "edgecolor": "black", "hatch": "//"}),
        ):
            (x, y, _), (right, far, _) = low[rows].T, high[rows].T
            corners = np.stack([x, y, right, y, right, far, x, far], 1).reshape(-1, 4, 2)
            axes.add_collection(self.polygons(corners, linewidth=0.6, **style))
        axes.add_patch(self.rectangle((0, 0), wide, deep, fill=False, linewidth=1.2))
        axes.set(xlim=(-over_x, wide + over_x), ylim=(-over_y, deep + over_y), aspect="equal")
        (x, y, _), (right, far, _) = (
            (end - self.deck) / self.metres for end in (step.low, step.high)
        )
        axes.set_xticks(*_ends(x, right, wide))
        axes.set_yticks(*_ends(y, far, deep))
        axes.tick_params(labelsize=6, length=2, pad=1)
        axes.set_title("from above, at this height", fontsize=6, pad=2)
        for spine in axes.spines.values():
            spine.set_visible(False)


def _ends(start: float, end: float, whole: float) -> tuple[list[float], list[str]]:
    """Return ticks at both ends of a step, or one tick if two labels would overlap."""
    if end - start < _NARROW * whole:
        return [(start + end) / 2], [f"{start:.6g} - {end:.6g}"]
    return [start, end], [f"{start:.6g}", f"{end:.6g}"]


def _text(
    figure: Figure, x: float, y: float, text: str, size: float, *, bold: bool = False
) -> None:
    """Write lines of text at a place, in shares of the page."""
    weight = "bold" if bold else "normal"
    figure.text(x, y, text, va="top", fontsize=size, weight=weight, parse_math=False)


def _lying(item: PlacedItem) -> str:
    """Describe how a box lies, compared with its listed length, width and height."""
    if item.extent is None:
        return "as the picture shows"
    along, _, up = np.abs(item.rotation).argmax(1).tolist()
    if up == 2:
        return "as listed" if along == 0 else "turned: its width along x"
    return ("on end: its length up", "on its side: its width up")[up]


def bounds_of(packing: Packing) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper corners ``[N, 3]`` of all items, metres."""
    corners = [triangles(item, packing.cell).reshape(-1, 3) for item in packing.items]
    low, high = ([reach(each, 0) for each in corners] for reach in (np.min, np.max))
    return np.reshape(low, (-1, 3)), np.reshape(high, (-1, 3))
