"""Rest heights on CUDA devices, in Triton."""

from __future__ import annotations

import torch
from torch import Tensor

from packing_env.kernels.compiled.triton import launch_gaps
from packing_env.kernels.layout import gather_surfaces, lattice_shape


def drop_height(
    heightmap: Tensor,
    bottom: Tensor,
    stride: int,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.drop_height`; without `which`, ``size`` has no meaning."""
    if which is not None:
        bottom = gather_surfaces(bottom, which)
    z = heightmap.new_full(lattice_shape(heightmap, bottom, stride), torch.inf)
    launch_gaps(heightmap, bottom, stride, z, None, 0.0)
    return z
