"""The operation `afterstates`: candidate placements and the heightmap after each of them."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Int16
from torch import Tensor

from packing_env.kernels.afterstates import eager
from packing_env.kernels.backends import implement, select
from packing_env.kernels.checks import check_tensor


def _empty(heightmap: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    num = others[5]
    batch = heightmap.shape[0]
    index = heightmap.new_empty(batch, num, dtype=torch.int64)
    maps = heightmap.new_empty(batch, num, *heightmap.shape[1:], dtype=torch.int16)
    return index, maps, heightmap.new_empty(batch, dtype=torch.int64)


_AFTERSTATES = implement(
    "afterstates(Tensor heightmap, Tensor rest, Tensor legal, Tensor item_id, Tensor top, "
    "Tensor size, int num, int stride, float units, float cells, bool edges)"
    " -> (Tensor, Tensor, Tensor)",
    __name__,
    fake=_empty,
    eager=eager.afterstates,
)


def afterstates(
    heightmap: Float[Tensor, "B X Y"],
    rest: Float[Tensor, "B L R Xs Ys"],
    legal: Bool[Tensor, "B A"],
    item_id: Int[Tensor, "B L"],
    top: Int16[Tensor, "M R U V"],
    size: Int[Tensor, "M R 2"],
    *,
    num: int,
    stride: int,
    units: float,
    cells: float,
    edges: bool,
    backend: str | None = None,
) -> tuple[Int[Tensor, "B K"], Int16[Tensor, "B K X Y"], Int[Tensor, " B"]]:
    """Return candidate placements and the heightmap after each, in whole units of height.

    With ``edges`` every legal placement of a cuboid is a candidate. Placements that touch something
    in both x and y come first. A placement touches a wall, or a cell next to the base whose height
    differs from the base's height. In both groups lower placements come first, then smaller
    indices.

    Without ``edges`` the candidates are the placements that are blocked in both x and y. A
    placement is blocked along an axis if one lattice point further, on at least one side, the item
    would rest higher or be illegal. The legal placement with the smallest ``x + y + 100 z`` in
    cells (rounded to 1/8, as in the heuristics) is always a candidate and comes first. The other
    placements of each item are ordered by a sum in units of height, with ties by index. The sum
    consists of twice the mean space below the footprint (z minus the heights there), the height of
    the top, and the distances to the nearer walls in x and in y. The list takes one placement of
    each item in turn.

    Args:
        heightmap: heights divided by the container's height, in [0, 1].
        rest: rest heights of all placements, divided by the container's height; 1 if illegal.
        legal: which placements are legal, ``A = L * R * Xs * Ys``.
        item_id: rows of the catalogue, negative if there is no item.
        top: upper surfaces in units, negative outside the footprint.
        size: cells (w, h) of each surface up to its last finite cell.
        num: ``K``, the largest number of candidates; others are dropped.
        stride: cells between two placements of the lattice.
        units: the container's height in units, at most 16,383.
        cells: the container's height in cells.
        edges: see above.
        backend: a name in `available_backends`; None for the one chosen for this device.

    Returns:
        Indices of the candidates, padded with -1; the heightmaps after them (the present heightmap
        for padding); and the number of dropped candidates. With ``edges`` only dropped placements
        that touch something are counted.
    """
    # Compiled kernels trust shapes and dtypes.
    check_tensor("legal", legal, torch.bool, (len(rest), rest.shape[1:].numel()))
    if num < 1:
        raise ValueError(f"num={num} should be at least 1")
    if not 1 <= units < 2**14:
        raise ValueError(f"units={units} should be 1 to 16,383: choose a coarser unit")
    tensors = (heightmap, rest, legal, item_id, top, size)
    arguments = (*tensors, num, stride, float(units), float(cells), edges)
    result: tuple[Tensor, Tensor, Tensor] = select(_AFTERSTATES, backend, heightmap.device.type)(
        *arguments
    )
    return result
