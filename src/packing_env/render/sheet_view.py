"""Pictures of a load for the printed sheet: a parallel projection to which items are added."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from packing_env.plan import Packing, PlacedItem
from packing_env.render.raster import look_at, rasterize
from packing_env.render.scene import AZIMUTH, ELEVATION
from packing_env.render.solids import CORNERS, EDGES, triangles

if TYPE_CHECKING:
    from matplotlib.axes import Axes

A4 = (8.27, 11.69)
NEXT, THERE, LINE = np.array([0.91, 0.47, 0.12]), np.full(3, 0.93), np.full(3, 0.15)
_LEVELS = 100
"""Brightnesses in a picture; a PDF stores up to 256 colours in one byte."""
_LIGHT = np.array([0.72, 0.86, 1.0])
"""Brightness of faces across x, of faces across y, and of tops."""


class View:
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
        light = np.square(normal) @ _LIGHT  # squares add up to 1, so the light is at most 1
        number, near = rasterize(self.camera.project(solid), (self.pixels, self.pixels))
        nearer = (number >= 0) & (near > self.near)
        self.near[nearer] = near[nearer]
        self.owner[nearer], self.light[nearer] = owner[number[nearer]], light[number[nearer]]

    def picture(self, marked: Sequence[PlacedItem]) -> np.ndarray:
        """Return ``[P, P, 4]`` RGBA bytes: marked items are dark, all others are light."""
        # 1. The palette: brightness of light items, of dark ones, an outline, and no item.
        levels = np.linspace(0.0, 255.0, _LEVELS)[:, None]
        palette = np.concatenate((levels * THERE, levels * NEXT, 255 * LINE[None]))
        palette = np.concatenate((palette, np.full((len(palette), 1), 255)), 1)
        palette = np.concatenate((palette, np.zeros((1, 4)))).astype(np.uint8)
        # 2. The colour of each pixel; outlines are between items or faces.
        orders = [item.order for item in marked]
        dark = (self.owner >= min(orders, default=0)) & (self.owner <= max(orders, default=-1))
        index = np.round(self.light * (_LEVELS - 1)).astype(np.uint8)
        index += (dark * _LEVELS).astype(np.uint8)
        index[self.owner < 0] = 2 * _LEVELS + 1
        for array in (self.owner, self.light):
            index[:-1][array[1:] != array[:-1]] = 2 * _LEVELS
            index[:, :-1][array[:, 1:] != array[:, :-1]] = 2 * _LEVELS
        return palette[index]

    def draw(
        self,
        page: Axes,
        corner: tuple[float, float],
        width: float,
        marked: Sequence[PlacedItem],
        block: np.ndarray | None,
    ) -> None:
        """Draw the container, the items, and the edges of a block that others may hide.

        Args:
            page: Axes of the whole page, from 0 to 1.
            corner: Upper left corner of the picture.
            width: Width of the picture.
            marked: The dark items.
            block: ``[2, 3]`` lower and upper corner of the block, or None.
        """
        size = np.array([width, -width * A4[0] / A4[1]])

        def place(points: np.ndarray) -> np.ndarray:
            flat = self.camera.project(points)[..., :2]
            return np.asarray(corner + (flat + 0.5) / self.pixels * size)

        self._edges(page, place(self.corners), "0.6", 0.6, 1)
        flat = self.camera.project(self.corners)[:, :2]
        low, high = np.floor(flat.min(0)).astype(int), np.ceil(flat.max(0)).astype(int) + 2
        low = np.maximum(low, 0)
        (x, y), (right, far) = corner + low / self.pixels * size, corner + high / self.pixels * size
        page.imshow(
            self.picture(marked)[low[1] : high[1], low[0] : high[0]],
            extent=(x, right, far, y), aspect="auto", interpolation="none", zorder=2,
        )  # fmt: skip
        if block is not None:
            low, high = block
            self._edges(page, place(low + CORNERS * (high - low)), "black", 0.7, 3)
        x, y, _ = self.corners.max(0)
        for text, at in (("0", (0, 0, 0)), ("x", (x / 2, 0, 0)), ("y", (x, y / 2, 0))):
            column, row = place(np.array(at, float)) + 0.02 * size * (0, 1)
            page.text(column, row, text, ha="center", va="top", fontsize=7)

    def _edges(self, page: Axes, flat: np.ndarray, colour: str, width: float, level: int) -> None:
        """Draw the edges of a cuboid; hidden edges are dashed."""
        ends = [(flat[a], flat[b], (np.nan, np.nan)) for a, b in EDGES]
        x, y = np.concatenate(ends).T
        page.plot(x, y, "--", color=colour, linewidth=width, zorder=level)
