"""Heads: the choices, made in turn, that an action splits into."""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core.actions import CandidateMode, MultiHeadMode, PlacementMode
from packing_env.core.actions.heads import head_masks, next_head_mask
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError


class Heads:
    """Split of an action into choices made one after the other.

    By itself one index under one mask (``placement``, ``candidate``).

    Args:
        sizes: Number of options of each head.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes

    def next_mask(self, mask: Bool[Tensor, "B A"], chosen: Int[Tensor, "B h"]) -> Tensor:
        """Return the options that the next head has after ``chosen``, ``[B, sizes[h]]``."""
        return mask

    def masks(self, mask: Bool[Tensor, "B A"], heads: Int[Tensor, "B H"]) -> tuple[Tensor, ...]:
        """Return the options that each head had after those before it in ``heads``."""
        return (mask,)

    def split(self, action: Tensor) -> Int[Tensor, "B H"]:
        """Return the choices that an action consists of."""
        return action[:, None]

    def join(self, heads: Int[Tensor, "B H"]) -> Tensor:
        """Return the action of these choices; inverse of :meth:`split`."""
        return heads[:, 0]


class PlacementHeads(Heads):
    """Item, orientation, x and y (``multi_head``), of ``sizes`` ``(L, R, Xs, Ys)``.

    Each is masked by what is still legal: the options that some legal placement completes. An
    action is its choices.
    """

    def next_mask(self, mask: Tensor, chosen: Tensor) -> Tensor:
        """Return the options of the next head."""
        return next_head_mask(mask.view(-1, *self.sizes), chosen)

    def masks(self, mask: Tensor, heads: Tensor) -> tuple[Tensor, ...]:
        """Return the options of all heads at once."""
        return head_masks(mask.view(-1, *self.sizes), heads)

    def split(self, action: Tensor) -> Tensor:
        """Return the action."""
        return action

    def join(self, heads: Tensor) -> Tensor:
        """Return the choices."""
        return heads


def action_heads(env: PackingEnv) -> Heads:
    """Return the heads of an environment's action mode."""
    mode = env.mode
    if isinstance(mode, MultiHeadMode):
        return PlacementHeads(mode.shape)
    if isinstance(mode, (PlacementMode, CandidateMode)):
        return Heads((mode.num_actions,))
    raise ParameterError(
        f"action_mode={env.params.action_mode!r} has no heads of indices; use placement, candidate "
        f"or multi_head"
    )
