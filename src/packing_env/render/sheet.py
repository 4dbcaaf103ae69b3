"""The load plan for printing: a PDF in A4 that marks the boxes of each step, for the loader.

Consecutive equal boxes with the same orientation form one step if together they fill a cuboid: a
row, a layer or a block. Pages are readable without colour.
"""

from __future__ import annotations

import contextlib
import logging
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from packing_env.extras import require
from packing_env.plan import Packing, PlacedItem, whole_file
from packing_env.render.sheet_view import A4, LINE, NEXT, THERE, View
from packing_env.render.solids import triangles
from packing_env.values import UNITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LOGGER = logging.getLogger(__name__)

ROWS, COLUMNS = 4, 2
"""Number of steps on a page."""
FIRST_PARTS, MORE_PARTS = 30, 50
"""Rows of the table on the first page, and on each later page."""
PIXELS = 320
AXES = ("x", "y", "up")
DOORS = {
    "top": "from above",
    "rear": "through the rear door, at the far end of x",
    "side": "through the side door, at the far end of y",
}
READING = (
    "How to read the steps",
    "Load the steps in order. Tick the square of each.",
    "The parts of a step are dark (orange), the others light.",
    "Places are measured from the corner 0: along x,",
    "along y, and up from the floor, to the nearest corner.",
    "The small plan shows, from above, the parts at the same",
    "height. Dotted parts carry the step. The numbers at its",
    "edges are the places where the step begins and ends.",
    "Equal parts that fill a row, a layer or a block are one",
    "step: begin at the bottom, farthest from the door.",
)
_GAP, _DIGIT = np.array([0.004, 0.012]), np.array([0.0064, 0.0])
"""Space between two labels along x and y, and the width of a digit in them, as shares of the page.
"""
_EAST_ASIAN = re.compile(
    "CJK|YaHei|SimHei|SimSun|JhengHei|PingFang|Hiragino|Meiryo|Yu Gothic|Malgun"
)
"""Names of fonts of East Asia on Linux, Windows and macOS."""
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
    with whole_file(path) as draft, pages(draft) as book, _fonts():
        for number, packing in enumerate(several, 1):
            unit_of_page = packing.shown_unit if unit is None else unit
            sheet = _Sheet(packing, unit_of_page, f"Container {number} of {len(several)}")
            for figure in sheet.pages():
                book.savefig(figure)


@contextlib.contextmanager
def _fonts() -> Iterator[None]:
    """Draw letters of East Asia with an installed font; log a line if letters are in no font."""
    import matplotlib.font_manager

    names = {font.name for font in matplotlib.font_manager.fontManager.ttflist}
    families = ["DejaVu Sans", *sorted(filter(_EAST_ASIAN.search, names))]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with matplotlib.rc_context({"font.family": families}):
            yield
    lacking = [each for each in caught if "missing from font" in str(each.message)]
    if lacking:
        _LOGGER.warning("no font has some letters of the PDF; install one, such as Noto Sans CJK")
    for each in caught:
        if each not in lacking:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


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


