"""Quantities that losses take from a batch of transitions: targets, valued actions, means."""

from __future__ import annotations

from jaxtyping import Float
from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

LEARN_FROM = {"executed": "executed_action", "asked": "action"}
"""Key of the action that a critic values, by the name of the option ``learn_from``."""


def check_learn_from(name: str) -> str:
    """Return a name of :data:`LEARN_FROM`, or raise ``ValueError``."""
    if name not in LEARN_FROM:
        raise ValueError(f"learn_from={name!r} is unknown; choose one of {', '.join(LEARN_FROM)}")
    return name


def with_valued_action(batch: TensorDictBase, learn_from: str) -> TensorDictBase:
    """Return the transitions with the action that the critic values under ``action``."""
    return batch.copy().set("action", batch.get(LEARN_FROM[learn_from]))


def n_step_target(
    batch: TensorDictBase, future: Float[Tensor, " B"], gamma: float
) -> Float[Tensor, " B"]:
    """Return ``r + gamma^m * future``, and ``r`` alone where the episode terminated.

    Args:
        batch: Holds ``steps_to_next_obs`` (m), and in ``next`` ``terminated`` and ``reward``, the
            discounted sum r.
        future: Value of the state reached after m decisions.
        gamma: Discount per decision.
    """
    following = batch.get("next")
    discount = gamma ** batch.get("steps_to_next_obs").squeeze(-1).float()
    alive = (~following.get("terminated").squeeze(-1)).float()
    return following.get("reward").squeeze(-1) + discount * alive * future


def mean_loss(losses: Float[Tensor, " B"], weight: Tensor | None = None) -> Float[Tensor, ""]:
    """Return the mean of the losses, weighted by the importance weights of a prioritized sample."""
    return losses.mean() if weight is None else (losses * weight).mean()


def under_next(key: NestedKey) -> NestedKey:
    """Return the key of an entry's successor."""
    return ("next", *key) if isinstance(key, tuple) else ("next", key)
