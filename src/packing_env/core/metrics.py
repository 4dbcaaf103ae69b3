"""Metrics of a packed container. Metrics are not clipped.

All are 0 for an empty container, except ``height_ratio`` if there are pre-placed boxes.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor

from packing_env import kernels
from packing_env.types import PackingParams, State

NAMES = (
    "utilization",
    "compactness",
    "pyramidality",
    "stability",
    "items_packed",
    "success",
    "height_ratio",
    "support_ratio",
    "illegal_actions",
    "overflow",
)


def _ratio(numerator: Tensor, denominator: Tensor) -> Tensor:
    safe = torch.where(denominator > 0, denominator, 1.0)
    return torch.where(denominator > 0, numerator / safe, 0.0)


def sum_of_heights(heightmap: Float[Tensor, "B X Y"]) -> Float[Tensor, " B"]:
    """Sum in float64, in metres and in a fixed order, because rounding depends on the order."""
    return heightmap.sum((1, 2), dtype=torch.float64)


def measure(state: State, params: PackingParams) -> dict[str, Tensor]:
    """Return each metric of :data:`NAMES`, ``[B]`` float64.

    ``V`` is the packed volume and ``h`` the highest point of the heightmap. Then utilization ``V /
    (X Y H)`` <= compactness ``V / (X Y h)`` <= pyramidality ``V / sum(heightmap) cell^2`` <= 1
    (Huang et al., RA-L 2023; after TAP-Net, SIGGRAPH Asia 2020).
    """
    # 1. The container's base area, the highest point, and the volume under the heightmap.
    heightmap = state["heightmap"]
    base = params.container[0] * params.container[1]
    peak = heightmap.flatten(1).amax(1).double()
    under = sum_of_heights(heightmap) * params.cell**2
    # 2. Ratios of the packed volume, and means over packed items.
    volume = state["volume"]
    packed = state["items_packed"].double()
    return {
        "utilization": kernels.divide(volume, base * params.height),
        "compactness": _ratio(volume, base * peak),
        "pyramidality": _ratio(volume, under),
        "stability": _ratio(state["stable_items"].double(), packed),
        "items_packed": packed,
        "success": (state["items_packed"] == state["num_items"]).double(),
        "height_ratio": kernels.divide(peak, params.height),
        "support_ratio": _ratio(state["support_sum"], packed),
        "illegal_actions": state["illegal_actions"].double(),
        "overflow": state["overflow"].double(),
    }
