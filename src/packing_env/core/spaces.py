"""Empty maximal spaces of a container, kept as a list."""

from __future__ import annotations

import torch
from torch import Tensor

from packing_env.types import Catalogue, PackingParams


def initial(batch: int, params: PackingParams, device: torch.device) -> Tensor:
    """``[B, E, 6]``: the whole container, then empty places."""
    found = torch.zeros(batch, params.num_spaces, 6, dtype=torch.int32, device=device)
    if params.num_spaces:
        for axis, side in enumerate((*params.lattice, params.height_units)):
            found[:, 0, 3 + axis] = side
    return found


def smallest_side(catalogue: Catalogue) -> Tensor:
    """Smallest side of any item in any orientation, pitches, ``[]`` int32."""
    sides = catalogue["cuboid"]
    return torch.where(sides > 0, sides, 2**30).amin()


def split(spaces: Tensor, box: Tensor, placed: Tensor, smallest: Tensor) -> tuple[Tensor, Tensor]:
    """Placeholder."""
    raise NotImplementedError
