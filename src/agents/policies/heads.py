"""Heads: an action is split into choices that are made one after another."""

from __future__ import annotations

from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core.actions import CandidateMode, MultiHeadMode, PlacementMode
from packing_env.core.actions.heads import next_head_mask
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError


class Heads:
    """Split of an action into choices that are made one after another.

    An action that is one index under one mask (``placement``, ``candidate``) has one head. Item,
    orientation, x and y (``multi_head``) are four heads; an option of a head is legal if some legal
    placement begins with it.

    Args:
        sizes: Number of options of each head; ``(L, R, Xs, Ys)`` for four heads.
    """

    def __init__(self, sizes: tuple[int, ...]) -> None:
        self.sizes = sizes

    def next_mask(self, mask: Bool[Tensor, "B A"], chosen: Int[Tensor, "B h"]) -> Tensor:
        """Return the legal options of the next head, given ``chosen``, ``[B, sizes[h]]``."""
        if len(self.sizes) == 1:
            return mask
        return next_head_mask(mask.view(-1, *self.sizes), chosen)

    def split(self, action: Tensor) -> Int[Tensor, "B H"]:
        """Return the choices of an action, one per head."""
        return action[:, None] if len(self.sizes) == 1 else action

    def join(self, heads: Int[Tensor, "B H"]) -> Tensor:
        """Return the action of these choices; inverse of :meth:`split`."""
        return heads[:, 0] if len(self.sizes) == 1 else heads


def action_heads(env: PackingEnv) -> Heads:
    """Return the heads of an environment's action mode."""
    mode = env.mode
    if isinstance(mode, MultiHeadMode):
        return Heads(mode.shape)
    if isinstance(mode, (PlacementMode, CandidateMode)):
        return Heads((mode.num_actions,))
    raise ParameterError(
        f"action_mode={env.params.action_mode!r} has no heads of indices; use placement, candidate "
        f"or multi_head"
    )
