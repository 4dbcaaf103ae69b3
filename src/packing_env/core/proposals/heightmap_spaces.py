"""Empty maximal spaces grown from the corners of the heightmap."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core.candidates import Proposals, Scene
from packing_env.core.lists import NEVER, beyond, differs_from_last, front
from packing_env.core.proposals.places import indexed
from packing_env.types import ParameterError, lid_tolerance

MAX_SPACES = 80
"""Largest number of spaces in the list; spaces with the highest floors are left out."""
MAX_CELLS = 64
"""Largest number of cells along a side of the heightmap that this generator supports."""


def empty_maximal_spaces(scene: Scene) -> Proposals:
    """Propose each item at the lower corner of every space of :func:`spaces_of_heightmap`.

    Only items that fit are proposed: the window fits into the rectangle, and the peak stays under
    the lid when the item stands on the space's floor. The order is: space, item, orientation.
    Spaces beyond :data:`MAX_SPACES` are left out and counted.
    """
    params = scene.params
    if scene.maps is None:
        raise ParameterError(
            "candidate_generator='empty_maximal_spaces' needs a heightmap that items rest on, "
            "which geometry='boxes' does not have; use split_spaces, event_points or corner_points"
        )
    if max(params.grid) > MAX_CELLS:
        raise ParameterError(
            "candidate_generator='empty_maximal_spaces' grows a space from each of "
            f"{params.grid[0]} x {params.grid[1]} cells; it supports at most {MAX_CELLS} cells a "
            "side, use a larger cell, corner_points or level_set_vertices"
        )
    # 1. The spaces and their sizes.
    rectangle, floor, dropped = spaces_of_heightmap(scene.state["heightmap"], params.height)
    x0, y0, x1, y1 = (bound[..., None, None] for bound in rectangle.unbind(-1))
    # 2. Which items fit: their window fits into the rectangle, and their peak stays under the lid.
    size = scene.catalogue["size"][scene.item_id][:, None]
    peak = scene.catalogue["peak"][scene.item_id][:, None]
    fits = (x1 - x0 >= size[..., 0]) & (y1 - y0 >= size[..., 1])
    fits = fits & (floor[..., None, None] + peak <= params.lid)
    real = scene.there[..., None] & scene.catalogue["orientation_mask"][scene.item_id]
    return Proposals(indexed(scene, x0, y0, fits & real[:, None]), dropped)


def spaces_of_heightmap(
    heightmap: Float[Tensor, "B X Y"], height: float
) -> tuple[Int[Tensor, "B C 4"], Float[Tensor, "B C"], Int[Tensor, " B"]]:
    """Return rectangles ``(x0, y0, x1, y1)`` of cells, their floors, and the number left out.

    A space stands on a rectangle of cells and reaches up to the lid. No cell of the rectangle is
    higher than the space's floor. It grows from a corner cell, whose height becomes its floor:

    - A lower corner is a cell whose height differs from that of its neighbour at smaller x and from
      that of its neighbour at smaller y (a wall counts as another height). From a lower corner, a
      space grows only to greater x and y.
    - Any corner is a cell whose height differs from that of at least one neighbour in x and at
      least one neighbour in y. From any corner, a space grows to both sides until it meets walls
      and higher cells, so it is maximal.

    A space first grows along one axis, as far as the cells in line with the corner allow. Then it
    grows along the other axis, as far as whole lines of cells allow. Each corner gives two spaces:
    one grows along x first, the other along y first. Spaces are distinct, and ordered by floor, y0,
    x0, y1, x1; padding is an empty rectangle. The definition follows Xiong et al., RA-L 2024
    (GOPT), without their third kind of space, which grows from the corners of a staircase.
    """
    # 1. Lower corners grow in one direction, all corners in both; along x first, then along y
    #    first.
    lower, corner = _corners(heightmap, height)
    keys = []
    for swapped in (False, True):
        heights = heightmap.transpose(1, 2) if swapped else heightmap
        for both_ways, marked in ((False, lower), (True, corner)):
            marked = marked.transpose(1, 2) if swapped else marked
            x0, y0, x1, y1 = _grown(heights, both_ways)
            if swapped:
                x0, y0, x1, y1 = y0, x0, y1, x1
            # 2. One sortable key per space: the bits of non-negative float32 numbers have the order
            #    of the numbers.
            bits = (heights + 0.0).contiguous().view(torch.int32).long()
            key = (((bits << 8 | y0) << 8 | x0) << 8 | y1) << 8 | x1
            keys.append(torch.where(marked, key, NEVER).flatten(1))
    # 3. Keep one of each set of equal spaces.
    return _distinct(torch.cat(keys, 1))


def _corners(
    heightmap: Float[Tensor, "B X Y"], height: float
) -> tuple[Bool[Tensor, "B X Y"], Bool[Tensor, "B X Y"]]:
    """Return the lower corners and all corners; both are below the lid."""
    # A wall counts as a neighbour with another height.
    lower = heightmap < height - lid_tolerance(height)
    corner = lower
    for axis in (1, 2):
        count = heightmap.shape[axis] - 1
        step = heightmap.narrow(axis, 0, count) != heightmap.narrow(axis, 1, count)
        wall = torch.ones_like(heightmap.narrow(axis, 0, 1)).bool()
        before, behind = torch.cat((wall, step), axis), torch.cat((step, wall), axis)
        lower, corner = lower & before, corner & (before | behind)
    return lower, corner


def _grown(
    heights: Float[Tensor, "B X Y"], both_ways: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return bounds ``x0, y0, x1, y1`` (each ``[B, X, Y]``) of spaces, grown along x first."""
    floor = heights[..., None]
    row = heights.transpose(1, 2)[:, None]  # [B, 1, Y, X]
    x0, x1 = _run(row > floor, _positions(heights, 1), both_ways)
    y0, y1 = _run(_row_maxima(heights, x0, x1) > floor, _positions(heights, 2), both_ways)
    return x0, y0, x1, y1


