"""Masked categorical draws and their log-probabilities.

Rollout and update share these functions in float32, so both compute the same log-probability of an
action. Nothing is copied to the host, whereas ``multinomial`` would copy its weights.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.types import ParameterError

MASKED = -1e9
"""Logit of illegal entries: their probability is 0, and a row without legal entries gives no NaN.
"""


def check_scores(network: Any, scores: Tensor, mask: Tensor) -> None:
    """Raise a ParameterError unless a network gives one score per action."""
    if scores.shape != mask.shape:
        raise ParameterError(
            f"network {type(network).__name__} gives scores of shape {list(scores.shape)}, but the "
            f"mask of the actions has shape {list(mask.shape)}; it must give one score per action"
        )


def masked_log_softmax(
    logits: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]
) -> Float[Tensor, "*batch A"]:
    """Return log-probabilities over the legal entries, float32; about :data:`MASKED` elsewhere.

    In a row with one legal entry, this entry gets exactly 0, with no gradient. A row without legal
    entries is uniform.
    """
    return torch.log_softmax(logits.float().masked_fill(~mask, MASKED), -1)


def draw(
    log_prob: Float[Tensor, "*batch A"],
    mask: Bool[Tensor, "*batch A"],
    uniform: Float[Tensor, "*batch"],
) -> Int[Tensor, "*batch"]:
    """Draw a legal index by inverse transform, from one uniform number in [0, 1) per row.

    Sums are float64. If rounding in a parallel sum still selects an illegal entry, the first legal
    entry is taken.
    """
    ends = log_prob.exp().cumsum(-1, dtype=torch.float64)
    place = uniform.double()[..., None] * ends[..., -1:]
    index = torch.searchsorted(ends, place, right=True).clamp(max=mask.shape[-1] - 1)
    first = mask.to(torch.uint8).argmax(-1, keepdim=True)
    return torch.where(mask.gather(-1, index), index, first).squeeze(-1)


def best(scores: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]) -> Tensor:
    """Return the legal index of the highest score."""
    return torch.where(mask, scores, -torch.inf).argmax(-1)


def at(values: Float[Tensor, "*batch A"], index: Int[Tensor, "*batch"]) -> Tensor:
    """Return the entry of each row at its index."""
    return values.gather(-1, index[..., None]).squeeze(-1)


def normalised_entropy(
    log_prob: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]
) -> Float[Tensor, "*batch"]:
    """Return the entropy over the legal entries divided by that of a uniform choice.

    The result is in [0, 1], so one coefficient suits heads of any size, and rows with many or few
    legal entries. It is 0 if there is no choice.
    """
    entropy = -(log_prob.exp() * torch.where(mask, log_prob, 0.0)).sum(-1)
    return entropy / mask.sum(-1).clamp(min=2).log()
