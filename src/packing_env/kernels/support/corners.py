"""Corners of the rectangles that hulls must contain; the corners suffice, as a hull is convex."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


def corners_of(
    com: Int[Tensor, "*rows 2"], margin: Int[Tensor, "*rows 2"]
) -> list[Int[Tensor, "*rows 2"]]:
    """Return the corners of the rectangle of a margin around centres of mass, in 1/64 cell."""
    across, along = margin.unbind(-1)
    return [com + torch.stack((i * across, j * along), -1) for i, j in product((-1, 1), repeat=2)]


def holds_all(
    holds: Callable[[Tensor, Tensor], Tensor],
    z: Float[Tensor, "B R Xs Ys"],
    com: Int[Tensor, "B R 2"],
    margin: Int[Tensor, "B R 2"] | None,
) -> Bool[Tensor, "B R Xs Ys"]:
    """Return where hulls contain every corner of a rectangle; without a margin, the centre.

    Args:
        holds: Function of points and rest heights (+inf where no check is needed). It returns where
            the hulls contain the points.
        z: Rest heights.
        com: Centres of mass, 1/64 cell.
        margin: Half of the sides of the rectangles, 1/64 cell.
    """
    # Later corners are tested only where the hull contains all earlier ones.
    first, *others = [com] if margin is None else corners_of(com, margin)
    held = holds(first, z)
    for point in others:
        held = holds(point, torch.where(held, z, torch.inf))
    return held
