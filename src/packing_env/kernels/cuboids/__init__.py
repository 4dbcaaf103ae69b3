"""All placements of cuboids on whole cells: the public operation, and its choice of a backend."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.backends import _resolve
from packing_env.kernels.cuboids import eager as cuboid_eager
from packing_env.kernels.cuboids.eager import RULES, lattice

CUBOID_RULES = RULES
"""Stability rules that :func:`cuboid_maps` knows."""

MAX_CUBOID_HEIGHT = 254
"""Highest container in cells: heights are uint8, and 0 of them stands for nothing there."""

torch.library.define(
    "packing_env::numba_cuboid_maps",
    "(Tensor heightmap, Tensor size, float cell, int height, int[] window, str rule, int stride)"
    " -> (Tensor, Tensor)",
)


@torch.library.impl("packing_env::numba_cuboid_maps", "cpu")
def _numba_cuboid_maps(
    heightmap: Tensor,
    size: Tensor,
    cell: float,
    height: int,
    window: Sequence[int],
    rule: str,
    stride: int,
) -> tuple[Tensor, Tensor]:
    from packing_env.kernels.cuboids import numba as cuboid_numba

    return cuboid_numba.cuboid_maps(heightmap, size, cell, height, window, rule, stride)


@torch.library.register_fake("packing_env::numba_cuboid_maps")
def _fake_cuboid_maps(
    heightmap: Tensor,
    size: Tensor,
    cell: float,
    height: int,
    window: Sequence[int],
    rule: str,
    stride: int,
) -> tuple[Tensor, Tensor]:
    shape = (*size.shape[:2], *lattice(heightmap, stride))
    return heightmap.new_empty(shape), heightmap.new_empty(shape, dtype=torch.bool)


def cuboid_maps(
    heightmap: Float[Tensor, "B X Y"],
    size: Int[Tensor, "B P 3"],
    cell: float,
    height: int,
    window: tuple[int, int],
    rule: str,
    stride: int = 1,
    *,
    backend: str | None = None,
) -> tuple[Float[Tensor, "B P Xs Ys"], Bool[Tensor, "B P Xs Ys"]]:
    """Rest height and legality of every placement on the lattice {0, stride, 2 stride, ...}.

    What `drop_height`, the lid and a stability rule with exact contact say of cuboids, whose sides
    and places are whole cells and whose centre of mass is their centre. Rest heights are metres,
    +inf where the cuboid leaves the container or is none; legal is inside, under the lid and
    stable. The rules are those of :mod:`packing_env.reference.maps`.

    Args:
        heightmap: whole multiples of the cell, `height` of them at most.
        size: int32 sides (w, h, d) in cells; (0, 0, 0) for none.
        cell: metres; its multiples up to the height must be float32 numbers.
        height: of the container, in cells, at most `MAX_CUBOID_HEIGHT`.
        window: cells (U, V) that no w and h exceed.
        rule: one of `CUBOID_RULES`.
        stride: lattice step in cells.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    _check(heightmap, size, height, rule, stride)
    arguments = (heightmap, size, cell, height, window, rule, stride)
    if _resolve(backend, heightmap.device.type) == "numba":
        return torch.ops.packing_env.numba_cuboid_maps(*arguments)
    return cuboid_eager.cuboid_maps(*arguments)


def _check(heightmap: Tensor, size: Tensor, height: int, rule: str, stride: int) -> None:
    """The compiled kernel trusts shapes and dtypes, so every backend checks them alike."""
    if stride < 1:
        raise ValueError(f"stride is a number of cells, at least 1, not {stride}")
    if not 1 <= height <= MAX_CUBOID_HEIGHT:
        raise ValueError(f"height is 1 to {MAX_CUBOID_HEIGHT} cells, not {height}")
    if rule not in CUBOID_RULES:
        raise ValueError(f"unknown rule {rule!r}: choose from {', '.join(CUBOID_RULES)}")
    for name, tensor, dtype in (
        ("heightmap", heightmap, torch.float32),
        ("size", size, torch.int32),
    ):
        if tensor.dtype != dtype:
            raise TypeError(f"{name} should be {dtype}, not {tensor.dtype}")
    if heightmap.dim() != 3 or size.dim() != 3 or size.shape[::2] != (heightmap.shape[0], 3):
        raise ValueError(
            "heightmap should be [B, X, Y] and size [B, P, 3] with the same B, not "
            f"{list(heightmap.shape)} and {list(size.shape)}"
        )
