"""Reward terms: functions of the metrics before and after one decision.

A task's reward is a weighted sum of terms. To add a term, write a function and put it in
:data:`TERMS`; ``reward={"mine": 0.5}`` then works everywhere, and the weighted term is logged as
``reward/mine``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from packing_env.types import ParameterError
from packing_env.values import check_choice

Metrics = Mapping[str, Tensor]
Term = Callable[[Metrics, Metrics, Tensor], Tensor]


def objective(metrics: Metrics) -> Float[Tensor, " B"]:
    """Compute ``J = 0.75 C + 0.25 P + 0.25 S``, 0 if empty (Huang et al., RA-L 2023, III)."""
    return (
        0.75 * metrics["compactness"] + 0.25 * metrics["pyramidality"] + 0.25 * metrics["stability"]
    )


TERMS: dict[str, Term] = {
    "objective": lambda before, after, legal: objective(after) - objective(before),
    "utilization": lambda before, after, legal: after["utilization"] - before["utilization"],
    "item": lambda before, after, legal: after["items_packed"] - before["items_packed"],
    "height": lambda before, after, legal: before["height_ratio"] - after["height_ratio"],
    "illegal": lambda before, after, legal: legal.double() - 1.0,
}


RETURNS: dict[str, tuple[float, float]] = {
    "objective": (-1.25, 1.25),
    "utilization": (0.0, 1.0),
    "height": (-1.0, 0.0),
    "illegal": (-1.0, 0.0),
}
"""Smallest and largest sum of each term over the rest of an episode, if illegal actions end it.
The largest sum of ``item`` is the number of items.
"""


def return_bounds(weights: Mapping[str, float], num_items: int) -> tuple[float, float]:
    """Return the smallest and the largest possible return of weighted terms from any state.

    Raises:
        ParameterError: The bounds of a term are not known.
    """
    known = RETURNS | {"item": (0.0, float(num_items))}
    if unknown := sorted(set(weights) - set(known)):
        raise ParameterError(
            f"the returns of reward {unknown} have no known bounds; set v_min and v_max"
        )
    # A negative weight swaps the bounds of a term.
    ends = [(weight * known[term][0], weight * known[term][1]) for term, weight in weights.items()]
    return sum(min(pair) for pair in ends), sum(max(pair) for pair in ends)


def check_weights(weights: Mapping[str, float]) -> None:
    """Raise if a term is unknown or if there are no terms."""
    for name in weights:
        check_choice("reward", name, TERMS)
    if not weights:
        raise ParameterError(f"reward has no terms; choose some of {sorted(TERMS)}")


def weighted_terms(
    weights: Mapping[str, float], before: Metrics, after: Metrics, legal: Bool[Tensor, " B"]
) -> Float[Tensor, "B terms"]:
    """Return each term times its weight, float64, in the order of ``weights``.

    Raises:
        ParameterError: A term does not return one number per row.
    """
    values = {name: TERMS[name](before, after, legal) for name in weights}
    for name, value in values.items():
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if shape != tuple(legal.shape):
            raise ParameterError(
                f"reward term {name!r} must return a tensor of one number per row, "
                f"{tuple(legal.shape)}, not {shape}; packing_env.testing.check_reward checks a term"
            )
    return torch.stack([weights[name] * value for name, value in values.items()], dim=-1)
