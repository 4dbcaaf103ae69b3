"""The lowest legal placements without a map of all of them: the operation `lowest_placements`.

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
the true order, and is judged by the stability rule. :func:`lowest_placements` says what that costs
at worst.

The search exists compiled for the CPU alone (:func:`finds_lowest`). Elsewhere
:mod:`packing_env.core.lowest` takes the lowest of full maps, to the same bits.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.backends import implement, resolve
from packing_env.kernels.search.items import Search, SearchItems
from packing_env.kernels.stability_rules import MAP_RULES

PATIENCE = 400
"""Number of placements of a row that the rule checks before the row is given up."""


def _empty(heightmap: Tensor, item_id: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    batch, counts = len(heightmap), others[2]
    index = item_id.new_empty(batch, counts[0])
    return index, heightmap.new_empty(index.shape), item_id.new_empty(batch, 3)


_LOWEST = implement(
    "lowest_placements(Tensor heightmap, Tensor item_id, Tensor there, Tensor[] items,"
    " int[] counts, float[] lengths) -> (Tensor, Tensor, Tensor)",
    __name__,
    fake=_empty,
)


def finds_lowest(device_type: str) -> bool:
    """Return True if the backend chosen for this device has the operation of this module."""
    return device_type == "cpu" and resolve(None, device_type) in _LOWEST


def lowest_placements(
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    items: SearchItems,
    search: Search,
    count: int = 1,
) -> tuple[Int[Tensor, "B K"], Float[Tensor, "B K"], Int[Tensor, "B 3"]]:
    """Return the ``count`` lowest legal placements, best first; needs :func:`finds_lowest`.

    For a single placement, the exact height and the check by the rule cost many times their share
    of a full map. If the bounds are weak, or few placements are legal, the search of a row is given
    up after :data:`PATIENCE` checks or eight times as many heights. So a row never costs more than
    a few times as much as its maps.

    Memory: at most 5 bytes per placement of one row and thread, whatever the number of rows; pages
    of planes (an item in an orientation) that cannot contain one of the lowest placements are never
    touched.

    Args:
        heightmap: finite heights of the container.
        item_id: catalogue rows of the visible items.
        there: which of them exist.
        items: the catalogue, packed for this ``search``.
        search: lattice, rule and order.
        count: number of placements to return.

    Returns:
        Indices ``((slot * R + orientation) * Xs + x / stride) * Ys + y / stride``, -1 where there
        are no more; their rest heights, +inf there; and per row how many placements were given
        their exact height, how many were judged by the rule, and whether the row was given up,
        whose other entries mean nothing then.
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
    # Numbers and tensors in lists, as the schema has them.
    rule = MAP_RULES.index(search.rule)
    counts = [count, search.stride, search.pooled, rule, PATIENCE]
    lengths = [search.lid, search.tolerance, *search.scale]
    tensors = [getattr(items, field.name) for field in fields(items)]
    operation = _LOWEST[resolve(None, heightmap.device.type)]
    found: tuple[Tensor, Tensor, Tensor] = operation(
        heightmap, item_id, there, tensors, counts, lengths
    )
    return found
