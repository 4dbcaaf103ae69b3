"""Cuboids as integer boxes: rest heights, legality, and the raster that is their heightmap.

A box is ``(x0, y0, z0, x1, y1, z1)`` in pitches (``params.pitch`` metres). Packed boxes are listed
in packing order and padded with zeros. :mod:`packing_env.reference.boxes` specifies the rules of
this geometry.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core.ground import Landing
from packing_env.types import Catalogue, PackingParams, ParameterError


def check_rule(name: str) -> None:
    """Raise if a stability rule cannot be evaluated on packed boxes."""
    if name not in kernels.BOX_RULES:
        raise ParameterError(
            f"stability rule {name!r} is not defined for geometry='boxes'; "
            f"choose one of {sorted(kernels.BOX_RULES)}, or geometry='maps'"
        )


def judge(
    boxes: Int[Tensor, "B N 6"],
    lower: Int[Tensor, "B P 2"],
    size: Int[Tensor, "B P 3"],
    params: PackingParams,
) -> tuple[Int[Tensor, "B P"], Bool[Tensor, "B P"]]:
    """Return rest height in pitches and legality of placements, given corners and sides in pitches.

    A negative corner coordinate or a side of 0 marks padding, which is not legal.
    """
    # 1. Drop each box onto the packed boxes.
    z = kernels.box_drop(boxes, lower, size)
    # 2. Check the container and the lid first; the stability rule checks the remaining placements.
    inside = _is_inside(lower, size, z, params)
    judged = torch.where(inside[..., None], size, 0)  # the rule skips placements without a size
    return z, kernels.box_stable(boxes, lower, judged, z, params.stability)


def held_on_lattice(
    boxes: Int[Tensor, "B N 6"],
    size: Int[Tensor, "B L R 3"],
    z: Float[Tensor, "B L R Xs Ys"],
    legal: Bool[Tensor, "B L R Xs Ys"],
    params: PackingParams,
) -> Bool[Tensor, "B L R Xs Ys"]:
    """Return which of the legal placements on the lattice are stable by ``params.stability``."""
    # List a box for every lattice point.
    x, y = (torch.arange(n, device=z.device) * params.grid_step for n in z.shape[-2:])
    corners = torch.stack(torch.meshgrid(x, y, indexing="ij"), -1).int()
    lower = corners.expand(*z.shape, 2).flatten(1, -2)
    sides = size[:, :, :, None, None].expand(*z.shape, 3).flatten(1, -2)
    stable = held(
        boxes,
        lower=lower,
        size=sides,
        z=z.flatten(1),
        legal=legal.flatten(1),
        params=params,
        rule=params.stability,
    )
    return stable.view(z.shape)


def held(
    boxes: Int[Tensor, "B N 6"],
    lower: Int[Tensor, "B P 2"],
    size: Int[Tensor, "B P 3"],
    z: Float[Tensor, "B P"],
    legal: Bool[Tensor, "B P"],
    params: PackingParams,
    rule: str,
) -> Bool[Tensor, "B P"]:
    """Return which legal placements, with rest heights in metres, are stable by a rule."""
    # Metres become pitches; illegal placements become padding.
    rest = torch.where(legal, kernels.divide(z, params.pitch), 0.0).round().int()
    sides = torch.where(legal[..., None], size, 0)
    return kernels.box_stable(boxes, lower.contiguous(), sides, rest, rule)


def raise_heightmap(
    heightmap: Float[Tensor, "B X Y"],
    box: Int[Tensor, "B 6"],
    placed: Bool[Tensor, " B"],
    params: PackingParams,
) -> Float[Tensor, "B X Y"]:
    """Return the raster after a box was placed; rows that are not ``placed`` stay unchanged.

    The height of every cell that the base overlaps becomes at least the box's top.
    """
    # The cells along each axis that the base overlaps.
    step = params.units_per_cell
    edges = (torch.arange(cells, device=box.device) * step for cells in heightmap.shape[1:])
    across, along = (
        (edge < box[:, axis + 3, None]) & (edge + step > box[:, axis, None])
        for axis, edge in enumerate(edges)
    )
    inside = (across & placed[:, None])[:, :, None] & along[:, None, :]
    top = metres(box[:, 5], params)[:, None, None]
    return torch.where(inside, torch.maximum(heightmap, top), heightmap)


def box_at(item: Landing, catalogue: Catalogue, params: PackingParams) -> Int[Tensor, "B 6"]:
    """Return cuboids at rest, ``(x0 y0 z0 x1 y1 z1)`` in pitches."""
    # Illegal placements may rest at +inf; they are not written.
    place, pitches = item.placement, kernels.divide(item.z, params.pitch)
    height = torch.where(torch.isfinite(item.z), pitches, 0.0).round().int()
    lower = torch.stack((place.x.int(), place.y.int(), height), -1)
    return torch.cat((lower, lower + catalogue["cuboid"][item.item_id, place.orientation]), -1)


def metres(length: Int[Tensor, "*rows"], params: PackingParams) -> Float[Tensor, "*rows"]:
    """Convert whole pitches to the nearest float32 number of metres."""
    return (length.double() * params.pitch).float()


def _is_inside(
    lower: Tensor, size: Tensor, z: Tensor, params: PackingParams
) -> Bool[Tensor, "B P"]:
    """Return which placements are not padding and lie inside the container."""
    there = (lower >= 0).all(-1) & (size > 0).all(-1)
    upper = lower + size[..., :2]
    across, along, height = params.pitches
    within = (upper[..., 0] <= across) & (upper[..., 1] <= along)
    return there & within & (z + size[..., 2] <= height)


def support_ratio(boxes: Tensor, lower: Tensor, size: Tensor, z: Tensor) -> Float[Tensor, "B P"]:
    """Return the share of the base that rests on other boxes or on the floor."""
    # Sum the areas shared with packed boxes whose top is at the rest height.
    upper = lower + size[..., :2]
    low = torch.maximum(boxes[:, None, :, :2], lower[:, :, None])
    high = torch.minimum(boxes[:, None, :, 3:5], upper[:, :, None])
    shared = (high - low).clamp(min=0).double().prod(-1)
    count = torch.where(boxes[:, None, :, 5] == z[..., None], shared, 0.0).sum(-1)
    ratio = count / size[..., :2].double().prod(-1).clamp(min=1.0)
    return torch.where(z == 0, 1.0, ratio)
