"""Functions that read and raise windows of the heightmap, one window per row."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.types import Catalogue, PackingParams


def _window_index(
    shape: Sequence[int], x: Tensor, y: Tensor, window: Sequence[int]
) -> tuple[Tensor, Tensor]:
    """Return the flat, clamped index ``[B, U*V]`` of each window cell, and which are inside."""
    # Indices of cells outside are clamped, and these cells are marked.
    u = x[:, None] + torch.arange(window[0], device=x.device)
    v = y[:, None] + torch.arange(window[1], device=x.device)
    inside = ((u >= 0) & (u < shape[0]))[:, :, None] & ((v >= 0) & (v < shape[1]))[:, None, :]
    flat = u.clamp(0, shape[0] - 1)[:, :, None] * shape[1] + v.clamp(0, shape[1] - 1)[:, None, :]
    return flat.flatten(1), inside.flatten(1)


def read_window(
    heightmap: Float[Tensor, "B X Y"],
    x: Int[Tensor, " B"],
    y: Int[Tensor, " B"],
    window: Sequence[int],
) -> tuple[Float[Tensor, "B U V"], Bool[Tensor, "B U V"]]:
    """Return the ``U x V`` cells from lower corner ``(x, y)``, and which of them are inside."""
    flat, inside = _window_index(heightmap.shape[1:], x, y, window)
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
    flat, inside = _window_index(heightmap.shape[1:], x, y, surface.shape[1:])
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
    lower sum.
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