class _Sheet:
    def __init__(self, packing: Packing, unit: str, title: str) -> None:
        self.packing, self.unit, self.title = packing, unit, title
        self.metres = UNITS[unit] if unit else 1.0
        # Positions are measured from the corner of the deck; boxes may reach over its edge.
        self.deck = np.array([*packing.constraints.get("overhang", (0.0, 0.0)), 0.0])
        self.bounds = bounds_of(packing)
        self.steps = steps_of(packing, self.bounds)
        self.patch = require("matplotlib.patches", "PDF files").PathPatch
        self.path = require("matplotlib.path", "PDF files").Path
        self.figure: type[Figure] = require("matplotlib.figure", "PDF files").Figure

    def pages(self) -> Iterator[Figure]:
        """Yield the overview, then the steps."""
        names = list(dict.fromkeys(item.name for item in self.packing.items))
        yield self._overview(names[:FIRST_PARTS], whole=True)
        for first in range(FIRST_PARTS, len(names), MORE_PARTS):
            yield self._overview(names[first : first + MORE_PARTS], whole=False)
        view, size = View(self.packing, PIXELS), ROWS * COLUMNS
        for first in range(0, len(self.steps), size):
            figure = self._blank(f"steps {first + 1} to {min(first + size, len(self.steps))}")
            page = _page(figure)
            for place, step in enumerate(self.steps[first : first + size]):
                view.add(step.items)
                row, column = divmod(place, COLUMNS)
                self._step(page, (0.06 + 0.46 * column, 0.715 - 0.225 * row), first + place, view)
            yield figure

    def length(self, *metres: float, unit: bool = True) -> str:
        """Format lengths in the unit."""
        text = " x ".join(_number(length / self.metres) for length in metres)
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
            view = View(packing, 2 * PIXELS)
            view.add(packing.items)
            view.draw(_page(figure), (0.52, 0.93), 0.44, (), None)
            top = 0.57

        # 2. Draw the table of parts.
        count = Counter(item.name for item in packing.items)
        first = {item.name: number for number, item in reversed([*enumerate(packing.items)])}
        _text(figure, 0.06, top, "parts", 9, bold=True)
        _text(figure, 0.12, top, "name", 9, bold=True)
        _text(figure, 0.55, top, "length x width x height", 9, bold=True)
        _text(figure, 0.85, top, "kg each", 9, bold=True)
        for row, name in enumerate(names, 1):
            item, height = packing.items[first[name]], top - 0.0165 * row
            low, high = (bounds[first[name]] for bounds in self.bounds)
            sides = [side * item.scale * UNITS[item.unit] for side in item.extent or ()]
            if not sides and _is_square(item):
                sides = [*np.abs(item.rotation).T @ (high - low)]
            listed = self.length(*sides) if sides else "as in its file"
            _text(figure, 0.06, height, f"{count[name]}", 9)
            _text(figure, 0.12, height, name, min(9, 9 * 46 / len(name)))
            _text(figure, 0.55, height, listed, 9)
            weight = item.handling.get("weight")
            _text(figure, 0.85, height, "" if weight is None else f"{weight:.6g}", 9)
        return figure

    def _step(self, page: Axes, corner: tuple[float, float], number: int, view: View) -> None:
        """Draw a step: text above, the load at the left, its level from above at the right."""
        step, (left, bottom) = self.steps[number], corner
        item, count = step.items[0], len(step.items)
        title = f"\u2610 {number + 1}   {count} x {item.name}"
        _text(page, left, bottom + 0.222, title, min(10, 10 * 44 / len(title)), bold=True)
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
        _text(page, left, bottom + 0.205, "\n".join(lines), 7.5)
        corners = np.stack((step.low, step.high))
        view.draw(page, (left - 0.01, bottom + 0.174), 0.235, step.items, corners)
        self._level(page, (left + 0.245, bottom + 0.02), step)

    def _level(self, page: Axes, corner: tuple[float, float], step: Step) -> None:
        """Draw the level of a step from above, with its neighbours and distances from the walls.

        Many boxes are one path, because a patch for each takes most of the time of a sheet.
        """
        over_x, over_y, _ = self.deck / self.metres
        wide, deep, _ = (np.asarray(self.packing.container) - 2 * self.deck) / self.metres
        low, high = (
            (bounds[: step.items[-1].order + 1] - self.deck) / self.metres for bounds in self.bounds
        )
        base, close = step.low[2] / self.metres, _CLOSE / self.metres
        new = np.arange(len(low)) >= step.items[0].order
        beside = ~new & (low[:, 2] < base + close) & (high[:, 2] > base + close)
        below = ~new & (np.abs(high[:, 2] - base) <= close)
        # 1. The floor in the middle of its place on the page, with equal scales.
        floor, place = np.array([wide + 2 * over_x, deep + 2 * over_y]), np.array([0.175, 0.145])
        scale = (place * A4 / floor).min() / np.array(A4)
        origin = corner + (place - floor * scale) / 2 + np.array([over_x, over_y]) * scale

        def add(low: np.ndarray, high: np.ndarray, **style: Any) -> None:
            (x, y), (right, far) = low.T[:2], high.T[:2]
            corners = np.stack([x, y, right, y, right, far, x, far, x, y], 1).reshape(-1, 2)
            codes = np.tile([1, 2, 2, 2, 79], len(low)).astype(np.uint8)
            page.add_artist(self.patch(self.path(origin + corners * scale, codes), **style))

        # 2. Boxes, and the walls.
        for rows, style in (
            (below, {"facecolor": "white", "edgecolor": "0.6", "linestyle": ":"}),
            (beside, {"facecolor": THERE, "edgecolor": LINE}),
            (new, {"facecolor": NEXT, "edgecolor": "black", "hatch": "//"}),
        ):
            add(low[rows], high[rows], linewidth=0.6, **style)
        add(np.zeros((1, 2)), np.array([[wide, deep]]), fill=False, linewidth=1.2)
        # 3. Where the step begins and ends.
        (x, y, _), (right, far, _) = (
            (end - self.deck) / self.metres for end in (step.low, step.high)
        )
        edge = origin - np.array([over_x, over_y]) * scale - 0.003
        for at, label in _ends(x, right, _GAP[0] / scale[0], _DIGIT[0] / scale[0]):
            page.text(origin[0] + at * scale[0], edge[1], label, ha="center", va="top", fontsize=6)
        for at, label in _ends(y, far, _GAP[1] / scale[1], _DIGIT[1] / scale[1]):
            height, lines = origin[1] + at * scale[1], "\n".join(label.split(" - ")[::-1])
            page.text(edge[0], height, lines, ha="right", va="center", fontsize=6)


