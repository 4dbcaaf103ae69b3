"""All placements of cuboids on whole cells: the operation `cuboid_maps`."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.backends import implement, select
from packing_env.kernels.checks import check_dtype, check_stride
from packing_env.kernels.cuboids import eager
from packing_env.kernels.layout import MAX_CUBOID_HEIGHT, lattice
from packing_env.kernels.stability_rules import NAMES

CUBOID_RULES = NAMES
"""Stability rules that :func:`cuboid_maps` knows."""


def _empty(heightmap: Tensor, size: Tensor, *task: Any) -> tuple[Tensor, Tensor]:
    shape = (*size.shape[:2], *lattice(heightmap, task[-1]))
    return heightmap.new_empty(shape), heightmap.new_empty(shape, dtype=torch.bool)


_CUBOID_MAPS = implement(
    "cuboid_maps(Tensor heightmap, Tensor size, float cell, int height, int[] window, str rule,"
    " int stride) -> (Tensor, Tensor)",
    __name__,
    fake=_empty,
    eager=eager.cuboid_maps,
)


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
    """Return the rest height and the legality of every placement on the lattice.

    The lattice is {0, stride, 2 stride, ...}. The results are those of `drop_height`, the lid and
    a stability rule with exact contact, for cuboids whose sides and positions are whole cells and
    whose centre of mass is their centre. Rest heights are metres, +inf where the cuboid leaves the
    container and for padding; legal is inside, under the lid and stable. The rules are those of
    :mod:`packing_env.reference.stability`.

    Args:
        heightmap: whole multiples of the cell, `height` of them at most.
        size: int32 sides (w, h, d) in cells; (0, 0, 0) for padding.
        cell: metres; its multiples up to the height must be float32 numbers.
        height: of the container, in cells, at most `MAX_CUBOID_HEIGHT`.
        window: cells (U, V) that no w and h exceed.
        rule: one of `CUBOID_RULES`.
        stride: lattice step in cells.
        backend: a name in `available_backends`; None for the one chosen for this device.
    """
    _check(heightmap, size, height, rule, stride)
    found: tuple[Tensor, Tensor] = select(_CUBOID_MAPS, backend, heightmap.device.type)(
        heightmap, size, cell, height, window, rule, stride
    )
    return found


def _check(heightmap: Tensor, size: Tensor, height: int, rule: str, stride: int) -> None:
    """Raise for arguments that no backend takes."""
    check_stride(stride)
    if not 1 <= height <= MAX_CUBOID_HEIGHT:
        raise ValueError(f"height is 1 to {MAX_CUBOID_HEIGHT} cells, not {height}")
    if rule not in CUBOID_RULES:
        raise ValueError(f"unknown rule {rule!r}: choose from {', '.join(CUBOID_RULES)}")
    check_dtype("heightmap", heightmap, torch.float32)
    check_dtype("size", size, torch.int32)
    if heightmap.dim() != 3 or size.dim() != 3 or size.shape[::2] != (heightmap.shape[0], 3):
        raise ValueError(
            "heightmap should be [B, X, Y] and size [B, P, 3] with the same B, not "
            f"{list(heightmap.shape)} and {list(size.shape)}"
        )
