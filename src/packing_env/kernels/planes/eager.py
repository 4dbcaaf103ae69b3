"""Images of placements in torch."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional


def window_sums(heightmap: Float[Tensor, "B X Y"]) -> Float[Tensor, "B Xp Yp"]:
    """Return the sums over all windows that begin at the first cell; the first is over no cell."""
    return functional.pad(heightmap.cumsum(1).cumsum(2), (1, 0, 1, 0))


def placement_planes(
    rest: Float[Tensor, "B P Xs Ys"],
    sums: Float[Tensor, "B Xp Yp"],
    size: Float[Tensor, "B P 2"],
    peak: Float[Tensor, "B P"],
    stride: int,
) -> Float[Tensor, "B P 3 Xs Ys"]:
    """Carry out `packing_env.kernels.placement_planes`."""
    across, along = (side - 1 for side in sums.shape[1:])
    flat = sums.flatten(1)
    cells = torch.stack((size[..., 0] * across, size[..., 1] * along), -1)
    sides = cells.round().long().clamp(min=1)
    x, y = (stride * torch.arange(places, device=rest.device) for places in rest.shape[2:])
    x_end = (x + sides[..., :1]).clamp(max=across)[..., None]
    y_end = (y + sides[..., 1:]).clamp(max=along)[:, :, None]
    x, y = x[:, None], y[None, :]

    def corner(i: Tensor, j: Tensor) -> Tensor:
        place = (i * (along + 1) + j).expand(rest.shape)
        return flat.gather(1, place.flatten(1)).view(rest.shape)

    total = corner(x_end, y_end) - corner(x, y_end) - corner(x_end, y) + corner(x, y)
    gap = torch.where(rest < 1, rest - total / sides.prod(-1)[..., None, None], 1.0)
    after = (rest + peak[..., None, None]).clamp(max=1)
    return torch.stack((rest, after, gap), 2)
