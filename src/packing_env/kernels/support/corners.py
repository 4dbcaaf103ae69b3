"""Corners of the rectangles that hulls must hold; a hull is convex, so that they tell all."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def corners_of(
    com: Int[Tensor, "*rows 2"], margin: Int[Tensor, "*rows 2"]
) -> list[Int[Tensor, "*rows 2"]]:
    """Return the corners of the rectangle of a margin about centres of mass, 1/64 cell."""
    across, along = margin.unbind(-1)
    return [com + torch.stack((i * across, j * along), -1) for i, j in product((-1, 1), repeat=2)]


def holds_all(
    holds: Callable[[Tensor, Tensor], Tensor],
    z: Float[Tensor, "B R Xs Ys"],
    com: Int[Tensor, "B R 2"],
    margin: Int[Tensor, "B R 2"] | None,
) -> Bool[Tensor, "B R Xs Ys"]:
    """Return where hulls hold every corner of a rectangle, or the centre of mass without a margin.

    Args:
        holds: Maps points, and rest heights that are +inf where a placement need not be judged, to
            where the hulls hold the points.
        z: Rest heights.
        com: Centres of mass, 1/64 cell.
        margin: Half of the sides of the rectangles, 1/64 cell.
    """
    # Corners after the first are judged only where those before are held.
    first, *others = [com] if margin is None else corners_of(com, margin)
    held = holds(first, z)
    for point in others:
        held = holds(point, torch.where(held, z, torch.inf))
    return held
