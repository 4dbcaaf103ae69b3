"""Masked categorical draws and their log-probabilities.

One set of functions serves the rollout and the update, in float32 whatever the network computes
in, so that both give the same log-probability to the same action. Nothing reads a value back:
``multinomial`` is avoided, whose check of its weights is a read.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

MASKED = -1e9
"""Logit of illegal entries: their probability is 0, and no NaN arises where nothing is legal."""


def masked_log_softmax(
    logits: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]
) -> Float[Tensor, "*batch A"]:
    """Return log-probabilities over the legal entries, float32; about :data:`MASKED` elsewhere.

    A row with one legal entry gives it exactly 0, with no gradient; a row without any is uniform.
    """
    return torch.log_softmax(logits.float().masked_fill(~mask, MASKED), -1)


def draw(
    log_prob: Float[Tensor, "*batch A"],
    mask: Bool[Tensor, "*batch A"],
    uniform: Float[Tensor, "*batch"],
) -> Int[Tensor, "*batch"]:
    """Draw a legal index by inverse transform, from one uniform number in [0, 1) per row.

    The sums are float64; if a parallel sum still rounds past a legal entry, the first legal one is
    taken, so that an illegal draw cannot occur.
    """
    ends = log_prob.exp().cumsum(-1, dtype=torch.float64)
    place = uniform.double()[..., None] * ends[..., -1:]
    found = torch.searchsorted(ends, place, right=True).clamp(max=mask.shape[-1] - 1)
    first = mask.to(torch.uint8).argmax(-1, keepdim=True)
    return torch.where(mask.gather(-1, found), found, first).squeeze(-1)


def best(scores: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]) -> Tensor:
    """Return the legal index of the highest score."""
    return torch.where(mask, scores, -torch.inf).argmax(-1)


def at(values: Float[Tensor, "*batch A"], index: Int[Tensor, "*batch"]) -> Tensor:
    """Return the entry of each row at its index."""
    return values.gather(-1, index[..., None]).squeeze(-1)


def entropy(
    log_prob: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]
) -> Float[Tensor, "*batch"]:
    """Return the entropy over the legal entries, nats."""
    return -(log_prob.exp() * torch.where(mask, log_prob, 0.0)).sum(-1)


def normalised_entropy(
    log_prob: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]
) -> Float[Tensor, "*batch"]:
    """Return the entropy over that of the uniform choice, in [0, 1]; 0 where there is no choice.

    One coefficient then fits heads of any size, and rows with many or few legal entries.
    """
    return entropy(log_prob, mask) / mask.sum(-1).clamp(min=2).log()
