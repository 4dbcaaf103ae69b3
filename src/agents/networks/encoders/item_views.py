"""Pictures of the catalogue's items for networks: six views, maps and thumbnails of maps."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from packing_env.types import Catalogue, PackingParams

DIRECTIONS = ((1, 0, 0), (-1, 0, 0), (0, 1, 0), (0, -1, 0), (0, 0, 1), (0, 0, -1))
"""View directions, in the frame of an item's orientation 0."""
_ALIGNED = 1 - 1e-6
_BLOCK_CELLS = 2**24
"""Items are processed in blocks of at most this many cells."""


def principal_views(
    catalogue: Catalogue, params: PackingParams, size: int
) -> Float[Tensor, "M 6 P P"]:
    """Return depth images of every item from its six sides, as in Huang et al., RA-L 2023.

    A pixel holds the height of the surface above the opposite face of the bounding box, divided by
    the container's largest side. Outside the item it is 0. The view of a side is the ``top`` of an
    orientation that turns this side up. It may also be the item's height minus the mirrored
    ``bottom`` of an orientation that turns it down. The catalogue may have no such orientation, if
    the task does not turn items over or the item is symmetric. The view then shows the columns
    between ``bottom`` and ``top`` of orientation 0, without hollows.

    All items have the same scale. The window is large enough for the largest item, and is reduced
    by maxima to ``size`` pixels (fewer if it has fewer cells).
    """
    top, peak = catalogue["top"], catalogue["peak"]
    real = catalogue["orientation_mask"]
    highest = torch.where(real, peak, 0.0).amax().item()  # once, when a network is built
    levels = max(1, math.ceil(highest / params.cell - 1e-6))
    canvas = max(*top.shape[2:], levels)
    pixels = min(size, canvas)
    views = []
    for side in range(len(DIRECTIONS)):
        view, known = _from_orientations(catalogue, side)
        images = _fit(view, canvas)
        rows = (~known).nonzero().flatten()  # read once, when a network is built
        block = max(1, _BLOCK_CELLS // (top.shape[2] * top.shape[3] * levels))
        for some in rows.split(block):
            items = {key: value[some] for key, value in catalogue.items()}
            images[some] = _fit(_from_columns(items, side, params.cell, levels), canvas)
        views.append(functional.adaptive_max_pool2d(images, pixels))
    return torch.stack(views, 1) / max(params.container)


def thumbnails(catalogue: Catalogue, params: PackingParams, size: int) -> Float[Tensor, "M R F"]:
    """Return ``top / H`` and ``bottom / H`` of every orientation, reduced to few pixels.

    Each map has at most ``size x size`` pixels. A pixel holds the highest ``top`` and the lowest
    ``bottom`` of its cells. Outside the item these are 0 and 1.
    """
    pixels = tuple(min(size, cells) for cells in catalogue["top"].shape[2:])
    highest = functional.adaptive_max_pool2d(catalogue["top"], pixels)
    lowest = -functional.adaptive_max_pool2d(-catalogue["bottom"], pixels)
    reduced = torch.cat((highest.flatten(2), lowest.flatten(2)), 2)
    return (reduced / params.height).clamp(0, 1)


def lattice_maps(catalogue: Catalogue, params: PackingParams) -> Float[Tensor, "M R C Xs Ys"]:
    """Return ``top / H`` and ``1 - bottom / H`` of every orientation, without reduction.

    The image has one pixel per point of the action lattice. The cells up to the next point are
    channels: ``C = 2 * grid_step**2``. The item is in the middle of a window that is large enough
    for the largest item; cells outside the item are 0. Values are float16, which is exact to half a
    millimetre in a metre.
    """
    step = params.grid_step
    top, bottom = (catalogue[name] / params.height for name in ("top", "bottom"))
    window = catalogue["top"].shape[2:]
    sides = (0, -window[1] % step, 0, -window[0] % step)
    images = []
    for above, below, cells in zip(top, bottom, catalogue["size"], strict=True):
        maps = torch.stack((above, 1 - below), 1).clamp(0, 1).half()
        maps = functional.pixel_unshuffle(functional.pad(maps, sides), step)
        for axis in (0, 1):
            wide = maps.shape[2 + axis]
            shift = (wide - torch.div(cells[:, axis] + step - 1, step, rounding_mode="floor")) // 2
            place = (torch.arange(wide, device=shift.device) - shift[:, None]) % wide
            place = place[:, None, :, None] if axis == 0 else place[:, None, None]
            maps = maps.gather(2 + axis, place.expand_as(maps))
        images.append(maps)
    return torch.stack(images)


def _from_orientations(
    items: Catalogue, side: int
) -> tuple[Float[Tensor, "M U V"], Bool[Tensor, " M"]]:
    """Return a side's view (in metres) from an orientation that has this side up or down.

    The second result says for which items there is such an orientation.
    """
    up = items["rotation"][:, :, 2] @ items["rotation"][:, 0].mT
    along = torch.where(items["orientation_mask"], up @ up.new_tensor(DIRECTIONS[side]), 0.0)
    raised, lowered = along.amax(1) > _ALIGNED, along.amin(1) < -_ALIGNED
    above, below = _from_above(items, along.argmax(1)), _from_below(items, along.argmin(1))
    return torch.where(raised[:, None, None], above, below), raised | lowered


def _fit(view: Float[Tensor, "M U V"], canvas: int) -> Float[Tensor, "M C C"]:
    return functional.pad(view, (0, canvas - view.shape[2], 0, canvas - view.shape[1]))


def _from_above(items: Catalogue, orientation: Int[Tensor, " M"]) -> Float[Tensor, "M U V"]:
    rows = torch.arange(len(orientation), device=orientation.device)
    return items["top"][rows, orientation].clamp(min=0)


def _from_below(items: Catalogue, orientation: Int[Tensor, " M"]) -> Float[Tensor, "M U V"]:
    """Return depths below the highest point, mirrored within the item's own window."""
    rows = torch.arange(len(orientation), device=orientation.device)
    bottom, peak = items["bottom"][rows, orientation], items["peak"][rows, orientation]
    depth = torch.where(torch.isfinite(bottom), peak[:, None, None] - bottom, 0.0)
    wide = depth.shape[1]
    last = items["size"][rows, orientation, :1] - 1
    mirrored = (last - torch.arange(wide, device=last.device)) % wide
    return depth.gather(1, mirrored[:, :, None].expand_as(depth))


def _from_columns(items: Catalogue, side: int, cell: float, levels: int) -> Tensor:
    """Return a side's view of the columns of orientation 0, in metres."""
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
