"""Generators over the empty maximal spaces that the state holds (``core.cuboids.spaces``).

A space tells where a cuboid fits; the rest height is computed by dropping the cuboid there. If the
cuboid fits, it lands on the space's floor or lower. Otherwise it may land at any height.
"""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core.candidates import Proposals, Scene
from packing_env.core.proposals.places import by_height, indexed, item_sizes, need_cuboids, packed
from packing_env.types import ParameterError


def split_spaces(scene: Scene) -> Proposals:
    """Propose the lower corner of every space that the item fits into.

    The order is: space (as listed), item, orientation. The heuristics LSAH and BR choose among
    these placements (Zhao et al., ICLR 2022).
    """
    space, size, real = _spaces(scene, "split_spaces")
    fits = real & (space[..., 3:] - space[..., :3] >= size).all(-1)
    return packed(scene, indexed(scene, space[..., 0], space[..., 1], fits))


def split_space_drops(scene: Scene) -> Proposals:
    """Propose the lower corner of every space, whether or not the item fits into it.

    The order is: space (by z, y, x of the corner; ties as listed), item, orientation. The first
    legal proposal is the choice of OnlineBPH (Ha et al. 2017, as in the program of Zhao et al.,
    ICLR 2022).
    """
    space, _, real = _spaces(scene, "split_space_drops", lowest_first=True)
    return packed(scene, indexed(scene, space[..., 0], space[..., 1], real))


def _spaces(
    scene: Scene, name: str, lowest_first: bool = False
) -> tuple[Int[Tensor, "B E 1 1 6"], Int[Tensor, "B 1 L R 3"], Bool[Tensor, "B E L R"]]:
    """Return the spaces, the items' sizes, and which pairs of space and orientation exist."""
    if scene.params.num_spaces < 1:
        raise ParameterError(
            f"candidate_generator={name!r} reads the empty maximal spaces, which this task does "
            f"not keep; set num_spaces=128 or so (cuboids only)"
        )
    need_cuboids(scene, name)
    # 1. Keep the spaces in list order, or order them by their corners.
    spaces = scene.state["spaces"].long()
    if lowest_first:
        order = by_height(spaces[..., :3], spaces[..., 3] > spaces[..., 0])
        spaces = spaces.gather(1, order[..., None].expand_as(spaces))
    # 2. Pairs of a space and an orientation of an item that both exist.
    size, present = item_sizes(scene)
    real = (spaces[..., 3] > spaces[..., 0])[..., None, None] & present[:, None]
    return spaces[:, :, None, None], size[:, None], real
