"""Figures with titles, and PNG files; Matplotlib is imported lazily."""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from packing_env.extras import require
from packing_env.plan import Packing, whole_file
from packing_env.render.scene import image

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def title_of(packing: Packing) -> str:
    """Return a title of one line: utilization and number of items."""
    return (
        f"utilization {100 * packing.utilization:.1f} %   "
        f"{len(packing.items)} of {packing.num_items} items"
    )


def save_grid(
    path: str | Path,
    packings: Sequence[Packing],
    *,
    columns: int | None = None,
    titles: Sequence[str] | None = None,
    size: int = 480,
) -> None:
    """Write several containers side by side as a PNG.

    Args:
        path: File to write, atomically.
        packings: The packings, one per picture.
        columns: Pictures per row; by default the grid is as square as possible.
        titles: One title per picture; by default its utilization and number of items.
        size: Width of a picture, pixels.

    Raises:
        ValueError: There are no packings, or the number of titles differs.
    """
    if not packings:
        raise ValueError("packings is empty; pass at least one packing to draw")
    if titles is not None and len(titles) != len(packings):
        raise ValueError(f"{len(titles)} titles for {len(packings)} pictures; give one per picture")
    columns = columns or math.ceil(math.sqrt(len(packings)))
    titles = titles or [title_of(packing) for packing in packings]
    rows, side = math.ceil(len(packings) / columns), 3.6
    figure: Figure = require("matplotlib.figure", "figures").Figure(
        figsize=(columns * side, rows * (side + 0.3)), layout="constrained"
    )
    axes = np.ravel(figure.subplots(rows, columns, squeeze=False))
    for place in axes:
        place.set_axis_off()
    for place, packing, title in zip(axes, packings, titles, strict=False):
        place.imshow(image(packing, size), interpolation="antialiased")
        place.set_title(title, fontsize=10)
    with whole_file(path) as draft:
        figure.savefig(draft, dpi=size / side, format="png")


def save_png(path: str | Path, picture: np.ndarray) -> None:
    """Write ``[height, width, 3]`` uint8 as a PNG, without any other package."""
    height, width = picture.shape[:2]
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)  # 8 bits, RGB
    lines = np.pad(picture.reshape(height, -1), ((0, 0), (1, 0)))  # each without a filter
    chunks = {b"IHDR": header, b"IDAT": zlib.compress(lines.tobytes(), 9), b"IEND": b""}
    with whole_file(path) as draft, draft.open("wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        for name, data in chunks.items():
            file.write(struct.pack(">I", len(data)) + name + data)
            file.write(struct.pack(">I", zlib.crc32(name + data)))
