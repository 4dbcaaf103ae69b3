"""Generators that examine every point of the lattice."""

from __future__ import annotations

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core.candidates import Proposals, Scene, lowest, need_maps
from packing_env.core.feasibility import Maps
from packing_env.core.lists import beyond
from packing_env.core.orientation import num_orientations
from packing_env.types import ParameterError

MAX_PLACEMENTS = 2**16
"""Largest number of placements that ``all_placements`` proposes."""
_WHOLE = 1e-6
"""A height less than this share of a cell below a whole number of cells is rounded up to it."""


def all_placements(scene: Scene) -> Proposals:
    """Propose every placement of the lattice, in the order item, orientation, x, y."""
    # The list must hold all placements; the task is refused if the list would be too long.
    count = math.prod(scene.params.lattice) * num_orientations(scene.catalogue)
    count *= scene.item_id.shape[1]
    if count > MAX_PLACEMENTS:
        raise ParameterError(
            f"candidate_generator='all_placements' would propose {count} placements, more than "
            f"{MAX_PLACEMENTS}; use a larger grid_step or cell, or corner_points"
        )
    index = torch.arange(count, device=scene.item_id.device).expand(len(scene.item_id), count)
    return Proposals(index, torch.zeros_like(scene.item_id[:, 0]))


def lowest_of(maps: Maps, marked: Bool[Tensor, "B L R Xs Ys"], capacity: int) -> Proposals:
    """Propose the marked legal placements, lowest first; count those beyond ``capacity``."""
    proposed = maps.legal & marked
    index = lowest(Maps(maps.z, proposed), capacity)
    return Proposals(index, beyond(proposed.flatten(1), capacity))


def corner_points(scene: Scene) -> Proposals:
    """Propose placements that can slide neither to smaller x nor to smaller y, lowest first.

    A legal placement is a corner point iff a move by one lattice point to smaller x would leave the
    container or raise the item, and the same holds for a move to smaller y. So its lower corner is
    a concave corner of the map of rest heights. For an item of one cell, this is a concave corner
    of the heightmap. For each item in each orientation, these are the corner points of Martello,
    Pisinger and Vigo, Operations Research 2000.
    """
    # An item cannot slide if it is at the wall, or if it would rest higher at the lower neighbour.
    maps = need_maps(scene, "corner_points")
    z = maps.z
    marked = torch.ones_like(maps.legal)
    for axis in (-2, -1):
        count = z.shape[axis] - 1
        blocked = z.narrow(axis, 0, count) > z.narrow(axis, 1, count)
        marked = marked & torch.cat((torch.ones_like(z.narrow(axis, 0, 1)).bool(), blocked), axis)
    return lowest_of(maps, marked, scene.params.num_candidates)


def level_set_vertices(scene: Scene) -> Proposals:
    """Propose the corners of the regions of equal rest height, lowest first.

    The level of a legal placement is ``floor(z / cell)``. A tolerance of 1e-6 cells makes up for
    rounding errors of heights that are whole numbers of cells. Illegal placements and points
    outside the lattice have a separate level. A legal placement is a vertex iff its level differs
    from the level of at least one of its two neighbours in x, and of at least one of its two
    neighbours in y. Neighbours are one lattice step apart. The definition follows the convex
    vertices of Zhao et al., TOG 2023 (IR-BPP).
    """
    maps = need_maps(scene, "level_set_vertices")
    # The level changes on some side in x and on some side in y; the border of the lattice is a
    # change.
    level = levels(maps, scene.params.cell)
    marked = torch.ones_like(maps.legal)
    for axis in (-2, -1):
        count = level.shape[axis] - 1
        steps = level.narrow(axis, 0, count) != level.narrow(axis, 1, count)
        edge = torch.ones_like(level.narrow(axis, 0, 1)).bool()
        marked = marked & (torch.cat((edge, steps), axis) | torch.cat((steps, edge), axis))
    return lowest_of(maps, marked, scene.params.num_candidates)


def levels(maps: Maps, cell: float) -> Int[Tensor, "B L R Xs Ys"]:
    """Return rest heights in whole cells, and -1 for illegal placements."""
    z: Float[Tensor, "B L R Xs Ys"] = torch.where(maps.legal, maps.z, 0.0).double()
    return torch.where(maps.legal, torch.floor(kernels.divide(z, cell) + _WHOLE).long(), -1)
