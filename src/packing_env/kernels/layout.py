"""Constants and shapes that the kernels of all backends share."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor
from torch.nn import functional

_Function = TypeVar("_Function", bound=Callable[..., Any])

SUBCELL = 64
"""Centres of mass are given in 1/64 of a cell."""

HALF_CELL = SUBCELL // 2

VERTICAL = 2.0**-20
"""Replaces |dx| = 0 in a slope: the division is exact, and the result steeper than all other
slopes."""

MAX_CUBOID_HEIGHT = 254
"""Greatest height of a container of cuboids in cells: heights are uint8, raised by one, and 0 means
no ground.
"""

MAX_CUBOID_SIDE = 255
"""Greatest extent of a cuboid along y in cells: distances are bytes."""

NUM_METRICS = 10
"""Number of ``core.metrics.NAMES``."""

_CHUNK_FLOATS = 160_000
"""Number of placements whose running maxima stay in the L2 cache of a CPU."""

_MEASURED = 256
"""Number of lower surfaces that are measured at once, to limit the memory."""


def lattice(heightmap: Float[Tensor, "B X Y"], stride: int) -> tuple[int, int]:
    """Return ``(ceil(X / stride), ceil(Y / stride))``, the placements along x and y."""
    return -(-heightmap.shape[1] // stride), -(-heightmap.shape[2] // stride)


def lattice_shape(
    heightmap: Float[Tensor, "B X Y"], bottom: Shaped[Tensor, "B R ..."], stride: int
) -> tuple[int, int, int, int]:
    """Return the shape ``[B, R, ceil(X / stride), ceil(Y / stride)]`` of a map over placements."""
    return (heightmap.shape[0], bottom.shape[1], *lattice(heightmap, stride))


def gather_surfaces(
    bottom: Float[Tensor, "K U V"], which: Int[Tensor, "B R"]
) -> Float[Tensor, "B R U V"]:
    """Return ``bottom[which]``; for a negative index, +inf everywhere."""
    surfaces = bottom[which.clamp(min=0)]
    return surfaces.masked_fill_((which < 0)[..., None, None], torch.inf)


def surface_sizes(bottom: Float[Tensor, "*K U V"]) -> Int[Tensor, "*K 2"]:
    """Return the cells (w, h) of each lower surface up to its last finite cell; 0 if none."""
    parts = bottom.flatten(0, -3).split(_MEASURED)
    return torch.cat([extents(part) for part in parts]).view(*bottom.shape[:-2], 2)


def extents(bottom: Float[Tensor, "*K U V"]) -> Int[Tensor, "*K 2"]:
    """Return :func:`surface_sizes` for all surfaces at once."""
    footprint = torch.isfinite(bottom)
    count_u, count_v = (
        torch.arange(1, side + 1, device=bottom.device) for side in bottom.shape[-2:]
    )
    lines = (footprint.any(-1) * count_u, footprint.any(-2) * count_v)
    return torch.stack([line.amax(-1) for line in lines], -1)


def in_rows(num: int, rows: Callable[..., int]) -> Callable[[_Function], _Function]:
    """Make a function process few rows at once on a CPU, so that they fit into its cache.

    Args:
        num: number of leading arguments that are tensors ``[B, ...]``. The function returns a
            tensor or a tuple of tensors, with rows as the first axis.
        rows: function of the same arguments that returns how many rows to process at once.
    """

    def decorate(function: _Function) -> _Function:
        @wraps(function)
        def compute(*arguments: Any) -> Any:
            tensors, others = arguments[:num], arguments[num:]
            batch, most = len(tensors[0]), max(1, rows(*arguments))
            if batch <= most or tensors[0].device.type != "cpu" or torch.compiler.is_compiling():
                return function(*arguments)
            split = zip(*(tensor.chunk(-(-batch // most)) for tensor in tensors), strict=True)
            parts = [function(*part, *others) for part in split]
            if isinstance(parts[0], Tensor):
                return torch.cat(parts)
            return tuple(torch.cat(part) for part in zip(*parts, strict=True))

        return cast(_Function, compute)

    return decorate


def rows_at_once(places: Sequence[int]) -> int:
    """Return the number of rows whose running maxima over ``places`` stay in an L2 cache."""
    return _CHUNK_FLOATS // max(1, math.prod(places))


def phases_of(
    heightmap: Float[Tensor, "B X Y"], bottom: Float[Tensor, "B R U V"], stride: int
) -> Float[Tensor, "B stride stride Xq Yq"]:
    """Return the heightmap, zero beyond its edges, split so that a lattice step is one element.

    Cell (stride * i + p, stride * j + q) is element [p, q, i, j].
    """
    xq, yq = (
        steps + (window - 1) // stride
        for steps, window in zip(
            lattice(heightmap, stride), window_cells(heightmap, bottom), strict=True
        )
    )
    pad = (0, yq * stride - heightmap.shape[2], 0, xq * stride - heightmap.shape[1])
    padded = functional.pad(heightmap, pad)
    split = padded.view(len(heightmap), xq, stride, yq, stride)
    return split.permute(0, 2, 4, 1, 3).contiguous()


def window_cells(heightmap: Tensor, bottom: Tensor) -> tuple[int, int]:
    """Return how many window cells along x and y can lie inside the container at most."""
    return min(bottom.shape[2], heightmap.shape[1]), min(bottom.shape[3], heightmap.shape[2])


def window_cell(phases: Tensor, u: int, v: int, xs: int, ys: int) -> Float[Tensor, "B 1 Xs Ys"]:
    """Return heightmap[stride * x + u, stride * y + v] for every lattice point (x, y)."""
    stride = phases.shape[1]
    (i, p), (j, q) = divmod(u, stride), divmod(v, stride)
    return phases[:, p, q, i : i + xs, j : j + ys].unsqueeze(1)
