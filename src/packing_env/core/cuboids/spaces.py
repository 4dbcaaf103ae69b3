"""Empty maximal spaces: the places in the container where a cuboid still fits.

A space is a box ``(x0, y0, z0, x1, y1, z1)`` in pitches that overlaps no packed cuboid. The spaces
and their order are those of the program of Zhao et al., ICLR 2022 (PCT).
:mod:`packing_env.reference.spaces` specifies the rules. The order matters, because heuristics take
the first of several spaces with equal scores.

:func:`packing_env.kernels.split_spaces` gives the list after a cuboid was placed. Every space
reaches up to the lid, so there are no spaces under an overhang. A cuboid that fits into a space and
is dropped there comes to rest on the space's floor or lower. A cuboid that does not fit and is
dropped at the space's corner may come to rest at any height.
"""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from packing_env.types import Catalogue, PackingParams

_LARGE = 2**30


def initial(batch: int, params: PackingParams, device: torch.device) -> Int[Tensor, "B E 6"]:
    """Return the whole container as the only space, then empty entries."""
    listed = torch.zeros(batch, params.num_spaces, 6, dtype=torch.int32, device=device)
    if params.num_spaces:
        for axis, side in enumerate(params.pitches):
            listed[:, 0, 3 + axis].fill_(side)
    return listed


def smallest_side(catalogue: Catalogue) -> Int[Tensor, ""]:
    """Return the shortest side of all items in pitches; one orientation shows all three sides."""
    # Padding has sides of 0.
    extents = catalogue["cuboid"][:, 0]
    return torch.where(extents > 0, extents, _LARGE).amin()
