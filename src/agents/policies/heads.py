"""Heads: the choices, made in turn, that an action splits into."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core.actions.heads import head_masks, next_head_mask
from packing_env.envs import PackingEnv
from packing_env.types import ParameterError


class Heads(ABC):
    """Split of an action into choices made one after the other.

    Attributes:
        sizes: Number of options of each head.
    """

    sizes: tuple[int, ...]

    @abstractmethod
    def next_mask(self, mask: Bool[Tensor, "B A"], chosen: Int[Tensor, "B h"]) -> Tensor:
        """Return the options that the next head has after ``chosen``, ``[B, sizes[h]]``."""

    @abstractmethod
    def masks(self, mask: Bool[Tensor, "B A"], heads: Int[Tensor, "B H"]) -> tuple[Tensor, ...]:
        """Return the options that each head had after those before it in ``heads``."""

    @abstractmethod
    def split(self, action: Tensor) -> Int[Tensor, "B H"]:
        """Return the choices that an action consists of."""

    @abstractmethod
    def join(self, heads: Int[Tensor, "B H"]) -> Tensor:
        """Return the action of these choices; inverse of :meth:`split`."""


class SingleHead(Heads):
    """One index under one mask (``placement``, ``candidate``).

    Args:
        num_actions: ``A``.
    """

    def __init__(self, num_actions: int) -> None:
        self.sizes = (num_actions,)

    def next_mask(self, mask: Tensor, chosen: Tensor) -> Tensor:
        """Return the mask itself."""
        return mask

    def masks(self, mask: Tensor, heads: Tensor) -> tuple[Tensor, ...]:
        """Return the mask of the only head."""
        return (mask,)

    def split(self, action: Tensor) -> Tensor:
        """Add the axis of heads, ``[B]`` to ``[B, 1]``."""
        return action[:, None]

    def join(self, heads: Tensor) -> Tensor:
        """Remove the axis of heads, ``[B, 1]`` to ``[B]``."""
        return heads[:, 0]


class PlacementHeads(Heads):
    """Item, orientation, x and y (``multi_head``), each masked by what is still legal.

    Args:
        sizes: ``(L, R, Xs, Ys)``.
    """

    def __init__(self, sizes: tuple[int, int, int, int]) -> None:
        self.sizes = sizes

    def next_mask(self, mask: Tensor, chosen: Tensor) -> Tensor:
        """Return the options of the next head that some legal placement completes."""
        return next_head_mask(mask.view(-1, *self.sizes), chosen)

    def masks(self, mask: Tensor, heads: Tensor) -> tuple[Tensor, ...]:
        """Return these options for all heads at once."""
        return head_masks(mask.view(-1, *self.sizes), heads)

    def split(self, action: Tensor) -> Tensor:
        """Return the action: it is its choices."""
        return action

    def join(self, heads: Tensor) -> Tensor:
        """Return the choices: they are the action."""
        return heads


def action_heads(env: PackingEnv) -> Heads:
    """Return the heads of an environment's action mode."""
    mode = env.params.action_mode
    if mode == "multi_head":
        return PlacementHeads(env.mode.shape)
    if mode in ("placement", "candidate"):
        return SingleHead(env.mode.num_actions)
    raise ParameterError(
        f"action_mode={mode!r} has no heads of indices; use placement, candidate or multi_head"
    )
