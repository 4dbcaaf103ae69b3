"""The fast exact path: all placements of cuboids on whole cells, in integers.

Where it applies it finds the same bits as the general path of :mod:`packing_env.core.feasibility`.
There, heights are sums of float32 sides. Here they are whole cells times the cell, which is the
same number as long as every multiple of the cell up to the lid is a float32: then no sum rounds.
That holds for a cell of 1, 3 or 0.25; for 0.1 or 0.01 it does not, and the general path is used.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.types import PILE_RULES_ON_MAPS, Catalogue, PackingParams, to_float32

_SIGNIFICAND = 2**24
"""Integers up to here are float32 numbers, and so are their multiples by powers of two."""


def applies(catalogue: Catalogue, params: PackingParams) -> bool:
    """Return whether params and catalogue guarantee that all lengths are whole cells."""
    return (
        params.geometry == "maps"
        and catalogue["cuboid"].shape[-1] == 3
        and params.stability in (*kernels.CUBOID_RULES, *PILE_RULES_ON_MAPS)
        and params.tolerance == 0.0
        and params.has_whole_levels
        and _has_exact_heights(params)
    )


def _has_exact_heights(params: PackingParams) -> bool:
    """Return whether heights in cells are exact in float32, up to the first one above the lid."""
    cell, cells = params.cell, params.height_units
    if cell != to_float32(cell) or not 1 <= cells <= kernels.MAX_CUBOID_HEIGHT:
        return False
    numerator, _ = cell.as_integer_ratio()  # odd, or the denominator is 1
    exact = numerator * (cells + 1) <= _SIGNIFICAND
    return exact and cells * cell <= params.lid < (cells + 1) * cell


def placement_maps(
    heightmap: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    there: Bool[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> tuple[Float[Tensor, "B L R Xs Ys"], Bool[Tensor, "B L R Xs Ys"]]:
    """Compute rest height and legality of every placement, as in ``feasibility.Maps``.

    The heightmap holds whole cells, as in every episode with such a catalogue.
    """
    size = catalogue["cuboid"][item_id] * there[:, :, None, None]
    u, v = catalogue["bottom"].shape[2:]
    rule = "none" if params.stability in PILE_RULES_ON_MAPS else params.stability
    height, lattice = (params.cell, params.height_units), (rule, params.grid_step)
    z, legal = kernels.cuboid_maps(heightmap, size.flatten(1, 2), *height, (u, v), *lattice)
    shape = (*size.shape[:3], *z.shape[2:])
    return z.view(shape), legal.view(shape)