def _page(figure: Figure) -> Axes:
    """Return axes from 0 to 1 over the whole page; axes for each picture take far more time."""
    page = figure.add_axes((0, 0, 1, 1))
    page.set(xlim=(0, 1), ylim=(0, 1), autoscale_on=False)
    page.set_axis_off()
    return page


def _ends(start: float, end: float, gap: float, digit: float) -> list[tuple[float, str]]:
    """Return labels of both ends of a step, or one label if two would overlap."""
    labels = _number(start), _number(end)
    if end - start < gap + digit * len("".join(labels)) / 2:
        return [((start + end) / 2, " - ".join(labels))]
    return [(start, labels[0]), (end, labels[1])]


def _number(length: float) -> str:
    """Format a length without the rounding errors of its position."""
    return f"{round(length, 9) + 0.0:.7g}"


def _text(
    place: Figure | Axes, x: float, y: float, text: str, size: float, *, bold: bool = False
) -> None:
    """Write lines of text at a place, in shares of the page."""
    weight = "bold" if bold else "normal"
    place.text(x, y, text, va="top", fontsize=size, weight=weight, parse_math=False)


def _lying(item: PlacedItem) -> str:
    """Describe how a part lies, compared with its listed length, width and height."""
    if not _is_square(item):
        return "as the picture shows"
    along, _, up = np.abs(item.rotation).argmax(1).tolist()
    if up == 2:
        return "as listed" if along == 0 else "turned: its width along x"
    return ("on end: its length up", "on its side: its width up")[up]


def _is_square(item: PlacedItem) -> bool:
    """Return whether the axes of a part are parallel to those of the container."""
    return bool(np.abs(item.rotation).max(1).min() > 1 - _CLOSE)


def bounds_of(packing: Packing) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and upper corners ``[N, 3]`` of all items, metres."""
    corners = [triangles(item, packing.cell).reshape(-1, 3) for item in packing.items]
    low, high = ([reach(each, 0) for each in corners] for reach in (np.min, np.max))
    return np.reshape(low, (-1, 3)), np.reshape(high, (-1, 3))
