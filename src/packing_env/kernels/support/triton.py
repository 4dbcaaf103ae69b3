"""The count of supporting cells on CUDA devices, in Triton."""

from __future__ import annotations

import torch
from torch import Tensor

from packing_env.kernels.compiled.scene_triton import scene_of
from packing_env.kernels.compiled.triton import gaps_kernel, launch
from packing_env.kernels.support.hull_triton import com_hull

__all__ = ["com_hull", "support_count"]


def support_count(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    tolerance: float,
    stride: int,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.support_count`."""
    # One kernel measures gaps; it counts the gaps that reach the bar, or keeps the largest gap.
    count = z.new_empty(z.shape, dtype=torch.int32)
    scene = scene_of(heightmap, bottom, stride, which, size)
    placed = (z.contiguous(), count, None, tolerance, 0.0)
    launch(gaps_kernel, scene, heightmap, stride, *placed, COUNT=True)
    return count
