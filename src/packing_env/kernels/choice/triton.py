"""The operations of `packing_env.kernels.choice` on CUDA devices, in Triton: a warp per row."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels.compiled.scene_triton import part, start

MOST_ENTRIES = 1024
"""Number of entries of a row that a program reads at once."""


@part
def entry_of_rank(line, place, num_entries, ENTRIES: tl.constexpr):
    """Return the True entry of rank ``floor(place * count)`` of a row; 0 if there is none."""
    total = tl.zeros([ENTRIES], tl.int32)
    for first in range(0, num_entries, ENTRIES):
        k = first + tl.arange(0, ENTRIES)
        total += tl.load(line + k, mask=k < num_entries, other=0).to(tl.int32)
    count = tl.sum(total, axis=0)
    rank = (place.to(tl.float64) * count.to(tl.float64)).to(tl.int64)
    rank = tl.minimum(rank, count.to(tl.int64) - 1).to(tl.int32)
    before, passed = count * 0, tl.zeros([ENTRIES], tl.int32)
    for first in range(0, num_entries, ENTRIES):
        k = first + tl.arange(0, ENTRIES)
        here = tl.load(line + k, mask=k < num_entries, other=0).to(tl.int32)
        passed += (before + tl.cumsum(here, axis=0) <= rank).to(tl.int32)
        before += tl.sum(here, axis=0)
    return tl.sum(passed, axis=0)


@part
def best_entry(values, line, num_entries, ENTRIES: tl.constexpr):
    """Return the first True entry of the highest value (NaN is the highest); 0 if none is True."""
    lanes = tl.arange(0, ENTRIES)
    best = tl.full([ENTRIES], -float("inf"), tl.float32)
    place = lanes
    for first in range(0, num_entries, ENTRIES):
        k = first + lanes
        offered = tl.load(line + k, mask=k < num_entries, other=0) != 0
        value = tl.load(values + k, mask=k < num_entries, other=0.0)
        value = tl.where(value != value, float("inf"), value)
        value = tl.where(offered, value, -float("inf"))
        place = tl.where(value > best, k, place)
        best = tl.maximum(best, value)
    return tl.min(tl.where(best == tl.max(best, axis=0), place, num_entries), axis=0)


@triton.jit(do_not_specialize=["num_entries"])
def choose_kernel(mask, uniform, chosen, num_entries, ENTRIES: tl.constexpr):
    """Choose a random entry of one row."""
    row = tl.program_id(0).to(tl.int64)
    index = entry_of_rank(mask + row * num_entries, tl.load(uniform + row), num_entries, ENTRIES)
    tl.store(chosen + row, index.to(tl.int64))


@triton.jit(do_not_specialize=["num_entries"])
def explore_kernel(
    value,
    mask,
    draw,
    place,
    epsilon,
    chosen,
    num_entries,
    PER_ROW: tl.constexpr,
    ENTRIES: tl.constexpr,
):
    """Choose an entry of one row: the best one or, with some probability, a random one."""
    row = tl.program_id(0).to(tl.int64)
    line = mask + row * num_entries
    rate = tl.load(epsilon + row) if PER_ROW else tl.load(epsilon)
    if tl.load(draw + row) < rate:
        index = entry_of_rank(line, tl.load(place + row), num_entries, ENTRIES)
    else:
        index = best_entry(value + row * num_entries, line, num_entries, ENTRIES)
    tl.store(chosen + row, index.to(tl.int64))


def choose_uniform(mask: Tensor, uniform: Tensor) -> Tensor:
    """Carry out `packing_env.kernels.choose_uniform`."""
    chosen = mask.new_empty(mask.shape[:-1], dtype=torch.int64)
    arguments = (mask.contiguous(), uniform.contiguous(), chosen, mask.shape[-1])
    with torch.cuda.device_of(mask):
        start(choose_kernel, chosen.numel(), arguments, _constants(mask))
    return chosen


def choose_epsilon_greedy(
    value: Tensor, mask: Tensor, draw: Tensor, place: Tensor, epsilon: Tensor
) -> Tensor:
    """Carry out `packing_env.kernels.choose_epsilon_greedy`."""
    chosen = mask.new_empty(mask.shape[:-1], dtype=torch.int64)
    if per_row := epsilon.numel() > 1:
        epsilon = epsilon.expand(draw.shape)
    entries = (value, mask, draw, place, epsilon)
    arguments = (*(entry.contiguous() for entry in entries), chosen, mask.shape[-1])
    constants = {**_constants(mask), "PER_ROW": per_row}
    with torch.cuda.device_of(mask):
        start(explore_kernel, chosen.numel(), arguments, constants)
    return chosen


def _constants(mask: Tensor) -> dict[str, Any]:
    return {"ENTRIES": min(MOST_ENTRIES, triton.next_power_of_2(mask.shape[-1]))}
