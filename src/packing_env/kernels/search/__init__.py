"""The lowest legal placements without a map of all of them: the operation and what it is given.

A lower bound of every rest height comes from pooled surfaces. The container's heights are pooled in
squares of k x k cells from each lattice point on, the items' lower surfaces in squares of the same
side, which is a whole number of lattice steps, so that square (i, j) of an item at lattice point
(x, y) lies on the container's square at (x + i k/s, y + j k/s). There

    z >= min(height) - min(bottom)                 over the cells that the square has,
    z >= max(height) - max(bottom)                 if every cell of it is footprint,

because the footprint cell where ``bottom`` is least stands on at least the least height, and, if
all cells are footprint, so does the one under the greatest height on at most the greatest
``bottom``. A float32 subtraction is monotone, so both hold for the rounded differences. These
bounds cost ``2 / k^2`` of a map. Placements are then taken in the order of their bounds; one whose
height is not yet known gets it and goes back in line, and one whose height is known is the next in
the true order, to which the stability rule is put. :func:`lowest_placements` says what that costs
at worst.

The search exists compiled for the CPU alone (:func:`finds_lowest`). Elsewhere
:mod:`packing_env.core.lowest` takes the lowest of full maps, to the same bits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.backends import _resolve
from packing_env.kernels.support.eager import HALF_CELL

SEARCHED_RULES = ("none", "com_hull", "center_hull")
"""Stability rules that the search can put to a single placement."""

PATIENCE = 400
"""Placements of a row that are put to the rule before it is given up."""

_POOL = 4
"""Cells along the side of the smallest pooled squares, about."""

_LEVELS = 3
"""Levels of squares; those of each level are half as wide as those of the level before."""

_TAPS = 8
"""Squares that a pass takes at once; lists of them are padded to a multiple."""

torch.library.define(
    "packing_env::numba_lowest",
    "(Tensor heightmap, Tensor item_id, Tensor there, Tensor[] items, int[] counts,"
    " float[] lengths) -> (Tensor, Tensor, Tensor)",
)


@torch.library.impl("packing_env::numba_lowest", "cpu")
def _numba_lowest(
    heightmap: Tensor,
    item_id: Tensor,
    there: Tensor,
    items: Sequence[Tensor],
    counts: Sequence[int],
    lengths: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor]:
    from packing_env.kernels.search import numba as lowest_numba

    return lowest_numba.lowest_placements(heightmap, item_id, there, items, counts, lengths)


@torch.library.register_fake("packing_env::numba_lowest")
def _fake_lowest(
    heightmap: Tensor,
    item_id: Tensor,
    there: Tensor,
    items: Sequence[Tensor],
    counts: Sequence[int],
    lengths: Sequence[float],
) -> tuple[Tensor, Tensor, Tensor]:
    shape = (len(heightmap), counts[0])
    index = item_id.new_empty(shape)
    return index, heightmap.new_empty(shape), item_id.new_empty(len(heightmap), 3)


WHOLE = (
    "width",
    "depth",
    "last_x",
    "last_y",
    "point_x",
    "point_y",
    "area",
    "first",
    "taps",
)
"""Integers of an item in an orientation: window cells up to the last footprint cell (0: there is
none), the largest lower corner that ``candidate_range`` allows, what the rule holds over the
supporting cells (the centre of mass or the window's centre, 1/64 cell), footprint cells. Then for
each level, from the widest squares on, where its list begins and how long it is."""

REAL = ("peak", "base")
"""Metres: the highest point, the least ``bottom``."""


@dataclass(frozen=True)
class SearchItems:
    """What the search reads of a catalogue, made once (:func:`search_items`).

    Attributes:
        bottom: ``[M, R, U, V]`` lower surfaces, metres, +inf outside the footprint.
        whole: ``[M, R, W]`` the numbers of :data:`WHOLE`, the last two once for each level.
        real: ``[M, R, 2]`` those of :data:`REAL`.
        offset: ``[T]`` from a placement to a square in the pooled heights, lattice points; those of
            the maxima stand behind those of the minima.
        level: ``[T]`` what is subtracted there, ascending in each list; a list is padded to a
            multiple of eight with its last entry.
    """

    bottom: Float[Tensor, "M R U V"]
    whole: Int[Tensor, "M R W"]
    real: Float[Tensor, "M R 2"]
    offset: Int[Tensor, " T"]
    level: Float[Tensor, " T"]


@dataclass(frozen=True)
class Search:
    """What is asked for.

    Attributes:
        grid: Cells of the container.
        stride: Cells between placements.
        rule: One of :data:`SEARCHED_RULES`.
        lid: Highest legal float32(z + peak), metres.
        contact_tol: Metres by which a supporting cell may miss contact.
        scale: Nothing: by rest height, ties by the index of the placement. Else by the key
            ``round(z / scale[0] * scale[1] * scale[2] * ...)``, the quotient in float32, the
            products in float64 from the left, half to even; ties by x, y, item, orientation.
    """

    grid: tuple[int, int]
    stride: int
    rule: str
    lid: float
    contact_tol: float
    scale: tuple[float, ...] = ()

    @property
    def pooled(self) -> int:
        """Cells along the side of a pooled square: lattice steps of about four cells."""
        return self.stride * max(1, round(_POOL / self.stride))

    @property
    def lattice(self) -> tuple[int, int]:
        """Lattice points along x and y."""
        return -(-self.grid[0] // self.stride), -(-self.grid[1] // self.stride)


def finds_lowest(device_type: str) -> bool:
    """Whether the backend chosen for this device has the operation of this module."""
    return device_type == "cpu" and _resolve(None, device_type) == "numba"


def search_items(
    catalogue: Mapping[str, Tensor], search: Search, *, unrotated: bool = False
) -> SearchItems:
    """Pool the lower surfaces of a catalogue.

    The lists hold at most ``8 bytes * 2 * ceil(U / k) * ceil(V / k)`` per orientation.

    Args:
        catalogue: ``core``'s tensors of the items.
        search: Lattice and rule.
        unrotated: Allow lower corners only where orientation 0's window stays inside.
    """
    bottom, size = catalogue["bottom"], catalogue["size"]
    inside = torch.where(catalogue["orientation_mask"][..., None], size, 0)
    parts = [_pooled(*each, search) for each in zip(bottom, inside, strict=True)]
    extent, area, base, squares = zip(*parts, strict=True)
    lists = [each[depth] for each in squares for depth in range(_LEVELS)]
    taps = torch.stack([count for count, _, _ in lists])
    first = taps.flatten().cumsum(0).view_as(taps) - taps
    where = torch.stack((first, taps), -1).unflatten(0, (-1, _LEVELS)).transpose(1, 2).flatten(2)
    last = torch.tensor(search.grid, device=bottom.device) - size[:, :1] * unrotated
    point = HALF_CELL * size if search.rule == "center_hull" else catalogue["com"]
    columns = (
        torch.stack(extent),
        last.expand_as(size),
        point,
        torch.stack(area)[..., None],
        where,
    )
    return SearchItems(
        bottom=bottom.contiguous(),
        whole=torch.cat(columns, -1),
        real=torch.stack((catalogue["peak"], torch.stack(base)), -1),
        offset=torch.cat([offset for _, offset, _ in lists]),
        level=torch.cat([level for _, _, level in lists]),
    )


def _pooled(
    bottom: Float[Tensor, "R U V"], size: Int[Tensor, "R 2"], search: Search
) -> tuple[Tensor, Tensor, Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
    """Of one item ``[R]``: extent, area, base, and its squares of each level."""
    widest = search.pooled << (_LEVELS - 1)
    w, h = (-(-int(side) // widest) * widest for side in size.amax(0))
    at = torch.arange(max(w, h), device=bottom.device)
    within = (at[:w, None] < size[:, None, :1]) & (at[:h] < size[:, None, 1:])
    known = torch.full(within.shape, torch.inf, device=bottom.device)
    part = bottom[:, :w, :h]
    known[:, : part.shape[1], : part.shape[2]] = part
    known = torch.where(within, known, torch.inf)
    footprint = torch.isfinite(known)
    extent = torch.stack(
        [(footprint.any(axis) * (at[:n] + 1)).amax(1) for axis, n in ((2, w), (1, h))], -1
    )
    squares = [_squares(known, widest >> depth, search) for depth in range(_LEVELS)]
    return extent, footprint.sum((1, 2)), known.amin((1, 2)), squares


def _squares(
    known: Float[Tensor, "R U V"], side: int, search: Search
) -> tuple[Int[Tensor, " R"], Int[Tensor, " T"], Float[Tensor, " T"]]:
    """Squares of one side: how many per orientation, their offsets and levels."""
    steps, (xs, ys) = side // search.stride, search.lattice
    squares = known.unflatten(2, (-1, side)).unflatten(1, (-1, side))
    level = torch.cat((squares.amin((2, 4)).flatten(1), squares.amax((2, 4)).flatten(1)), 1)
    i, j = (torch.arange(n, device=known.device) for n in (squares.shape[1], squares.shape[3]))
    offset = (i[:, None] * ys + j).flatten() * steps
    offset = torch.cat((offset, offset + xs * ys))
    level, order = level.sort(1)
    count = torch.isfinite(level).sum(1)
    taps = -(-count // _TAPS) * _TAPS
    place = torch.arange(-(-level.shape[1] // _TAPS) * _TAPS, device=known.device)
    listed = place < taps[:, None]
    place = torch.minimum(place, (count - 1).clamp(min=0)[:, None])
    offset, level = (each.gather(1, place)[listed] for each in (offset[order], level))
    return taps, offset.int(), level


def lowest_placements(
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    items: SearchItems,
    search: Search,
    count: int = 1,
) -> tuple[Int[Tensor, "B K"], Float[Tensor, "B K"], Int[Tensor, "B 3"]]:
    """The ``count`` lowest legal placements, the best first, where :func:`finds_lowest`.

    A placement's own height and the rule's answer to it cost many times their share of a map. Where
    the bounds tell little, or little is legal, a row is given up after :data:`PATIENCE` answers or
    eight times as many heights, before it has cost a few times what maps cost.

    Memory: at most 5 bytes per placement of one row and thread, whatever the number of rows; pages
    of planes (an item in an orientation) that cannot hold one of the lowest are never touched.

    Args:
        heightmap: finite heights of the container.
        item_id: catalogue rows of the visible items.
        there: which of them exist.
        items: the catalogue, packed for this ``search``.
        search: lattice, rule and order.
        count: how many.

    Returns:
        Indices ``((slot * R + orientation) * Xs + x / stride) * Ys + y / stride``, -1 where there
        are no more; their rest heights, +inf there; and per row how many placements were given
        their exact height, how many were put to the rule, and whether the row was given up, whose
        other entries mean nothing then.
    """
    if heightmap.dtype != torch.float32 or heightmap.shape[1:] != search.grid:
        raise ValueError(
            f"heightmap should be torch.float32 [B, {search.grid[0]}, {search.grid[1]}], not "
            f"{heightmap.dtype} {list(heightmap.shape)}"
        )
    if item_id.shape != there.shape or len(item_id) != len(heightmap) or count < 1:
        raise ValueError(
            f"item_id and there should be [B, L] with B = {len(heightmap)} and count at least 1, "
            f"not {list(item_id.shape)}, {list(there.shape)} and {count}"
        )
    rule = SEARCHED_RULES.index(search.rule)
    counts = [count, search.stride, search.pooled, rule, PATIENCE]
    lengths = [search.lid, search.contact_tol, *search.scale]
    tensors = [getattr(items, field.name) for field in fields(items)]
    return torch.ops.packing_env.numba_lowest(heightmap, item_id, there, tensors, counts, lengths)
