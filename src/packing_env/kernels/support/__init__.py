"""Supporting cells of all placements: their number, and their hull."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.backends import implement, select
from packing_env.kernels.checks import check_placed, check_tensor
from packing_env.kernels.operators import declare
from packing_env.kernels.support import eager

_COM_HULL = implement(
    "com_hull(Tensor heightmap, Tensor bottom, Tensor z, Tensor com, float tolerance,"
    " int stride, bool centres, Tensor? which=None, Tensor? size=None, Tensor? margin=None)"
    " -> Tensor",
    __name__,
    fake=lambda heightmap, bottom, z, *others: z.new_empty(z.shape, dtype=torch.bool),
    eager=eager.com_hull,
)
_TIERED_HULL = declare(
    "numba_tiered_hull(Tensor heightmap, Tensor bottom, Tensor z, Tensor com, Tensor margin,"
    " float tolerance, int stride, int items, Tensor? which=None) -> Tensor",
    cpu=f"{__name__}.hull_numba:tiered_hull",
    fake=lambda heightmap, bottom, z, *others: z.new_empty(z.shape, dtype=torch.bool),
)
_SUPPORT_COUNT = implement(
    "support_count(Tensor heightmap, Tensor bottom, Tensor z, float tolerance, int stride,"
    " Tensor? which=None, Tensor? size=None) -> Tensor",
    __name__,
    fake=lambda heightmap, bottom, z, *others: z.new_empty(z.shape, dtype=torch.int32),
    eager=eager.support_count,
)


def com_hull(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"] | Float[Tensor, "K U V"],
    z: Float[Tensor, "B R Xs Ys"],
    com: Int[Tensor, "B R 2"],
    tolerance: float,
    stride: int = 1,
    *,
    centres: bool = False,
    which: Int[Tensor, "B R"] | None = None,
    size: Int[Tensor, "K 2"] | None = None,
    margin: Int[Tensor, "B R 2"] | None = None,
    backend: str | None = None,
) -> Bool[Tensor, "B R Xs Ys"]:
    """Return True where the centre of mass lies over the hull of the supporting cells' squares.

    A cell supports iff heightmap - bottom >= z - tolerance in float32. For each corner of a
    supporting square, slope = dy/|dx| is measured from the centre of mass (in integers of 1/64
    cell, float64; it is 2^20 dy where dx = 0). The corners to the left (dx <= 0) and to the right
    (dx >= 0) are treated separately. A placement is stable iff there are corners on both sides,
    max_left + max_right >= 0 and min_left + min_right <= 0. So the boundary counts as stable. The
    result is False where z is +inf.

    With `centres`, the hull is the hull of the supporting cells' centres, which may be a segment or
    a point. With `margin`, a placement is stable iff the hull contains all corners of the rectangle
    from `com - margin` to `com + margin`. It then contains the whole rectangle, because it is
    convex.

    Args:
        heightmap: finite heights of the container.
        bottom: lower surface of each orientation, +inf outside its footprint.
        z: the return value of `drop_height`, or +inf for placements that need not be checked.
        com: centre of mass (x, y) from the window's lower corner, in 1/64 cell.
        tolerance: largest distance at which a cell supports, metres.
        stride: lattice step in cells.
        centres: if True, use the hull of the cells' centres instead of their squares.
        which: as for `drop_height`; `com` belongs to each row's orientations.
        size: as for `drop_height`.
        margin: in 1/64 cell along x and y, not negative; None to test only the centre of mass.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    # Compiled kernels trust shapes and dtypes.
    check_placed(heightmap, bottom, z, stride, which, size)
    check_tensor("com", com, torch.int64, (*z.shape[:2], 2))
    if margin is not None:
        check_tensor("margin", margin, torch.int64, (*z.shape[:2], 2))
    operation = select(_COM_HULL, backend, heightmap.device.type)
    placed = (heightmap, bottom, z, com, tolerance, stride, centres)
    holds: Tensor = operation(*placed, which, size, margin)
    return holds


def tiered_hull(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B P U V"] | Float[Tensor, "K U V"],
    z: Float[Tensor, "B P Xs Ys"],
    com: Int[Tensor, "B P 2"],
    margin: Int[Tensor, "B P tiers 2"],
    tolerance: float,
    stride: int,
    items: int,
    *,
    which: Int[Tensor, "B P"] | None = None,
) -> Bool[Tensor, "B P Xs Ys"]:
    """Return the stable placements of each item by the first margin that leaves it a placement.

    Only numba, on the CPU, implements this operation. The arguments are those of :func:`com_hull`,
    for the orientations ``P = items * R`` of several items. Later margins are not tested.
    """
    holds: Tensor = _TIERED_HULL(heightmap, bottom, z, com, margin, tolerance, stride, items, which)
    return holds


def support_count(
    heightmap: Float[Tensor, "B X Y"],
    bottom: Float[Tensor, "B R U V"] | Float[Tensor, "K U V"],
    z: Float[Tensor, "B R Xs Ys"],
    tolerance: float,
    stride: int = 1,
    *,
    which: Int[Tensor, "B R"] | None = None,
    size: Int[Tensor, "K 2"] | None = None,
    backend: str | None = None,
) -> Int[Tensor, "B R Xs Ys"]:
    """Return how many footprint cells support each placement, int32; 0 where z is +inf.

    A cell supports iff heightmap - bottom >= z - tolerance in float32.

    Args:
        heightmap: finite heights of the container.
        bottom: lower surface of each orientation, +inf outside its footprint.
        z: the return value of `drop_height`, or +inf for placements that need not be checked.
        tolerance: largest distance at which a cell supports, metres.
        stride: lattice step in cells.
        which: as for `drop_height`.
        size: as for `drop_height`.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    check_placed(heightmap, bottom, z, stride, which, size)
    operation = select(_SUPPORT_COUNT, backend, heightmap.device.type)
    count: Tensor = operation(heightmap, bottom, z, tolerance, stride, which, size)
    return count
