"""The draw of `agents.policies.sampling` on CUDA devices, in Triton: a program per row."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from packing_env.kernels.compiled.scene_triton import part, start

MOST_ENTRIES = 1024
"""Number of entries of a row that a program reads at once."""
WARPS = {"num_warps": 4}


@part
def legal_logits(logits, mask, k, size, MASKED: tl.constexpr):
    """Return some logits, `MASKED` where they are illegal, and -inf beyond the row."""
    on = k < size
    value = tl.load(logits + k, mask=on, other=0.0).to(tl.float32)
    value = tl.where(tl.load(mask + k, mask=on, other=0) != 0, value, MASKED)
    return tl.where(on, value, -float("inf"))


@triton.jit(do_not_specialize=["size"])
def draw_kernel(
    logits, mask, uniform, chosen, log_prob, size, MASKED: tl.constexpr, ENTRIES: tl.constexpr
):
    """Draw an entry of one row by inverse transform; after rounding errors, the first legal one."""
    row = tl.program_id(0).to(tl.int64)
    logits, mask, lanes = logits + row * size, mask + row * size, tl.arange(0, ENTRIES)
    most = tl.full([ENTRIES], -float("inf"), tl.float32)
    first = tl.full([ENTRIES], 2147483647, tl.int32)
    for block in range(0, size, ENTRIES):
        k = block + lanes
        most = tl.maximum(most, legal_logits(logits, mask, k, size, MASKED))
        legal = tl.load(mask + k, mask=k < size, other=0) != 0
        first = tl.minimum(first, tl.where(legal, k, first))
    high = tl.max(most, axis=0)
    sums = tl.zeros([ENTRIES], tl.float32)
    for block in range(0, size, ENTRIES):
        sums += tl.exp(legal_logits(logits, mask, block + lanes, size, MASKED) - high)
    scale = tl.log(tl.sum(sums, axis=0))
    ends = tl.zeros([ENTRIES], tl.float64)
    for block in range(0, size, ENTRIES):
        value = legal_logits(logits, mask, block + lanes, size, MASKED)
        ends += tl.exp(value - high - scale).to(tl.float64)
    place = tl.load(uniform + row).to(tl.float64) * tl.sum(ends, axis=0)
    before, passed = place * 0.0, tl.zeros([ENTRIES], tl.int32)
    for block in range(0, size, ENTRIES):
        k = block + lanes
        share = tl.exp(legal_logits(logits, mask, k, size, MASKED) - high - scale).to(tl.float64)
        passed += ((before + tl.cumsum(share, axis=0) <= place) & (k < size)).to(tl.int32)
        before += tl.sum(share, axis=0)
    found = tl.minimum(tl.sum(passed, axis=0), size - 1)
    lowest = tl.min(first, axis=0)
    lowest = tl.where(lowest < size, lowest, 0)
    found = tl.where(tl.load(mask + found) != 0, found, lowest)
    value = tl.load(logits + found).to(tl.float32)
    value = tl.where(tl.load(mask + found) != 0, value, MASKED)
    tl.store(chosen + row, found.to(tl.int64))
    tl.store(log_prob + row, value - high - scale)


def draw_by_logits(
    logits: Tensor, mask: Tensor, uniform: Tensor, masked: float
) -> tuple[Tensor, Tensor]:
    """Carry out `agents.policies.sampling.draw_by_logits`; ``masked`` is the illegal logit."""
    chosen = mask.new_empty(mask.shape[:-1], dtype=torch.int64)
    log_prob = mask.new_empty(mask.shape[:-1], dtype=torch.float32)
    size = mask.shape[-1]
    given = (logits.contiguous(), mask.contiguous(), uniform.contiguous(), chosen, log_prob, size)
    entries = min(MOST_ENTRIES, triton.next_power_of_2(size))
    with torch.cuda.device_of(mask):
        start(draw_kernel, chosen.numel(), given, {**WARPS, "MASKED": masked, "ENTRIES": entries})
    return chosen, log_prob
