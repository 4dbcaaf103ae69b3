"""The operations of `agents.networks.fused` on CUDA devices, in Triton.

Sums are float32 for every dtype of the images. Sizes named in capitals are compile-time constants.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from agents.networks.fused.layout import channels_last, stacks
from packing_env.kernels.compiled.scene_triton import part, start

WARPS = {"num_warps": 4}
ENTRIES = 1024
"""Number of entries per program, in kernels that read each entry once."""
TILE = 32
"""Number of coarse cells that a program holds at once."""


@part
def relu(x):
    """Return 0 for negative numbers; NaN is kept."""
    return tl.where(x < 0.0, 0.0, x)


@part
def vector(first, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    """Load a vector as float32, with zeros up to a width."""
    k = tl.arange(0, WIDTH)
    return tl.load(first + k, mask=k < SIZE, other=0.0).to(tl.float32)


@part
def product(
    first, pitch, given, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    HIGH: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Multiply a matrix whose rows are ``pitch`` apart by a vector of a width."""
    i, j = tl.arange(0, HIGH)[:, None], tl.arange(0, WIDE)[None, :]
    on = (i < ROWS) & (j < COLUMNS)
    matrix = tl.load(first + i * pitch + j, mask=on, other=0.0).to(tl.float32)
    return tl.sum(matrix * given[None, :], axis=1)


@part
def image_weights(
    at, hidden_weight, hidden_bias, weight, bias, IMAGES: tl.constexpr, C: tl.constexpr,
    F: tl.constexpr, WIDE_C: tl.constexpr, WIDE_F: tl.constexpr,
):  # fmt: skip
    """Return the weights of the images, by two layers on the features of item and orientation."""
    hidden = product(hidden_weight, F, vector(at, F, WIDE_F), C, F, WIDE_C, WIDE_F)
    hidden = relu(hidden + vector(hidden_bias, C, WIDE_C))
    return product(weight, C, hidden, IMAGES, C, 8, WIDE_C) + vector(bias, IMAGES, 8)


@part
def fit_layer(
    weight, at, lowest, mean, share, F: tl.constexpr, V: tl.constexpr,
    WIDE_F: tl.constexpr, WIDE_V: tl.constexpr,
):  # fmt: skip
    """Multiply features of item and orientation, and three of fit, by a layer's weights."""
    pitch = F + 3
    row = tl.arange(0, WIDE_V)
    on, last = row < V, weight + row * pitch + F
    hidden = product(weight, pitch, vector(at, F, WIDE_F), V, F, WIDE_V, WIDE_F)
    hidden += tl.load(last, mask=on, other=0.0).to(tl.float32) * lowest
    hidden += tl.load(last + 1, mask=on, other=0.0).to(tl.float32) * mean
    return hidden + tl.load(last + 2, mask=on, other=0.0).to(tl.float32) * share


