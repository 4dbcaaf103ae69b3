"""Rest heights on CUDA devices, in Triton."""

from __future__ import annotations

from torch import Tensor

from packing_env.kernels.compiled.scene_triton import scene_of, shape_of
from packing_env.kernels.compiled.triton import gaps_kernel, launch


def drop_height(
    heightmap: Tensor,
    bottom: Tensor,
    stride: int,
    which: Tensor | None = None,
    size: Tensor | None = None,
) -> Tensor:
    """Carry out `packing_env.kernels.drop_height`."""
    z = heightmap.new_empty(shape_of(heightmap, bottom, stride, which))
    scene = scene_of(heightmap, bottom, stride, which, size)
    launch(gaps_kernel, scene, heightmap, stride, z, z, None, 0.0, 0.0, COUNT=False)
    return z
