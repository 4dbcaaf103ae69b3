"""The Triton kernels as operators of torch; Triton itself is imported by the first call.

They take tensors of CUDA devices, and of the CPU in Triton's interpreter.
"""

from __future__ import annotations

import os

import torch
from torch import Tensor

DEVICES = ("cuda", "cpu") if os.environ.get("TRITON_INTERPRET") == "1" else ("cuda",)
"""Device types whose tensors they take."""

torch.library.define(
    "packing_env::triton_drop_height", "(Tensor heightmap, Tensor bottom, int stride) -> Tensor"
)
torch.library.define(
    "packing_env::triton_com_hull",
    "(Tensor heightmap, Tensor bottom, Tensor z, Tensor com, float contact_tol, int stride,"
    " bool centres) -> Tensor",
)
torch.library.define(
    "packing_env::triton_support_count",
    "(Tensor heightmap, Tensor bottom, Tensor z, float contact_tol, int stride) -> Tensor",
)


@torch.library.impl("packing_env::triton_drop_height", DEVICES)
def _drop_height(heightmap: Tensor, bottom: Tensor, stride: int) -> Tensor:
    from packing_env.kernels.drop import triton as drop_triton

    return drop_triton.drop_height(heightmap, bottom, stride)


@torch.library.impl("packing_env::triton_com_hull", DEVICES)
def _com_hull(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    com: Tensor,
    contact_tol: float,
    stride: int,
    centres: bool,
) -> Tensor:
    from packing_env.kernels.support import hull_triton

    return hull_triton.com_hull(heightmap, bottom, z, com, contact_tol, stride, centres)


@torch.library.impl("packing_env::triton_support_count", DEVICES)
def _support_count(
    heightmap: Tensor, bottom: Tensor, z: Tensor, contact_tol: float, stride: int
) -> Tensor:
    from packing_env.kernels.support import triton as support_triton

    return support_triton.support_count(heightmap, bottom, z, contact_tol, stride)
