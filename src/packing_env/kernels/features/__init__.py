"""Numbers that describe a heightmap to a value function: the operation `map_features`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Int16
from torch import Tensor

from packing_env.kernels.backends import implement, select
from packing_env.kernels.features import eager

NONE = eager.NONE
"""Value of a minimum over no position."""

FIXED = eager.FIXED
"""Features of a window before the counts by level."""

SHAPE = eager.SHAPE
"""Features of the whole map before the counts by bin."""


def _empty(
    maps: Tensor,
    sizes: list[int],
    levels: list[int],
    bins: list[int],
    height: int,
    tolerance: int,
    shift: int,
) -> Tensor:
    windows = len(sizes) // 2 * (FIXED + 2 * len(levels))
    return maps.new_empty(maps.shape[0], SHAPE + len(bins) + windows)


_MAP_FEATURES = implement(
    "map_features(Tensor maps, int[] sizes, int[] levels, int[] bins, int height, "
    "int tolerance, int shift) -> Tensor",
    __name__,
    fake=_empty,
    eager=eager.map_features,
)


def map_features(
    maps: Int16[Tensor, "N X Y"],
    sizes: Sequence[tuple[int, int]],
    levels: Sequence[int],
    bins: Sequence[int] = (),
    *,
    height: int,
    tolerance: int = 0,
    shift: int = 0,
    backend: str | None = None,
) -> Int16[Tensor, "N F"]:
    """Return the shape of each map, and what items of given footprints would find on it.

    First come the highest cell; the sum of the steps between neighbours, each of at most 15 after a
    shift right by ``shift`` bits; the count of neighbours that are not level; and for each bin the
    count of cells that are not above it. The windows follow.

    A window ``(l, w)`` is tried in both orientations at every position. At one position ``z`` is
    the highest cell below it. The window is *held* if each of its four quadrants (of ``ceil(l/2) x
    ceil(w/2)`` cells) has a cell within ``tolerance`` of ``z``, and *flat* if it is held and no
    space is left below it. Its gap is that space: ``sum(z - cell)``, with heights and z shifted
    right by ``shift`` bits. Over the positions the features of a window are, in this order:

    - the lowest z; of the held ones; of the flat ones;
    - the least gap where ``z < height``;
    - the lowest z whose gap is less than half a unit per cell;
    - for each level: the counts of held and of flat positions with ``z <= level``.

    A minimum over no position is :data:`NONE`.

    Args:
        maps: heights in any unit, 0 to 16,383.
        sizes: windows ``(l, w)`` in cells, at most X and Y.
        levels: see above.
        bins: see above.
        height: of the container, in the unit of the maps.
        tolerance: in the same unit.
        shift: such that ``l * w * (height >> shift)`` is below 2^15. X * Y is at most 1,092.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    if maps.dtype != torch.int16 or maps.dim() != 3:
        raise ValueError(f"maps should be int16 [N, X, Y], not {maps.dtype} {list(maps.shape)}")
    largest = max((length * width for length, width in sizes), default=1)
    if largest * (height >> shift) >= 2**15:
        raise ValueError(
            f"a window of {largest} cells and height={height} overflow 16 bits: raise shift={shift}"
        )
    if 30 * maps.shape[1] * maps.shape[2] >= 2**15:
        raise ValueError(
            f"maps of {list(maps.shape[1:])} cells overflow 16 bits: use 1,092 or fewer"
        )
    sides = min(maps.shape[1:])
    if any(not 1 <= side <= sides for size in sizes for side in size):
        raise ValueError(f"windows {list(sizes)} should have sides of 1 to {sides} cells")
    flat = [side for size in sizes for side in size]
    arguments = (maps, flat, list(levels), list(bins), height, tolerance, shift)
    found: Tensor = select(_MAP_FEATURES, backend, maps.device.type)(*arguments)
    return found
