"""The specification of the rewards: weighted terms of the metrics before and after a decision."""

from __future__ import annotations


def objective(metrics: dict[str, float]) -> float:
    """Compute ``J = 0.75 C + 0.25 P + 0.25 S``. Huang et al., RA-L 2023, section III."""
    return (
        0.75 * metrics["compactness"] + 0.25 * metrics["pyramidality"] + 0.25 * metrics["stability"]
    )


def reward(
    weights: dict[str, float], before: dict[str, float], after: dict[str, float], legal: bool
) -> float:
    """Return the weighted sum of the reward terms of one decision.

    Args:
        weights: Weight per term. The terms are ``objective`` (gain of J), ``utilization`` (gain of
            U), ``item`` (1 per packed item), ``height`` (minus the growth of the height ratio)
            and ``illegal`` (-1 for an illegal action).
        before: Metrics before the decision.
        after: Metrics after it.
        legal: False if the action was illegal.
    """
    terms = {
        "objective": objective(after) - objective(before),
        "utilization": after["utilization"] - before["utilization"],
        "item": after["items_packed"] - before["items_packed"],
        "height": before["height_ratio"] - after["height_ratio"],
        "illegal": 0.0 if legal else -1.0,
    }
    return sum(weight * terms[name] for name, weight in weights.items())
