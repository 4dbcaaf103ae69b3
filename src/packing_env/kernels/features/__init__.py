"""The operation `map_features`: numbers that describe a heightmap to a value function."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import torch
from jaxtyping import Bool, Float, Int16
from torch import Tensor

from packing_env.kernels.backends import implement, select
from packing_env.kernels.checks import check_tensor
from packing_env.kernels.features import eager
from packing_env.kernels.features.eager import FIXED as FIXED
from packing_env.kernels.features.eager import MOST as MOST
from packing_env.kernels.features.eager import NONE as NONE
from packing_env.kernels.features.eager import SHAPE as SHAPE


def num_features(
    num_sizes: int, num_levels: int, num_bins: int, pool: Sequence[int], grid: Sequence[int]
) -> int:
    """Return the number of features of a map."""
    maps = 1 if tuple(pool) == tuple(grid) else 2
    return SHAPE + num_bins + num_sizes * (FIXED + 2 * num_levels) + maps * pool[0] * pool[1]


def _empty(maps: Tensor, *others: Any) -> Tensor:
    scale = others[8]
    return maps.new_empty(maps.shape[0], scale.shape[0], dtype=torch.float32)


_MAP_FEATURES = implement(
    "map_features(Tensor maps, int[] sizes, int[] levels, int[] bins, int[] pool, "
    "int[] gaps, int height, int tolerance, int shift, Tensor scale, Tensor counts, Tensor logs, "
    "Tensor used) -> Tensor",
    __name__,
    fake=_empty,
    eager=eager.map_features,
)


@cache
def _logs(count: int, device: torch.device) -> Tensor:
    """Return ``log(1 + k)`` for k up to ``count``, the places of a window in both orientations."""
    return torch.arange(count + 1).double().log1p().float().to(device)


def map_features(
    maps: Int16[Tensor, "N X Y"],
    sizes: Sequence[tuple[int, int]],
    levels: Sequence[int],
    bins: Sequence[int],
    pool: tuple[int, int],
    *,
    height: int,
    tolerance: int,
    shift: int,
    spaces: tuple[float, float] = (0.0, 0.5),
    scale: Float[Tensor, " F"],
    counts: Bool[Tensor, " F"],
    used: Bool[Tensor, " N"] | None = None,
    backend: str | None = None,
) -> Float[Tensor, "N F"]:
    """Return features of each map: its shape, how items of given footprints fit, its parts.

    A feature is an integer n or, where ``counts`` is True, ``log(1 + n)``. It is multiplied by its
    ``scale`` and limited to :data:`MOST`.

    The first features are: the highest cell; the sum of the steps between neighbours (each shifted
    right by ``shift`` bits and then limited to 15); the number of unequal neighbours; and, for each
    bin, the number of cells that are not above it. Then come the features of the windows. The last
    features are the highest cell of each of the ``pool`` parts in x and y and, if parts have
    several cells, the sum of each part's cells, shifted in the same way.

    A window ``(l, w)`` is tried in both orientations at every position. At each position, ``z`` is
    the highest cell under the window. The window is *held* if each of its four quadrants (of
    ``ceil(l/2) x ceil(w/2)`` cells) has a cell at most ``tolerance`` below ``z``. Its gap is the
    space below it: ``sum(z - cell)``, with heights and z shifted right by ``shift`` bits. It is
    *flat* if it is held and its gap per cell is at most the first of ``spaces``. The features of a
    window, over its positions, are in this order:

    - the lowest z of all positions, of the held ones, and of the flat ones;
    - the smallest gap where ``z < height``;
    - the lowest z where the gap per cell is less than the second of ``spaces``;
    - for held positions, the lowest sum of z and twice the gap per cell (a factor with 15
      fractional bits; the product is rounded down);
    - for each level, the number of held and of flat positions with ``z <= level``.

    A minimum over no position is :data:`NONE`.

    Args:
        maps: heights in any unit, 0 to 16,383; at most 1,092 cells.
        sizes: windows ``(l, w)`` in cells, at most X and Y.
        levels: see above.
        bins: see above.
        pool: see above; cell ``x`` belongs to part ``x * pool[0] // X``.
        height: of the container, in the unit of the maps.
        tolerance: in the same unit.
        shift: such that ``cells * (height >> shift)`` of a window or a part is below 2^15.
        spaces: two limits for the gap per cell, shifted right like all heights.
        scale: factor of each feature; :func:`num_features` tells their number.
        counts: see above.
        used: which maps get features; the features of other maps are 0, and compiled code skips
            them.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    # 1. Check: compiled code counts in 16 bits.
    _check(maps, sizes, pool, height, shift)
    grid = maps.shape[1:]
    wanted = num_features(len(sizes), len(levels), len(bins), pool, grid)
    check_tensor("scale", scale, torch.float32, (wanted,))
    check_tensor("counts", counts, torch.bool, (wanted,))
    if used is not None:
        check_tensor("used", used, torch.bool, maps.shape[:1])
    # 2. Lists and tables in the form that the schema requires.
    flat = [side for size in sizes for side in size]
    areas = [length * width for length, width in sizes]
    gaps = [gap for a in areas for gap in (int(spaces[0] * a), math.ceil(spaces[1] * a) - 1)]
    chosen = counts[:0] if used is None else used
    tables = scale, counts, _logs(2 * grid.numel(), maps.device), chosen
    numbers = (flat, list(levels), list(bins), list(pool), gaps, height, tolerance, shift)
    features: Tensor = select(_MAP_FEATURES, backend, maps.device.type)(maps, *numbers, *tables)
    return features


def _check(
    maps: Tensor, sizes: Sequence[tuple[int, int]], pool: tuple[int, int], height: int, shift: int
) -> None:
    """Raise if maps, windows or parts exceed the limits of the operation."""
    if maps.dtype != torch.int16 or maps.dim() != 3:
        raise ValueError(f"maps should be int16 [N, X, Y], not {maps.dtype} {list(maps.shape)}")
    x_cells, y_cells = maps.shape[1:]
    if 30 * x_cells * y_cells >= 2**15:
        raise ValueError(f"maps of {[x_cells, y_cells]} cells overflow 16 bits: use 1,092 or fewer")
    sides = min(x_cells, y_cells)
    if any(not 1 <= side <= sides for size in sizes for side in size):
        raise ValueError(f"windows {list(sizes)} should have sides of 1 to {sides} cells")
    if not (1 <= pool[0] <= x_cells and 1 <= pool[1] <= y_cells):
        raise ValueError(f"pool={pool} should be 1 to {(x_cells, y_cells)} parts")
    part = -(-x_cells // pool[0]) * -(-y_cells // pool[1])
    largest = max([part, *(length * width for length, width in sizes)])
    if largest * (height >> shift) >= 2**15:
        raise ValueError(
            f"{largest} cells of a window or part and height={height} overflow 16 bits: raise "
            f"shift={shift}"
        )
