"""Tasks in which every height is a whole number of cells, so integers can replace floats.

Heights are sums of float32 sides. If every multiple of the cell up to the lid is a float32 number,
no sum is rounded, and every height is exactly a whole number of cells. This holds for a cell of 1,
3 or 0.25, but not for 0.1 or 0.01. If it holds, the engines ``compiled`` and ``fused`` count
heights in cells.
"""

from __future__ import annotations

from packing_env import kernels
from packing_env.types import PILE_RULES_ON_MAPS, Catalogue, PackingParams, to_float32

_SIGNIFICAND = 2**24
"""Integers up to this value, and their products with powers of two, are float32 numbers."""


def applies(catalogue: Catalogue, params: PackingParams) -> bool:
    """Return whether params and catalogue guarantee that all lengths are whole cells."""
    # Conditions: cuboids of whole cells, rules that are exact for them, no contact tolerance, exact
    # heights.
    return (
        params.geometry == "maps"
        and catalogue["cuboid"].shape[-1] == 3
        and params.stability in (*kernels.CUBOID_RULES, *PILE_RULES_ON_MAPS)
        and params.tolerance == 0.0
        and params.has_whole_levels
        and _has_exact_heights(params)
    )


def _has_exact_heights(params: PackingParams) -> bool:
    """Return whether whole numbers of cells, up to one above the lid, are exact in float32."""
    cell, cells = params.cell, params.height_units
    if cell != to_float32(cell) or not 1 <= cells <= kernels.MAX_CUBOID_HEIGHT:
        return False
    # The cell is numerator / denominator. Multiples of the numerator must be exact in float32. The
    # numerator is odd, or the denominator is 1.
    numerator, _ = cell.as_integer_ratio()
    exact = numerator * (cells + 1) <= _SIGNIFICAND
    return exact and cells * cell <= params.lid < (cells + 1) * cell
