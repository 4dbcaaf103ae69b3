"""Images of all placements of an item, the input of networks: the operation `placement_planes`."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from packing_env.kernels.backends import BACKENDS, resolve
from packing_env.kernels.operators import declare
from packing_env.kernels.planes import eager

_PLACEMENT_PLANES = declare(
    "triton_placement_planes(Tensor rest, Tensor sums, Tensor size, Tensor peak, int stride) "
    "-> Tensor",
    **dict.fromkeys(BACKENDS["triton"].runs_on or (), f"{__name__}.triton:placement_planes"),
    fake=lambda rest, *others: rest.new_empty(*rest.shape[:2], 3, *rest.shape[2:]),
)


def placement_planes(
    heightmap: Float[Tensor, "B X Y"],
    rest: Float[Tensor, "B P Xs Ys"],
    size: Float[Tensor, "B P 2"],
    peak: Float[Tensor, "B P"],
    stride: int,
    *,
    backend: str | None = None,
) -> Float[Tensor, "B P 3 Xs Ys"]:
    """Return rest heights, heights after the placement, and gaps below it; all 1 if illegal.

    A gap is the rest height minus the mean height under the window. The sums over windows come from
    one table of cumulative sums. Heights are divided by H. No gradient flows through the operation.

    Args:
        heightmap: heights.
        rest: rest heights, 1 where illegal.
        size: sides of the windows, divided by the sides of the container.
        peak: highest points of the items.
        stride: cells from one placement to the next.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    sums = eager.window_sums(heightmap)
    if resolve(backend, rest.device.type) == "triton":
        images: Tensor = _PLACEMENT_PLANES(rest, sums, size, peak, stride)
        return images
    return eager.placement_planes(rest, sums, size, peak, stride)