def _positions(heights: Tensor, axis: int) -> Int[Tensor, "B X Y"]:
    """Return every cell's coordinate along an axis."""
    at = torch.arange(heights.shape[axis], device=heights.device)
    return (at[:, None] if axis == 1 else at).expand(heights.shape)


def _run(
    blocked: Bool[Tensor, "B X Y P"], start: Int[Tensor, "B X Y"], both_ways: bool
) -> tuple[Int[Tensor, "B X Y"], Int[Tensor, "B X Y"]]:
    """Return the range around ``start`` that ends at the first blocked cell on either side."""
    count = blocked.shape[-1]
    at = torch.arange(count, device=blocked.device)
    behind = torch.where(blocked & (at > start[..., None]), at, count).amin(-1)
    if not both_ways:
        return start, behind
    before = torch.where(blocked & (at < start[..., None]), at + 1, 0).amax(-1)
    return before, behind


def _row_maxima(
    heights: Float[Tensor, "B X Y"], x0: Int[Tensor, "B X Y"], x1: Int[Tensor, "B X Y"]
) -> Float[Tensor, "B X Y P"]:
    """Return, for each cell and each y, the maximum at that y over x from ``x0`` to ``x1 - 1``.

    Two windows with the same power of two as length cover any range.
    """
    # 1. Maxima of windows of 1, 2, 4, ... cells along x; each range uses the longest window that
    #    fits.
    batch, across, along = heights.shape
    table, length = [heights], 1
    level = torch.zeros_like(x0)
    while 2 * length <= across:
        last = table[-1]
        further = torch.cat((last[:, length:], last[:, -1:].expand(-1, length, -1)), 1)
        table.append(torch.maximum(last, further))
        length *= 2
        level = level + (x1 - x0 >= length)
    # 2. The window that begins with the range, and the one that ends with it.
    windows = torch.cat(table, 1)  # [B, levels * X, Y]
    left = level * across + x0
    right = level * across + x1 - (torch.ones_like(level) << level)
    picked = [
        windows.gather(1, start.flatten(1)[..., None].expand(-1, -1, along))
        for start in (left, right)
    ]
    return torch.maximum(picked[0], picked[1]).view(batch, across, along, along)


def _distinct(
    keys: Int[Tensor, "B P"],
) -> tuple[Int[Tensor, "B C 4"], Float[Tensor, "B C"], Int[Tensor, " B"]]:
    """Return the first distinct keys as rectangles and floors, and the number of keys left out."""
    # 1. Sorting makes equal keys neighbours; each is listed once.
    ordered = keys.sort(1).values
    fresh = (ordered < NEVER) & differs_from_last(ordered)
    key = front(ordered, fresh, MAX_SPACES, 0)
    # 2. Unpack the keys.
    y0, x0, y1, x1 = (key >> shift & 255 for shift in (24, 16, 8, 0))
    floor = (key >> 32).int().view(torch.float32)
    return torch.stack((x0, y0, x1, y1), -1), floor, beyond(fresh, MAX_SPACES)
