"""Heightmaps and items of given sizes for the drop-height kernels."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Size:
    """Dimensions of a problem.

    Attributes:
        rows: Containers.
        cells: Side of a container, cells.
        stride: Cells between two lattice points.
        footprints: ``(w, h)`` of each orientation, cells.
        filled: Share of the rectangle that is footprint; 1 makes a flat item, with bottom 0.
        baseline_rows: Containers that the baselines compute; their times are scaled to all rows.
    """

    rows: int
    cells: int
    stride: int
    footprints: tuple[tuple[int, int], ...]
    filled: float = 0.8
    baseline_rows: int | None = None

    @property
    def operations(self) -> int:
        """Number of subtract-and-maximum pairs, over whole rectangles."""
        return self.rows * sum(self.steps(w) * self.steps(h) * w * h for w, h in self.footprints)

    def steps(self, side: int) -> int:
        """Return the number of lattice points along an axis at which ``side`` cells are inside."""
        return (self.cells - side) // self.stride + 1


def _orientations(*sides: int) -> tuple[tuple[int, int], ...]:
    """Return 24 footprints, four of each pair of different sides."""
    return tuple(pair for pair in permutations(sides, 2) for _ in range(4))


SIZES = {
    "A": Size(1, 200, 4, _orientations(36, 40, 44)),
    "A1": Size(1, 200, 1, _orientations(36, 40, 44)),
    "B": Size(64, 64, 1, _orientations(10, 12, 14)),
    "flat": Size(1, 200, 1, ((40, 40),), filled=1.0),
    "batch": Size(1024, 200, 4, ((40, 40),) * 24, baseline_rows=4),
}
"""Named problems, with their millions of operations.

``A``: one container of 200 x 200, every 4th cell, 64; ``A1``: the same at every cell, 990; ``B``:
64 containers of 64 x 64, 613; ``flat``: a box of 40 x 40; ``batch``: for a GPU, 66,000.
"""


@dataclass(frozen=True)
class Problem:
    """Heightmaps and lower surfaces of items.

    Attributes:
        size: Dimensions.
        heightmap: ``[B, X, Y]`` metres.
        bottom: ``[B, R, U, V]`` metres, +inf outside the footprint.
    """

    size: Size
    heightmap: Float[Tensor, "B X Y"]
    bottom: Float[Tensor, "B R U V"]

    def cut(self, row: int, orientation: int) -> Float[Tensor, "w h"]:
        """Return one lower surface without the padding of its window."""
        w, h = self.size.footprints[orientation]
        return self.bottom[row, orientation, :w, :h]


def random_problem(
    size: Size, generator: torch.Generator, device: torch.device | str = "cpu"
) -> Problem:
    """Draw heights up to 0.3 m, and lower surfaces of 0 to 0.05 m that fill their rectangles."""
    window = [max(sides) for sides in zip(*size.footprints, strict=True)]
    heightmap = 0.3 * torch.rand(size.rows, size.cells, size.cells, generator=generator)
    shape = (size.rows, len(size.footprints), *window)
    bottom = torch.full(shape, torch.inf)
    for orientation, (w, h) in enumerate(size.footprints):
        part = bottom[:, orientation, :w, :h]
        if size.filled == 1.0:
            part.zero_()
            continue
        values = 0.05 * torch.rand(part.shape, generator=generator)
        values[torch.rand(part.shape, generator=generator) > size.filled] = torch.inf
        values[:, -1, -1] = 0.05
        values[:, 0, 0] = 0.0
        part.copy_(values)
    return Problem(size, heightmap.to(device), bottom.to(device))


def random_size(generator: torch.Generator, largest: int = 24) -> Size:
    """Draw small dimensions; an orientation may be a single cell or fill the container."""

    def draw(low: int, high: int) -> int:
        return int(torch.randint(low, high + 1, (), generator=generator))

    cells = draw(2, largest)
    pairs = tuple((draw(1, cells), draw(1, cells)) for _ in range(draw(1, 4)))
    stride = draw(1, min(4, cells))
    return Size(draw(1, 3), cells, stride, pairs)
