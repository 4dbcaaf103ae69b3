"""Your own reward term, checked, and mixed with those that are there.

python examples/05_own_reward.py
"""

import torch

import packing_env as pe
from packing_env.core import rewards
from packing_env.core.rewards import Metrics
from packing_env.testing import check_reward


def support(before: Metrics, after: Metrics, legal: torch.Tensor) -> torch.Tensor:
    """How much better the packed items are supported than before, on average.

    A term gets the metrics before and after the decision and whether the action was legal, `[B]`
    each, and returns `[B]`. It works on whole batches: no `if` on a tensor, no `.item()`.
    """
    gain = after["support_ratio"] - before["support_ratio"]
    return torch.where(legal, gain, 0.0)


def main(num_envs: int = 4, steps: int = 20, **overrides: object) -> float:
    check_reward(support)  # shapes, repeatability, rows independent, nothing read back
    rewards.TERMS["support"] = support  # now `reward={"support": ...}` works everywhere

    env = pe.make_env(
        "irregular",
        num_envs=num_envs,
        reward={"utilization": 1.0, "support": 0.1},
        **overrides,
    )
    rollout = env.rollout(steps, break_when_any_done=False)
    # each weighted term is logged; together they are the return
    done = rollout["next", "done"]
    for term in ("utilization", "support"):
        values = rollout["next", "metrics", f"reward/{term}"][done]
        print(f"reward/{term}: {values.mean():.4f} per episode")
    return float(rollout["next", "reward"].sum())


if __name__ == "__main__":
    main()
