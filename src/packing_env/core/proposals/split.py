"""Generators over the empty maximal spaces that the state holds (``core.cuboids.spaces``).

A space tells where a cuboid fits; the rest height is computed by dropping the cuboid there. If the
cuboid fits, it lands on the space's floor or lower. Otherwise it may land at any height.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core.candidates import Proposals, Scene
from packing_env.core.lists import NEVER, beyond, front
from packing_env.core.orientation import Placement, encode_placement, num_orientations
from packing_env.types import ParameterError

MAX_PROPOSALS = 2048
"""Largest number of proposals per visible item."""


def split_spaces(scene: Scene) -> Proposals:
    """Propose the lower corner of every space that the item fits into.

    The order is: space (as listed), item, orientation. The heuristics LSAH and BR choose among
    these placements (Zhao et al., ICLR 2022).
    """
    space, size, real = _spaces(scene, "split_spaces")
    fits = real & (space[..., 3:] - space[..., :3] >= size).all(-1)
    return _at_corners(scene, space, fits)


def split_space_drops(scene: Scene) -> Proposals:
    """Propose the lower corner of every space, whether or not the item fits into it.

    The order is: space (by z, y, x of the corner; ties as listed), item, orientation. The first
    legal proposal is the choice of OnlineBPH (Ha et al. 2017, as in the program of Zhao et al.,
    ICLR 2022).
    """
    space, _, real = _spaces(scene, "split_space_drops")
    # Corners are integers from 0 to 2^20 - 1. A stable sort keeps ties as listed; padding is last.
    x, y, z = space[:, :, 0, 0, :3].unbind(-1)
    key = torch.where(space[:, :, 0, 0, 3] > x, (z << 40) | (y << 20) | x, NEVER)
    order = key.argsort(dim=1, stable=True)[..., None, None]
    ordered = space.gather(1, order[..., None].expand_as(space))
    return _at_corners(scene, ordered, real.gather(1, order.expand_as(real)))


def _spaces(
    scene: Scene, name: str
) -> tuple[Int[Tensor, "B E 1 1 6"], Int[Tensor, "B 1 L R 3"], Bool[Tensor, "B E L R"]]:
    """Return the spaces, the items' sizes, and which pairs of space and orientation exist."""
    if scene.params.num_spaces < 1:
        raise ParameterError(
            f"candidate_generator={name!r} reads the empty maximal spaces, which this task does "
            f"not keep; set num_spaces=128 or so (cuboids only)"
        )
    spaces = scene.state["spaces"].long()
    size = scene.catalogue["cuboid"][scene.item_id].long()
    present = scene.there[..., None] & (size > 0).all(-1)
    real = (spaces[..., 3] > spaces[..., 0])[..., None, None] & present[:, None]
    return spaces[:, :, None, None], size[:, None], real


def _at_corners(
    scene: Scene, space: Int[Tensor, "B E 1 1 6"], proposed: Bool[Tensor, "B E L R"]
) -> Proposals:
    """Return placements at lower corners of spaces, ordered by space, item, orientation.

    Beyond :data:`MAX_PROPOSALS` per visible item, padding is removed before the list is cut, and
    the rest is counted.
    """
    # 1. Select the corners inside the container and on the lattice.
    count, device = num_orientations(scene.catalogue), scene.item_id.device
    slot = torch.arange(scene.item_id.shape[1], device=device)[:, None]
    x, y = space[..., 0], space[..., 1]
    across, along, _ = scene.params.pitches
    step = scene.params.grid_step
    good = proposed & (x < across) & (y < along) & (x % step == 0) & (y % step == 0)
    # 2. Compute their indices; the shapes broadcast to [B, E, L, R].
    orientation = torch.arange(count, device=device)
    index = encode_placement(Placement(slot, orientation, x, y, good), count, scene.params)
    index = torch.where(good, index, -1).flatten(1)
    # 3. Cut the list.
    capacity = MAX_PROPOSALS * scene.item_id.shape[1]
    if index.shape[1] <= capacity:
        return Proposals(index, torch.zeros_like(scene.item_id[:, 0]))
    good = good.flatten(1)
    return Proposals(front(index, good, capacity, -1), beyond(good, capacity))
