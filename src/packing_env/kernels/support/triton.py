"""The count of supporting cells on CUDA devices, in Triton."""

from __future__ import annotations

import torch
from torch import Tensor

from packing_env.kernels.compiled.triton import launch_gaps
from packing_env.kernels.support.hull_triton import com_hull

__all__ = ["com_hull", "support_count"]


def support_count(
    heightmap: Tensor, bottom: Tensor, z: Tensor, contact_tol: float, stride: int
) -> Tensor:
    """Carry out `packing_env.kernels.support_count`."""
    count = z.new_zeros(z.shape, dtype=torch.int32)
    launch_gaps(heightmap, bottom, stride, z.contiguous(), count, contact_tol)
    return count
