"""Conversion of points of the container to placements, for all generators."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core.candidates import Proposals, Scene
from packing_env.core.cuboids.spaces import sides
from packing_env.core.lists import NEVER, beyond, front
from packing_env.core.orientation import encode_placement, num_orientations
from packing_env.types import ParameterError

MAX_PROPOSALS = 2048
"""Largest number of proposals per visible item, for generators over boxes or spaces."""


def item_sizes(scene: Scene) -> tuple[Int[Tensor, "B L R 3"], Bool[Tensor, "B L R"]]:
    """Return the rotated extents ``(w, h, d)`` of the visible cuboids in pitches and their mask."""
    size = scene.catalogue["cuboid"][scene.item_id].long()
    return size, scene.there[..., None] & (size > 0).all(-1)


def need_cuboids(scene: Scene, name: str) -> None:
    """Raise if some item is not a cuboid of whole cells."""
    if scene.catalogue["cuboid"].shape[-1] != 3:
        raise ParameterError(
            f"candidate_generator={name!r} needs cuboids whose sides are whole multiples of "
            f"{scene.params.pitch} m; for other items use corner_points or level_set_vertices"
        )


def indexed(
    scene: Scene,
    x: Int[Tensor, "B P #L #R"],
    y: Int[Tensor, "B P #L #R"],
    proposed: Bool[Tensor, "B P L R"],
) -> Int[Tensor, "B Q"]:
    """Return placements with these lower corners (pitches), ordered by point, item, orientation.

    The index is -1 if nothing is proposed or the corner is not on the lattice.
    """
    # 1. Select the corners inside the container and on the lattice.
    count, device = num_orientations(scene.catalogue), scene.item_id.device
    slot = torch.arange(scene.item_id.shape[1], device=device)[:, None]
    orientation = torch.arange(count, device=device)
    across, along, _ = sides(scene.params)
    step = scene.params.grid_step
    good = proposed & ((x >= 0) & (x < across) & (y >= 0) & (y < along))
    if step > 1:
        good = good & (x % step == 0) & (y % step == 0)
    # 2. Compute their indices; the shapes broadcast to [B, P, L, R].
    index = encode_placement(slot, orientation, x, y, count, scene.params)
    return torch.where(good, index, -1).flatten(1)


def packed(scene: Scene, index: Int[Tensor, "B P"]) -> Proposals:
    """Return the first :data:`MAX_PROPOSALS` proposals per visible item; count the rest.

    If there are more, padding is removed before the list is cut.
    """
    capacity = MAX_PROPOSALS * scene.item_id.shape[1]
    if index.shape[1] <= capacity:
        return Proposals(index, torch.zeros_like(scene.item_id[:, 0]))
    proposed = index >= 0
    return Proposals(front(index, proposed, capacity, -1), beyond(proposed, capacity))


def by_height(point: Int[Tensor, "B P 3"], real: Bool[Tensor, "B P"]) -> Int[Tensor, "B P"]:
    """Return the stable order of points by z, then y, then x, with padding last.

    Coordinates are integers from 0 to 2^20 - 1.
    """
    x, y, z = point.long().unbind(-1)
    key = (z << 40) | (y << 20) | x
    return torch.where(real, key, NEVER).argsort(dim=1, stable=True)