@triton.jit(do_not_specialize=["images_programs", "xs", "ys"])
def stack_kernel(
    images, ground, coordinates, own, shared, images_programs, xs, ys,
    OWN: tl.constexpr, SHARED: tl.constexpr, FOLD: tl.constexpr, ENTRIES: tl.constexpr,
):  # fmt: skip
    """Write entries of the folded images of a map, or of those that a row's maps share."""
    pixels: tl.constexpr = FOLD * FOLD
    across, along = tl.cdiv(xs, FOLD), tl.cdiv(ys, FOLD)
    places = xs * ys
    of_row = tl.program_id(0) >= images_programs
    channels = tl.where(of_row, SHARED * pixels, OWN * pixels)
    size = across * along * channels
    tiles = tl.cdiv(size, ENTRIES)
    program = tl.program_id(0) - tl.where(of_row, images_programs, 0)
    image, tile = (program // tiles).to(tl.int64), program % tiles
    entry = tile * ENTRIES + tl.arange(0, ENTRIES)
    channel, cell = entry % channels, entry // channels
    plane, pixel = channel // pixels, channel % pixels
    x, y = cell // along * FOLD + pixel // FOLD, cell % along * FOLD + pixel % FOLD
    on = entry < size
    there, point = on & (x < xs) & (y < ys), x * ys + y
    if of_row:
        first = there & (plane == 0)
        value = tl.load(ground + image * places + point, mask=first, other=1.0)
        rest = there & (plane > 0)
        value = tl.where(
            rest, tl.load(coordinates + (plane - 1) * places + point, mask=rest, other=1.0), value
        )
        tl.store(shared + image * size + entry, value, mask=on)
    else:
        place = (image * OWN + plane) * places + point
        tl.store(
            own + image * size + entry, tl.load(images + place, mask=there, other=1.0), mask=on
        )


@triton.jit(do_not_specialize=["planes", "cells"])
def stem_kernel(
    own, shared, bias, scalars, weight, scalar_bias, joined, planes, cells,
    C: tl.constexpr, F: tl.constexpr, WIDE_C: tl.constexpr, WIDE_F: tl.constexpr,
    TILE: tl.constexpr,
):  # fmt: skip
    """Sum the parts of the first layer for some cells of a map."""
    tiles = tl.cdiv(cells, TILE)
    plane, tile = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles
    shift = product(weight, F, vector(scalars + plane * F, F, WIDE_F), C, F, WIDE_C, WIDE_F)
    shift += vector(scalar_bias, C, WIDE_C) + vector(bias, C, WIDE_C)
    cell, c = tile * TILE + tl.arange(0, TILE)[:, None], tl.arange(0, WIDE_C)[None, :]
    on, entry = (cell < cells) & (c < C), cell * C + c
    size = cells * C
    value = tl.load(own + plane * size + entry, mask=on, other=0.0).to(tl.float32)
    value += tl.load(shared + plane // planes * size + entry, mask=on, other=0.0).to(tl.float32)
    tl.store(joined + plane * size + entry, relu(value + shift[None, :]), mask=on)


@triton.jit(do_not_specialize=["size"])
def residual_kernel(images, bias, residual, sums, size, C: tl.constexpr, ENTRIES: tl.constexpr):
    """Add a bias, take the positive part, add the residual; rounded after each step."""
    entry = tl.program_id(0).to(tl.int64) * ENTRIES + tl.arange(0, ENTRIES)
    on = entry < size
    value = tl.load(images + entry, mask=on, other=0.0).to(tl.float32)
    value += tl.load(bias + entry % C, mask=on, other=0.0).to(tl.float32)
    value = relu(value.to(images.dtype.element_ty).to(tl.float32))
    value += tl.load(residual + entry, mask=on, other=0.0).to(tl.float32)
    tl.store(sums + entry, value, mask=on)


@triton.jit(do_not_specialize=["cells"])
def token_kernel(
    images, weight, bias, sums, cells,
    C: tl.constexpr, WIDE_C: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Add a layer on the means and maxima of a map's channels to all cells of the map."""
    first = tl.program_id(0).to(tl.int64) * cells * C
    lane, c = tl.arange(0, TILE)[:, None], tl.arange(0, WIDE_C)[None, :]
    total = tl.zeros([WIDE_C], tl.float32)
    most = tl.full([WIDE_C], -float("inf"), tl.float32)
    for tile in range(0, cells, TILE):
        on = (tile + lane < cells) & (c < C)
        entry = first + (tile + lane) * C + c
        total += tl.sum(tl.load(images + entry, mask=on, other=0.0).to(tl.float32), axis=0)
        high = tl.load(images + entry, mask=on, other=-float("inf")).to(tl.float32)
        most = tl.maximum(most, tl.max(high, axis=0))
    k = tl.arange(0, WIDE_C)
    most = tl.where(k < C, most, 0.0)
    token = product(weight, 2 * C, total / cells.to(tl.float32), C, C, WIDE_C, WIDE_C)
    token += product(weight + C, 2 * C, most, C, C, WIDE_C, WIDE_C) + vector(bias, C, WIDE_C)
    for tile in range(0, cells, TILE):
        on = (tile + lane < cells) & (c < C)
        entry = first + (tile + lane) * C + c
        value = tl.load(images + entry, mask=on, other=0.0).to(tl.float32)
        tl.store(sums + entry, value + token[None, :], mask=on)


@triton.jit(do_not_specialize=["planes", "xs", "ys"])
def values_kernel(
    hidden, images, ground, coordinates, scalars, legal, map_weight, map_bias, hidden_weight,
    hidden_bias, weight, bias, fit_weight, out_weight, out_bias, container, values, planes, xs, ys,
    OWN: tl.constexpr, C: tl.constexpr, F: tl.constexpr, V: tl.constexpr, FOLD: tl.constexpr,
    WIDE_C: tl.constexpr, WIDE_F: tl.constexpr, WIDE_V: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    """Score the placements of a map; with ``container``, add its value and centre the scores."""
    plane, places = tl.program_id(0).to(tl.int64), xs * ys
    across, along = tl.cdiv(xs, FOLD), tl.cdiv(ys, FOLD)
    row, cells = plane // planes, across * along
    at, images, target = scalars + plane * F, images + plane * OWN * places, values + plane * places
    weights = image_weights(
        at, hidden_weight, hidden_bias, weight, bias, OWN + 3, C, F, WIDE_C, WIDE_F
    )
    lane, c = tl.arange(0, TILE), tl.arange(0, WIDE_C)[None, :]
    scored, sums = tl.zeros([TILE], tl.float32), tl.zeros([TILE], tl.float32)
    count, lowest = tl.zeros([TILE], tl.float32), tl.full([TILE], float("inf"), tl.float32)
    for tile in range(0, cells, TILE):
        cell = tile + lane
        on = (cell < cells)[:, None] & (c < C)
        features = tl.load(hidden + (plane * cells + cell[:, None]) * C + c, mask=on, other=0.0)
        for pixel in range(FOLD * FOLD):
            x, y = cell // along * FOLD + pixel // FOLD, cell % along * FOLD + pixel % FOLD
            point, there = x * ys + y, (cell < cells) & (x < xs) & (y < ys)
            of_map = vector(map_weight + pixel * C, C, WIDE_C)
            score = tl.sum(features.to(tl.float32) * of_map[None, :], axis=1)
            score += tl.load(map_bias + pixel).to(tl.float32)
            for k in tl.static_range(OWN + 3):
                by = tl.sum(tl.where(tl.arange(0, 8) == k, weights, 0.0), axis=0)
                if k < OWN:
                    plane_of = images + k * places
                elif k == OWN:
                    plane_of = ground + row * places
                else:
                    plane_of = coordinates + (k - OWN - 1) * places
                score += by * tl.load(plane_of + point, mask=there, other=0.0)
            tl.store(target + point, score, mask=there)
            if container is not None:
                free = tl.load(legal + plane * places + point, mask=there, other=0).to(tl.float32)
                rest = tl.load(images + point, mask=there, other=float("inf"))
                scored, count = scored + score * free, count + free
                lowest, sums = tl.minimum(lowest, rest), sums + tl.where(there, rest, 0.0)
    if container is not None:
        number = places.to(tl.float32)
        legals = tl.sum(count, axis=0)
        of_fit = fit_layer(
            fit_weight, at, tl.min(lowest, axis=0), tl.sum(sums, axis=0) / number,
            legals / number, F, V, WIDE_F, WIDE_V,
        )  # fmt: skip
        of_fit = relu(of_fit + vector(container + row * V, V, WIDE_V))
        shift = tl.sum(of_fit * vector(out_weight, V, WIDE_V), axis=0) + tl.load(out_bias)
        shift -= tl.sum(scored, axis=0) / tl.maximum(legals, 1.0)
        tl.debug_barrier()  # all scores are written
        for tile in range(0, places, TILE):
            point = tile + lane
            there = point < places
            value = tl.load(target + point, mask=there, other=0.0)
            tl.store(target + point, value + shift, mask=there)


@triton.jit(do_not_specialize=["planes", "places"])
def summary_kernel(
    rest, scalars, container, fit_weight, weight, bias, summary, planes, places,
    F: tl.constexpr, V: tl.constexpr, WIDE_F: tl.constexpr, WIDE_V: tl.constexpr,
    ENTRIES: tl.constexpr,
):  # fmt: skip
    """Write the features of a map, from those of its item, its rest heights and the container."""
    plane = tl.program_id(0).to(tl.int64)
    sums, count = tl.zeros([ENTRIES], tl.float32), tl.zeros([ENTRIES], tl.float32)
    lowest = tl.full([ENTRIES], float("inf"), tl.float32)
    for first in range(0, places, ENTRIES):
        k = first + tl.arange(0, ENTRIES)
        there = k < places
        here = tl.load(rest + plane * places + k, mask=there, other=float("inf"))
        lowest, sums = tl.minimum(lowest, here), sums + tl.where(there, here, 0.0)
        count += (here < 1.0).to(tl.float32)
    number, at = places.to(tl.float32), scalars + plane * F
    share = tl.sum(count, axis=0) / number
    hidden = fit_layer(
        fit_weight, at, tl.min(lowest, axis=0), tl.sum(sums, axis=0) / number,
        share, F, V, WIDE_F, WIDE_V,
    )  # fmt: skip
    hidden = relu(hidden + vector(container + plane // planes * V, V, WIDE_V))
    hidden = product(weight, V, hidden, V, V, WIDE_V, WIDE_V) + vector(bias, V, WIDE_V)
    v = tl.arange(0, WIDE_V)
    found = tl.where(share > 0.0, relu(hidden), 0.0)
    tl.store(summary + plane * V + v, found, mask=v < V)


def stack_images(
    images: Tensor, ground: Tensor, grid: Tensor, fold: int, short: bool
) -> list[Tensor]:
    """Return the images of maps, and those that all maps of a row share, folded as in `folded`."""
    rows, planes, channels, xs, ys = images.shape
    own, shared = stacks(images, ground, grid, fold, short)
    of_own, of_row = (triton.cdiv(stack[0].numel(), ENTRIES) for stack in (own, shared))
    _start(
        stack_kernel, rows * (planes * of_own + of_row),
        images=images.contiguous(), ground=ground.contiguous(), coordinates=grid,
        own=own, shared=shared, images_programs=rows * planes * of_own, xs=xs, ys=ys,
        OWN=channels, SHARED=shared.shape[1] // fold**2, FOLD=fold, ENTRIES=ENTRIES,
    )  # fmt: skip
    return [own, shared]


def join_stem(
    own: Tensor, shared: Tensor, bias: Tensor, scalars: Tensor, weight: Tensor, scalar_bias: Tensor
) -> Tensor:
    """Return the positive part of the sum of two convolutions, their bias and a linear layer."""
    own, shared = _last(own), _last(shared)
    joined, cells = channels_last(own), own.shape[2] * own.shape[3]
    _start(
        stem_kernel, len(own) * triton.cdiv(cells, TILE),
        own=own, shared=shared, bias=bias, scalars=scalars.contiguous(), weight=weight,
        scalar_bias=scalar_bias, joined=joined, planes=scalars.shape[1], cells=cells,
        **_wide("C", own.shape[1]), **_wide("F", scalars.shape[2]), TILE=TILE,
    )  # fmt: skip
    return joined


def add_residual(images: Tensor, bias: Tensor, residual: Tensor) -> Tensor:
    """Return ``residual + relu(images + bias)``."""
    images, residual = _last(images), _last(residual)
    sums, size = channels_last(images), images.numel()
    _start(
        residual_kernel, triton.cdiv(size, ENTRIES),
        images=images, bias=bias, residual=residual, sums=sums, size=size,
        C=images.shape[1], ENTRIES=ENTRIES,
    )  # fmt: skip
    return sums


def add_token(images: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Return images plus a linear layer on the means and the maxima of their channels."""
    images = _last(images)
    sums, cells = channels_last(images), images.shape[2] * images.shape[3]
    _start(
        token_kernel, len(images),
        images=images, weight=weight, bias=bias, sums=sums, cells=cells,
        **_wide("C", images.shape[1]), TILE=TILE,
    )  # fmt: skip
    return sums


def placement_values(
    hidden: Tensor, images: Tensor, ground: Tensor, grid: Tensor, scalars: Tensor, legal: Tensor,
    layers: list[Tensor], container: Tensor | None, fold: int,
) -> Tensor:  # fmt: skip
    """Carry out `agents.networks.fused.placement_values`."""
    rows, planes, own, xs, ys = images.shape
    values = images.new_empty(rows, planes * xs * ys)
    map_weight, map_bias, hidden_weight, hidden_bias, weight, bias = layers[:6]
    fit_weight, out_weight, out_bias = layers[6:] if container is not None else (None,) * 3
    _start(
        values_kernel, rows * planes,
        hidden=_last(hidden), images=images.contiguous(), ground=ground.contiguous(),
        coordinates=grid.contiguous(), scalars=scalars.contiguous(), legal=legal.contiguous(),
        map_weight=map_weight, map_bias=map_bias,
        hidden_weight=hidden_weight, hidden_bias=hidden_bias, weight=weight, bias=bias,
        fit_weight=fit_weight, out_weight=out_weight, out_bias=out_bias,
        container=container, values=values, planes=planes, xs=xs, ys=ys,
        OWN=own, **_wide("C", hidden.shape[1]), **_wide("F", scalars.shape[2]),
        **_wide("V", 1 if container is None else container.shape[1]), FOLD=fold, TILE=TILE,
    )  # fmt: skip
    return values


def summarize_maps(
    rest: Tensor, scalars: Tensor, container: Tensor, layers: list[Tensor]
) -> Tensor:
    """Carry out `agents.networks.fused.summarize_maps`."""
    rows, planes, places = rest.shape
    summary = container.new_empty(rows, planes, container.shape[1])
    fit_weight, weight, bias = layers
    _start(
        summary_kernel, rows * planes,
        rest=rest.contiguous(), scalars=scalars.contiguous(), container=container.contiguous(),
        fit_weight=fit_weight, weight=weight, bias=bias, summary=summary,
        planes=planes, places=places,
        **_wide("F", scalars.shape[2]), **_wide("V", container.shape[1]), ENTRIES=ENTRIES,
    )  # fmt: skip
    return summary


def _last(images: Tensor) -> Tensor:
    """Return images with their channels last in memory, as convolutions return them."""
    return images.contiguous(memory_format=torch.channels_last)


def _wide(name: str, size: int) -> dict[str, int]:
    """Return a compiled-in size, and the smallest power of 2 that is not less."""
    return {name: size, f"WIDE_{name}": triton.next_power_of_2(size)}


def _start(kernel: Any, programs: int, **arguments: Any) -> None:
    """Launch a kernel on the device of its tensors; arguments are given by the kernel's names."""
    tensor = next(value for value in arguments.values() if isinstance(value, Tensor))
    with torch.cuda.device_of(tensor):
        start(kernel, programs, (), {**WARPS, **arguments})
