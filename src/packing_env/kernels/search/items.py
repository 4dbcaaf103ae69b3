"""Arguments of the search for the lowest placements: rule, lattice and pooled items.

See :mod:`packing_env.kernels.search`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from packing_env.kernels.layout import extents
from packing_env.kernels.stability_rules import MARGINS, RULES

SEARCHED_RULES = (*(name for name, rule in RULES.items() if rule.corners is None), *MARGINS)
"""Stability rules that the search can evaluate for a single placement: those without corners."""

_POOL = 4
"""Approximate side of a pooled square in cells; on a coarse lattice it is two lattice steps."""

_TAPS = 8
"""Lists of squares are padded to a multiple of this."""

WHOLE = ("width", "depth", "com_x", "com_y", "size_x", "size_y", "first", "taps")
"""Integers of an item in an orientation: cells of the window up to the last footprint cell (0
without a footprint), the centre of mass (1/64 cell), the cells of the window, and the start and the
length of its list of squares."""

REAL = ("peak", "base")
"""Metres: the highest point, and the smallest ``bottom``."""


@dataclass(frozen=True)
class SearchItems:
    """Arrays of a catalogue that the search reads; :func:`search_items` makes them once.

    Attributes:
        bottom: ``[M, R, U, V]`` lower surfaces, metres, +inf outside the footprint.
        whole: ``[M, R, W]`` the numbers of :data:`WHOLE`.
        real: ``[M, R, 2]`` the numbers of :data:`REAL`.
        offset: ``[T]`` offset from a placement's lattice point to a square in the pooled heights,
            which hold all minima, then all maxima.
        level: ``[T]`` level to subtract from the pooled height, ascending in each list. Each list
            is padded to a multiple of eight by repeating its last entry.
    """

    bottom: Float[Tensor, "M R U V"]
    whole: Int[Tensor, "M R W"]
    real: Float[Tensor, "M R 2"]
    offset: Int[Tensor, " T"]
    level: Float[Tensor, " T"]


@dataclass(frozen=True)
class Search:
    """Lattice, rule and order of a search.

    Attributes:
        grid: Cells of the container.
        stride: Cells between placements.
        rule: One of :data:`SEARCHED_RULES`.
        lid: Highest legal float32(z + peak), metres.
        tolerance: Largest distance at which a cell supports, metres.
        scale: The order is by the key ``round(z / scale[0] * scale[1] * scale[2] * ...)``, with
            ties by x, y, item and orientation. The quotient is float32, the products are float64
            from left to right, and halves are rounded to even.
    """

    grid: tuple[int, int]
    stride: int
    rule: str
    lid: float
    tolerance: float
    scale: tuple[float, ...]

    @property
    def pooled(self) -> int:
        """Cells along the side of a pooled square, a whole number of lattice steps."""
        return self.stride * max(2, round(_POOL / self.stride))

    @property
    def lattice(self) -> tuple[int, int]:
        """Lattice points along x and y."""
        return -(-self.grid[0] // self.stride), -(-self.grid[1] // self.stride)


def search_items(catalogue: Mapping[str, Tensor], search: Search) -> SearchItems:
    """Pool the lower surfaces of a catalogue.

    The lists hold at most ``12 bytes * 2 * ceil(U / k) * ceil(V / k)`` per orientation.

    Args:
        catalogue: ``core``'s tensors of the items.
        search: Lattice and rule.
    """
    bottom, size = catalogue["bottom"], catalogue["size"]
    # 1. The lists of squares, concatenated.
    inside = torch.where(catalogue["orientation_mask"][..., None], size, 0)
    parts = [_pooled(*each, search) for each in zip(bottom, inside, strict=True)]
    extent, base, taps, offset, level = zip(*parts, strict=True)
    count = torch.stack(taps)
    first = count.flatten().cumsum(0).view_as(count) - count
    # 2. The numbers of each orientation.
    where = torch.stack((first, count), -1)
    columns = (torch.stack(extent), catalogue["com"], size, where)
    return SearchItems(
        bottom=bottom.contiguous(),
        whole=torch.cat(columns, -1),
        real=torch.stack((catalogue["peak"], torch.stack(base)), -1),
        offset=torch.cat(offset),
        level=torch.cat(level),
    )


def _pooled(
    bottom: Float[Tensor, "R U V"], size: Int[Tensor, "R 2"], search: Search
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return size, base and number of taps of one item ``[R]``, and the taps' offsets, levels."""
    side = search.pooled
    # 1. Pad the window to whole squares; cells outside the item's own window are +inf.
    w, h = (-(-int(cells) // side) * side for cells in size.amax(0))
    at = torch.arange(max(w, h), device=bottom.device)
    within = (at[:w, None] < size[:, None, :1]) & (at[:h] < size[:, None, 1:])
    beyond = (0, h - bottom.shape[2], 0, w - bottom.shape[1])
    known = torch.where(within, functional.pad(bottom, beyond, value=torch.inf), torch.inf)
    # 2. The smallest and the greatest level of each square; the latter is +inf if any cell is.
    squares = known.unflatten(2, (-1, side)).unflatten(1, (-1, side))
    level = torch.cat((squares.amin((2, 4)).flatten(1), squares.amax((2, 4)).flatten(1)), 1)
    steps, (xs, ys) = side // search.stride, search.lattice
    i, j = (torch.arange(n, device=known.device) for n in (squares.shape[1], squares.shape[3]))
    offset = (i[:, None] * ys + j).flatten() * steps
    offset = torch.cat((offset, offset + xs * ys))
    # 3. Keep the finite levels in ascending order, and repeat the last one as padding.
    level, order = level.sort(1)
    count = torch.isfinite(level).sum(1)
    taps = -(-count // _TAPS) * _TAPS
    place = torch.arange(-(-level.shape[1] // _TAPS) * _TAPS, device=known.device)
    listed = place < taps[:, None]
    place = torch.minimum(place, (count - 1).clamp(min=0)[:, None])
    offset, level = (each.gather(1, place)[listed] for each in (offset[order], level))
    return extents(known), known.amin((1, 2)), taps, offset, level
