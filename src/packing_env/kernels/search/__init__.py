"""The lowest legal placement without a map of all placements: the operation `lowest_placements`.

Pooled surfaces give a lower bound of every rest height. The container's heights are pooled over the
square of k x k cells that begins at each lattice point. The items' lower surfaces are pooled over
squares of the same side. The side is a whole number of lattice steps of s cells, so square (i, j)
of an item at lattice point (x, y) lies on the container's square at (x + i k/s, y + j k/s). On each
square these bounds hold:

    z >= min(height) - min(bottom)                 over the cells of the square,
    z >= max(height) - max(bottom)                 if all its cells belong to the footprint.

For the first bound, consider the footprint cell with the smallest ``bottom``: the height under it
is at least the smallest height of the square. For the second, consider the cell with the greatest
height: its ``bottom`` is at most the greatest ``bottom`` of the square. Float32 subtraction is
monotone, so both bounds hold for the rounded differences. The bounds take ``2 / k^2`` of the time
of a map.

Placements are then visited in the order of their bounds. If the rest height of a placement is not
known yet, it is computed, and the placement goes back into the queue. If it is known, no other
placement is lower, and the stability rule checks this one. :func:`lowest_placements` states the
largest cost.

The search is compiled for the CPU only (`kernels.is_compiled_for`). Elsewhere
:mod:`packing_env.core.lowest` selects the lowest placements of full maps, with the same bits.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.checks import check_tensor
from packing_env.kernels.operators import declare
from packing_env.kernels.search.items import Search, SearchItems
from packing_env.kernels.stability_rules import MAP_RULES

PATIENCE = 400
"""Number of placements that the rule checks in a row before the search gives up."""


def _empty(heightmap: Tensor, item_id: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    batch = len(heightmap)
    return item_id.new_empty(batch), heightmap.new_empty(batch), item_id.new_empty(batch, 3)


_LOWEST = declare(
    "numba_lowest_placements(Tensor heightmap, Tensor item_id, Tensor there, Tensor[] items,"
    " int[] counts, float[] lengths) -> (Tensor, Tensor, Tensor)",
    cpu=f"{__name__}.numba:lowest_placements",
    fake=_empty,
)


def lowest_placements(
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    items: SearchItems,
    search: Search,
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"], Int[Tensor, "B 3"]]:
    """Return the lowest legal placement of each row; needs `kernels.is_compiled_for`.

    Computing and checking a single placement takes many times as long as its share of a full map.
    So if the bounds are weak or few placements are legal, the search gives up in a row after
    :data:`PATIENCE` checks, or after eight times as many exact heights. So a row never takes more
    than a few times as long as its maps.

    Memory: each thread needs at most 5 bytes per placement of one row, for any number of rows. A
    plane is an item in one orientation. Memory pages of planes that cannot contain the lowest
    placement are never touched.

    Args:
        heightmap: finite heights of the container.
        item_id: catalogue rows of the visible items.
        there: which of them exist.
        items: the catalogue, packed for this ``search``.
        search: lattice, rule and order.

    Returns:
        Indices ``((slot * R + orientation) * Xs + x / stride) * Ys + y / stride``, -1 without a
        legal placement; the rest heights, +inf without one; and three numbers per row: how many
        exact heights were computed, how many placements the rule checked, and whether the search
        gave up. If it gave up, the index and the height of the row are undefined.
    """
    check_tensor("heightmap", heightmap, torch.float32, (len(item_id), *search.grid))
    check_tensor("there", there, torch.bool, item_id.shape)
    # The schema accepts only lists of numbers and of tensors.
    rule = MAP_RULES.index(search.rule)
    counts = [search.stride, search.pooled, rule, PATIENCE]
    lengths = [search.lid, search.tolerance, *search.scale]
    tensors = [getattr(items, field.name) for field in fields(items)]
    lowest: tuple[Tensor, Tensor, Tensor] = _LOWEST(
        heightmap, item_id, there, tensors, counts, lengths
    )
    return lowest
