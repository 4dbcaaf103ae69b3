"""The placements of voxel parts, in torch: any device, traceable, no host read.

The number of voxels that a part at every placement shares with a set of voxels is a correlation of
the two. A Fourier transform computes it for all placements at once (Cui et al., "Dense,
interlocking-free and scalable spectral packing of generic 3D objects", SIGGRAPH 2023). The counts
are whole numbers, so float64 results rounded to the nearest whole number are exact.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn import functional

from packing_env.kernels.layout import in_rows

_AXES = (-3, -2, -1)
_CHUNK_VALUES = 2**22
"""Number of placements that are processed at once on a CPU."""


@in_rows(2, lambda occupied, which, *_: _CHUNK_VALUES // (which[0].numel() * occupied[0].numel()))
def voxel_places(
    occupied: Bool[Tensor, "B X Y Z"],
    which: Int[Tensor, "B P"],
    parts: Bool[Tensor, "K U V W"],
    size: Int[Tensor, "K 3"],
    removable: bool,
) -> tuple[Bool[Tensor, "B P X Y Z"], Int[Tensor, "B P X Y Z"]]:
    """Carry out :func:`packing_env.kernels.voxel_places`."""
    # 1. The spectra of the parts. A correlation wraps around the container's sides, but only at
    #    placements that leave the container.
    grid, index = occupied.shape[1:], which.clamp(min=0)
    spectrum = torch.fft.rfftn(parts[index].double(), s=grid, dim=_AXES).conj()
    # 2. A part is free where it meets nothing, or where its way in some direction meets nothing.
    obstacles = shadows(occupied) if removable else iter((occupied,))
    free = torch.zeros((), dtype=torch.bool, device=occupied.device)
    for obstacle in obstacles:
        free = free | (_correlate(obstacle, spectrum) == 0)
    # 3. Only placements inside the container count.
    legal = free & _inside(size[index], grid) & (which >= 0)[..., None, None, None]
    contact = _correlate(neighbours(occupied), spectrum)
    return legal, torch.where(legal, contact, 0.0).int()


def _correlate(volume: Tensor, spectrum: Tensor) -> Float[Tensor, "B P X Y Z"]:
    """Return the sum of ``volume`` over the voxels of each part at each placement."""
    product = torch.fft.rfftn(volume.double(), dim=_AXES)[:, None] * spectrum
    return torch.fft.irfftn(product, s=volume.shape[1:], dim=_AXES).round()


def shadows(occupied: Bool[Tensor, "B X Y Z"]) -> Iterator[Bool[Tensor, "B X Y Z"]]:
    """Yield for each direction the voxels from which a moving voxel meets an occupied one."""
    for axis in _AXES:
        yield occupied.int().flip(axis).cumsum(axis).flip(axis) > 0  # towards larger coordinates
        yield occupied.int().cumsum(axis) > 0


def neighbours(occupied: Bool[Tensor, "B X Y Z"]) -> Int[Tensor, "B X Y Z"]:
    """Return how many of the six neighbours of each voxel are occupied or outside the container."""
    padded = functional.pad(occupied.int(), (1,) * 6, value=1)
    count = torch.zeros_like(occupied, dtype=torch.int32)
    for axis in _AXES:
        middle = padded
        for other in _AXES:
            if other != axis:
                middle = middle.narrow(other, 1, padded.shape[other] - 2)
        side = occupied.shape[axis]
        count = count + middle.narrow(axis, 0, side) + middle.narrow(axis, 2, side)
    return count


def _inside(size: Int[Tensor, "B P 3"], grid: torch.Size) -> Bool[Tensor, "B P X Y Z"]:
    """Return the placements at which a part lies inside; a part of size 0 lies nowhere."""
    fits = (size > 0).all(-1)[..., None]
    x, y, z = (
        fits & (torch.arange(n, device=size.device) + size[..., axis, None] <= n)
        for axis, n in enumerate(grid)
    )
    return x[..., :, None, None] & y[..., None, :, None] & z[..., None, None, :]
