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
    _check_spaces(scene, "split_spaces")
    space, _, proposed = spaces_of(scene, fits=True)
    return _at_corners(scene, space, proposed)


def split_space_drops(scene: Scene) -> Proposals:
    """Propose the lower corner of every space, whether or not the item fits into it.

    The order is: space (by z, y, x of the corner; ties as listed), item, orientation. The first
    legal proposal is the choice of OnlineBPH (Ha et al. 2017, as in the program of Zhao et al.,
    ICLR 2022).
    """
    _check_spaces(scene, "split_space_drops")
    space, _, real = spaces_of(scene)
    # Corners are integers from 0 to 2^20 - 1. A stable sort keeps ties as listed; padding is last.
    x, y, z = space[:, :, 0, 0, :3].unbind(-1)
    key = torch.where(space[:, :, 0, 0, 3] > x, (z << 40) | (y << 20) | x, NEVER)
    order = key.argsort(dim=1, stable=True)[..., None, None]
    ordered = space.gather(1, order[..., None].expand_as(space))
    return _at_corners(scene, ordered, real.gather(1, order.expand_as(real)))


def _check_spaces(scene: Scene, name: str) -> None:
    if scene.params.num_spaces < 1:
        raise ParameterError(
            f"candidate_generator={name!r} reads the empty maximal spaces, which this task does "
            f"not keep; set num_spaces=128 or so (cuboids only)"
        )


def spaces_of(
    scene: Scene, *, fits: bool = False
) -> tuple[Int[Tensor, "B E 1 1 6"], Int[Tensor, "B 1 L R 3"], Bool[Tensor, "B E L R"]]:
    """Return the spaces, the items' sizes, and which pairs of space and orientation exist.

    With ``fits``, only pairs count in which the item fits into the space.
    """
    space = scene.state["spaces"].long()[:, :, None, None]
    size = scene.catalogue["cuboid"][scene.item_id].long()[:, None]
    proposed = (space[..., 3] > space[..., 0]) & (size > 0).all(-1) & scene.there[:, None, :, None]
    if fits:
        proposed = proposed & (space[..., 3:] - space[..., :3] >= size).all(-1)
    return space, size, proposed


def corner_index(
    scene: Scene, space: Int[Tensor, "B E 1 1 6"], proposed: Bool[Tensor, "B E L R"]
) -> Int[Tensor, "B E L R"]:
    """Return the placements at lower corners of spaces; -1 if outside, or not on the lattice."""
    # 1. Select the corners inside the container and on the lattice.
    count, device = num_orientations(scene.catalogue), scene.item_id.device
    x, y = space[..., 0], space[..., 1]
    across, along, _ = scene.params.pitches
    step = scene.params.grid_step
    good = proposed & (x < across) & (y < along) & (x % step == 0) & (y % step == 0)
    # 2. Compute their indices, all of shape [B, E, L, R].
    slot = torch.arange(scene.item_id.shape[1], device=device)[:, None]
    slot, orientation, x, y = torch.broadcast_tensors(
        slot, torch.arange(count, device=device), x, y
    )
    place = Placement(slot, orientation, x, y, good)
    return torch.where(good, encode_placement(place, count, scene.params), -1)


def _at_corners(
    scene: Scene, space: Int[Tensor, "B E 1 1 6"], proposed: Bool[Tensor, "B E L R"]
) -> Proposals:
    """Return placements at lower corners of spaces, ordered by space, item, orientation.

    If there are more entries than :data:`MAX_PROPOSALS` per visible item, padding is removed and
    the list is cut to that number. The proposals that are cut off are counted.
    """
    index = corner_index(scene, space, proposed).flatten(1)
    capacity = MAX_PROPOSALS * scene.item_id.shape[1]
    if index.shape[1] <= capacity:
        return Proposals(index, torch.zeros_like(scene.item_id[:, 0]))
    good = index >= 0
    return Proposals(front(index, good, capacity, -1), beyond(good, capacity))
