"""Functions that read and raise windows of the heightmap, one window per row.

:func:`packing_env.kernels.drop_height` computes rest heights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.types import Catalogue, PackingParams


def window_index(
    shape: Sequence[int], corner: Sequence[Int[Tensor, " B"]], window: Sequence[int]
) -> tuple[Int[Tensor, "B cells"], Bool[Tensor, "B cells"]]:
    """Return the flat, clamped index of each cell of a window, and which cells are inside.

    Args:
        shape: Cells of the container along each axis.
        corner: The window's lower corner along each axis.
        window: Cells of the window along each axis.
    """
    # Indices of cells outside are clamped, and these cells are marked.
    flat = torch.zeros_like(corner[0])[:, None]
    inside = torch.ones_like(flat, dtype=torch.bool)
    for length, low, cells in zip(shape, corner, window, strict=True):
        at = low[:, None] + torch.arange(cells, device=low.device)
        within = (at >= 0) & (at < length)
        flat = (flat[..., None] * length + at.clamp(0, length - 1)[:, None]).flatten(1)
        inside = (inside[..., None] & within[:, None]).flatten(1)
    return flat, inside


def read_window(
    heightmap: Float[Tensor, "B X Y"],
    x: Int[Tensor, " B"],
    y: Int[Tensor, " B"],
    window: Sequence[int],
) -> tuple[Float[Tensor, "B U V"], Bool[Tensor, "B U V"]]:
    """Return the ``U x V`` cells from lower corner ``(x, y)``, and which of them are inside."""
    flat, inside = window_index(heightmap.shape[1:], (x, y), window)
    values = heightmap.flatten(1).gather(1, flat)
    return values.view(-1, *window), inside.view(-1, *window)


def raise_window(
    heightmap: Float[Tensor, "B X Y"],
    x: Int[Tensor, " B"],
    y: Int[Tensor, " B"],
    surface: Float[Tensor, "B U V"],
) -> Float[Tensor, "B X Y"]:
    """Return ``max(heightmap, surface)`` on each row's window; -inf leaves a cell unchanged.

    The maximum does not depend on the order. So clamped cells outside the container, which hold
    -inf, do not affect their neighbours.
    """
    # Scatter maxima; cells outside have no effect.
    flat, inside = window_index(heightmap.shape[1:], (x, y), surface.shape[1:])
    lifted = torch.where(inside, surface.flatten(1), -torch.inf)
    raised = heightmap.flatten(1).scatter_reduce(1, flat, lifted, "amax", include_self=True)
    return raised.view_as(heightmap)


def surface_at(
    z: Float[Tensor, " B"],
    item_id: Int[Tensor, " B"],
    orientation: Int[Tensor, " B"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Float[Tensor, "B U V"]:
    """Return the upper surfaces of the items at rest, metres.

    Surfaces of cuboids are a whole number of cells above the floor or above a pre-placed box. They
    are rounded to the nearest float32. Sums of rounded sides would depend on the composition of a
    stack (0.1 + 0.6 is not 0.7). An item across two stacks of equal height would then not touch the
    stack with the lower sum.
    """
    # 1. Items of any shape: the plain sum.
    top = z[:, None, None] + catalogue["top"][item_id, orientation]
    if not catalogue["cuboid"].shape[-1]:
        return top
    # 2. Cuboids: the nearest whole number of cells above the floor or a pre-placed box.
    height = top.double()
    floor, *others = params.starts_of_stacks
    nearest = _level(height, floor, params.cell)
    for start in others:
        level = _level(height, start, params.cell)
        closer = (level - height).abs() < (nearest - height).abs()
        nearest = torch.where(closer, level, nearest)
    return nearest.float()


def _level(height: Tensor, start: float, cell: float) -> Tensor:
    """Return the nearest heights that are a whole number of cells above a start height."""
    return kernels.divide(height - start, cell).round() * cell + start
