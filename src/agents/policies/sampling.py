"""Masked categorical draws and their scores, and how an action splits into heads.

One set of functions serves the rollout and the update, in float32 whatever the network computes
in, so that both give the same log-probability to the same action. Nothing reads a value back: no
``multinomial``, whose check of its weights is a read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core.actions.heads import head_masks, next_head_mask
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError

MASKED = -1e9
"""Logit of what is illegal: its probability is 0, and no NaN arises where nothing is legal."""


def masked_log_softmax(
    logits: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]
) -> Float[Tensor, "*batch A"]:
    """Log-probabilities over the legal entries, float32; about :data:`MASKED` elsewhere.

    A row with one legal entry gives it exactly 0, with no gradient; a row without any is uniform.
    """
    return torch.log_softmax(logits.float().masked_fill(~mask, MASKED), -1)


def draw(
    log_prob: Float[Tensor, "*batch A"],
    mask: Bool[Tensor, "*batch A"],
    uniform: Float[Tensor, "*batch"],
) -> Int[Tensor, "*batch"]:
    """A legal index by inverse transform, from one uniform number in [0, 1) per row.

    The sums are float64; should a parallel sum still round past a legal entry, the first legal one
    is taken, so that an illegal draw cannot occur.
    """
    ends = log_prob.exp().cumsum(-1, dtype=torch.float64)
    place = uniform.double()[..., None] * ends[..., -1:]
    found = torch.searchsorted(ends, place, right=True).clamp(max=mask.shape[-1] - 1)
    first = mask.to(torch.uint8).argmax(-1, keepdim=True)
    return torch.where(mask.gather(-1, found), found, first).squeeze(-1)


def best(scores: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]) -> Tensor:
    """The legal index of the highest score."""
    return torch.where(mask, scores, -torch.inf).argmax(-1)


def at(values: Float[Tensor, "*batch A"], index: Int[Tensor, "*batch"]) -> Tensor:
    """The entry of each row at its index."""
    return values.gather(-1, index[..., None]).squeeze(-1)


def entropy(
    log_prob: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]
) -> Float[Tensor, "*batch"]:
    """Entropy over the legal entries, nats."""
    return -(log_prob.exp() * torch.where(mask, log_prob, 0.0)).sum(-1)


def normalised_entropy(
    log_prob: Float[Tensor, "*batch A"], mask: Bool[Tensor, "*batch A"]
) -> Float[Tensor, "*batch"]:
    """Entropy over that of the uniform choice, in [0, 1]; 0 where there is no choice.

    One coefficient then fits heads of any size, and rows with many or few legal entries.
    """
    return entropy(log_prob, mask) / mask.sum(-1).clamp(min=2).log()


class Heads(ABC):
    """How an action splits into choices made one after the other.

    Attributes:
        sizes: Options of each head.
    """

    sizes: tuple[int, ...]

    @abstractmethod
    def next_mask(self, mask: Bool[Tensor, "B A"], chosen: Int[Tensor, "B h"]) -> Tensor:
        """``[B, sizes[h]]``: what the next head may choose after ``chosen``."""

    @abstractmethod
    def masks(self, mask: Bool[Tensor, "B A"], heads: Int[Tensor, "B H"]) -> tuple[Tensor, ...]:
        """What each head might have chosen after those before it in ``heads``."""

    @abstractmethod
    def split(self, action: Tensor) -> Int[Tensor, "B H"]:
        """The choices that an action consists of."""

    @abstractmethod
    def join(self, heads: Int[Tensor, "B H"]) -> Tensor:
        """The action of these choices; inverse of :meth:`split`."""


class SingleHead(Heads):
    """One index under one mask (``placement``, ``candidate``).

    Args:
        num_actions: ``A``.
    """

    def __init__(self, num_actions: int) -> None:
        self.sizes = (num_actions,)

    def next_mask(self, mask: Tensor, chosen: Tensor) -> Tensor:
        """The mask."""
        return mask

    def masks(self, mask: Tensor, heads: Tensor) -> tuple[Tensor, ...]:
        """The mask."""
        return (mask,)

    def split(self, action: Tensor) -> Tensor:
        """``[B]`` to ``[B, 1]``."""
        return action[:, None]

    def join(self, heads: Tensor) -> Tensor:
        """``[B, 1]`` to ``[B]``."""
        return heads[:, 0]


class PlacementHeads(Heads):
    """Item, orientation, x and y (``multi_head``), each masked by what is still legal.

    Args:
        sizes: ``(L, R, Xs, Ys)``.
    """

    def __init__(self, sizes: tuple[int, int, int, int]) -> None:
        self.sizes = sizes

    def next_mask(self, mask: Tensor, chosen: Tensor) -> Tensor:
        """Options of the next head that some legal placement completes."""
        return next_head_mask(mask.view(-1, *self.sizes), chosen)

    def masks(self, mask: Tensor, heads: Tensor) -> tuple[Tensor, ...]:
        """The same for all heads at once."""
        return head_masks(mask.view(-1, *self.sizes), heads)

    def split(self, action: Tensor) -> Tensor:
        """An action is its choices."""
        return action

    def join(self, heads: Tensor) -> Tensor:
        """An action is its choices."""
        return heads


def action_heads(env: PackingEnv) -> Heads:
    """The heads of an environment's action mode."""
    mode = env.params.action_mode
    if mode == "multi_head":
        return PlacementHeads(env.mode.shape)
    if mode in ("placement", "candidate"):
        return SingleHead(env.mode.num_actions)
    raise ParameterError(
        f"action_mode={mode!r} has no heads of indices; use placement, candidate or multi_head"
    )
