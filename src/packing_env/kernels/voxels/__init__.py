"""Items as sets of voxels: the operation `voxel_places`."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.kernels.backends import implement, select
from packing_env.kernels.checks import check_tensor
from packing_env.kernels.voxels import eager


def _empty(
    occupied: Tensor, which: Tensor, parts: Tensor, size: Tensor, removable: bool
) -> tuple[Tensor, Tensor]:
    shape = (*which.shape, *occupied.shape[1:])
    return occupied.new_empty(shape), occupied.new_empty(shape, dtype=torch.int32)


_VOXEL_PLACES = implement(
    "voxel_places(Tensor occupied, Tensor which, Tensor parts, Tensor size, bool removable) "
    "-> (Tensor, Tensor)",
    __name__,
    fake=_empty,
    eager=eager.voxel_places,
)


def voxel_places(
    occupied: Bool[Tensor, "B X Y Z"],
    which: Int[Tensor, "B P"],
    parts: Bool[Tensor, "K U V W"],
    size: Int[Tensor, "K 3"],
    *,
    removable: bool,
    backend: str | None = None,
) -> tuple[Bool[Tensor, "B P X Y Z"], Int[Tensor, "B P X Y Z"]]:
    """Return which placements of parts in containers are legal, and how closely they fit.

    A placement is the container's voxel at which the part's voxel (0, 0, 0) lies. It is legal if
    the part lies inside the container and shares no voxel with it. If ``removable``, the part must
    also be able to move out in a straight line, along one of the six directions of the axes,
    without meeting an occupied voxel. The walls do not block it. The contact of a legal placement
    is the number of faces of the part's voxels that touch an occupied voxel or a side of the
    container. :mod:`packing_env.reference.voxels` specifies both.

    Args:
        occupied: the voxels of each container that are taken.
        which: int64 indices in ``parts``; -1 if there is no part.
        parts: the voxels of each part, from its lower corner, then False.
        size: int64 extents of each part, in voxels; 0 for a part that does not exist.
        removable: whether a part needs a straight way out.
        backend: a name in `available_backends`; None for the one chosen for this device.

    Returns:
        Legality, and the contact as int32, which is 0 where a placement is not legal.
    """
    check_tensor("occupied", occupied, torch.bool, occupied.shape[:1] + occupied.shape[-3:])
    check_tensor("which", which, torch.int64, (occupied.shape[0], *which.shape[1:2]))
    check_tensor("parts", parts, torch.bool, (*parts.shape[:1], *parts.shape[-3:]))
    check_tensor("size", size, torch.int64, (parts.shape[0], 3))
    places: tuple[Tensor, Tensor] = select(_VOXEL_PLACES, backend, occupied.device.type)(
        occupied, which, parts, size, removable
    )
    return places
