"""Pictures of the catalogue's items for networks: six views of each, thumbnails of its maps."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from packing_env.types import Catalogue, PackingParams

DIRECTIONS = ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1))
"""Where an item is seen from, in the frame of its orientation 0."""
_ALIGNED = 1 - 1e-6
_BLOCK_CELLS = 2**24
"""Items are taken so many at a time as have this many cells in space."""


def principal_views(
    catalogue: Catalogue, params: PackingParams, size: int
) -> Float[Tensor, "M 6 P P"]:
    """Depth images of every item from its six sides, as Huang et al., RA-L 2023 show items.

    A pixel holds the height of the surface above the opposite face of the bounding box, over the
    container's largest side; 0 beside the item. Seen from a side, this height is the ``top`` of an
    orientation that turns the side up, or what its ``bottom`` leaves of the item's full height in
    an orientation that turns the side down (mirrored, since it is seen from below). At pi/2 these
    are the six face-up orientations. Where the catalogue has neither, since the task does not turn
    items over or the item looks the same that way, the four walls are seen on the columns between
    ``bottom`` and ``top`` of orientation 0, without the hollows that only a wall shows.

    All items are drawn to one scale, on windows that hold the largest, reduced to ``size`` pixels
    (fewer if the windows have fewer cells) by maxima.
    """
    top, peak = catalogue["top"], catalogue["peak"]
    real = catalogue["orientation_mask"]
    highest = torch.where(real, peak, 0.0).amax().item()  # once, when a network is built
    levels = max(1, math.ceil(highest / params.cell - 1e-6))
    canvas = max(*top.shape[2:], levels)
    pixels = min(size, canvas)
    views = []
    for side in range(len(DIRECTIONS)):
        seen, found = _from_orientations(catalogue, side)
        images = _fit(seen, canvas)
        rows = (~found).nonzero().flatten()  # read once, where an agent is built
        block = max(1, _BLOCK_CELLS // (top.shape[2] * top.shape[3] * levels))
        for some in rows.split(block):
            items = {key: value[some] for key, value in catalogue.items()}
            images[some] = _fit(_from_columns(items, side, params.cell, levels), canvas)
        views.append(functional.adaptive_max_pool2d(images, pixels))
    return torch.stack(views, 1) / max(params.container)


def thumbnails(catalogue: Catalogue, params: PackingParams, size: int) -> Float[Tensor, "M R F"]:
    """``top`` and ``bottom`` of every orientation over H, reduced to ``size x size`` pixels each.

    The highest ``top`` and the lowest ``bottom`` of what a pixel covers; beside the item 0 and 1.
    """
    pixels = tuple(min(size, cells) for cells in catalogue["top"].shape[2:])
    highest = functional.adaptive_max_pool2d(catalogue["top"], pixels)
    lowest = -functional.adaptive_max_pool2d(-catalogue["bottom"], pixels)
    reduced = torch.cat((highest.flatten(2), lowest.flatten(2)), 2)
    return (reduced / params.height).clamp(0, 1)


def _from_orientations(
    items: Catalogue, side: int
) -> tuple[Float[Tensor, "M U V"], Bool[Tensor, " M"]]:
    """What an orientation that turns the side up or down shows of it, metres; whether one does."""
    up = items["rotation"][:, :, 2] @ items["rotation"][:, 0].mT
    along = torch.where(items["orientation_mask"], up @ up.new_tensor(DIRECTIONS[side]), 0.0)
    raised, lowered = along.amax(1) > _ALIGNED, along.amin(1) < -_ALIGNED
    above, below = _from_above(items, along.argmax(1)), _from_below(items, along.argmin(1))
    return torch.where(raised[:, None, None], above, below), raised | lowered


def _fit(view: Float[Tensor, "M U V"], canvas: int) -> Float[Tensor, "M C C"]:
    return functional.pad(view, (0, canvas - view.shape[2], 0, canvas - view.shape[1]))


def _from_above(items: Catalogue, turn: Int[Tensor, " M"]) -> Float[Tensor, "M U V"]:
    """Heights above the floor, in one orientation per item."""
    return items["top"][torch.arange(len(turn), device=turn.device), turn].clamp(min=0)


def _from_below(items: Catalogue, turn: Int[Tensor, " M"]) -> Float[Tensor, "M U V"]:
    """Depths below the highest point, mirrored within the item's own window."""
    rows = torch.arange(len(turn), device=turn.device)
    bottom, peak = items["bottom"][rows, turn], items["peak"][rows, turn]
    depth = torch.where(torch.isfinite(bottom), peak[:, None, None] - bottom, 0.0)
    wide = depth.shape[1]
    mirrored = (items["size"][rows, turn, :1] - 1 - torch.arange(wide, device=turn.device)) % wide
    return depth.gather(1, mirrored[:, :, None].expand_as(depth))


def _from_columns(items: Catalogue, side: int, cell: float, levels: int) -> Tensor:
    """What a side shows of the columns of orientation 0, metres: ``[M, U, V]`` or their walls."""
    first = torch.zeros_like(items["size"][:, 0, 0])
    if side >= 4:
        return (_from_above, _from_below)[side - 4](items, first)
    top, bottom = items["top"][:, 0, :, :, None], items["bottom"][:, 0, :, :, None]
    centre = (torch.arange(levels, device=top.device) + 0.5) * cell
    solid = (bottom <= centre) & (centre <= top)
    axis = 1 + side // 2
    shape = [1, 1, 1, 1]
    shape[axis] = -1
    place = torch.arange(solid.shape[axis], device=top.device, dtype=torch.int16).view(shape)
    far_end = items["size"][:, 0, axis - 1].to(torch.int16).view(-1, 1, 1, 1)
    depth = far_end - place if side % 2 else place + 1
    return cell * torch.where(solid, depth, 0).amax(axis)
