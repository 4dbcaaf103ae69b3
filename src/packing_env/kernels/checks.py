"""Checks of arguments. Compiled kernels trust shapes and dtypes, so every backend checks them."""

from __future__ import annotations

import torch
from torch import Tensor

from packing_env.kernels.layout import lattice_shape


def check_dtype(name: str, tensor: Tensor, dtype: torch.dtype) -> None:
    """Raise unless a tensor has this dtype."""
    if tensor.dtype != dtype:
        raise TypeError(f"{name} should be {dtype}, not {tensor.dtype}")


def check_tensor(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    """Raise unless a tensor has this dtype and shape."""
    check_dtype(name, tensor, dtype)
    if tensor.shape != shape:
        raise ValueError(f"{name} should have shape {list(shape)}, not {list(tensor.shape)}")


def check_maps(heightmap: Tensor, bottom: Tensor, stride: int) -> None:
    """Raise unless the arguments are a heightmap, the lower surfaces of each row, and a stride."""
    if stride < 1:
        raise ValueError(f"stride is a number of cells, at least 1, not {stride}")
    check_dtype("heightmap", heightmap, torch.float32)
    check_dtype("bottom", bottom, torch.float32)
    if heightmap.dim() != 3 or bottom.dim() != 4 or heightmap.shape[0] != bottom.shape[0]:
        raise ValueError(
            "heightmap should be [B, X, Y] and bottom [B, R, U, V] with the same B, not "
            f"{list(heightmap.shape)} and {list(bottom.shape)}"
        )


def check_surfaces(
    heightmap: Tensor, bottom: Tensor, stride: int, which: Tensor | None, size: Tensor | None
) -> None:
    """Raise unless the lower surfaces are given by row, or ``[K, U, V]`` and by ``which``."""
    if which is not None:
        check_maps(heightmap, bottom[None].expand(len(heightmap), *bottom.shape), stride)
        check_tensor("which", which, torch.int64, (len(heightmap), which.shape[-1]))
        if size is not None:
            check_tensor("size", size, torch.int64, (len(bottom), 2))
    else:
        check_maps(heightmap, bottom, stride)


def check_placed(
    heightmap: Tensor,
    bottom: Tensor,
    z: Tensor,
    stride: int,
    which: Tensor | None,
    size: Tensor | None,
) -> None:
    """Raise unless ``z`` are rest heights of the lower surfaces, given by row or by ``which``."""
    check_surfaces(heightmap, bottom, stride, which, size)
    like = which if which is not None else bottom
    check_tensor("z", z, torch.float32, lattice_shape(heightmap, like, stride))
