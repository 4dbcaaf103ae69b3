"""Your own reward term, checked and combined with the built-in ones.

python examples/05_own_reward.py
"""

import torch

import packing_env as pe
from packing_env.core import rewards
from packing_env.core.rewards import Metrics
from packing_env.testing import check_reward


def support(before: Metrics, after: Metrics, legal: torch.Tensor) -> torch.Tensor:
    """Return the increase of the average support of the packed items.

    A term takes the metrics before and after the decision and the legality of the action, `[B]`
    each, and returns `[B]`. It works on whole batches: no `if` on a tensor, no `.item()`.
    """
    gain = after["support_ratio"] - before["support_ratio"]
    return torch.where(legal, gain, 0.0)


def main(num_envs: int = 4, steps: int = 20, **overrides: object) -> float:
    check_reward(support)  # shapes, determinism, independent rows, no host read
    rewards.TERMS["support"] = support  # makes `reward={"support": ...}` available everywhere

    env = pe.make_env(
        "irregular",
        num_envs=num_envs,
        reward={"utilization": 1.0, "support": 0.1},
        **overrides,
    )
    rollout = env.rollout(steps, break_when_any_done=False)
    # each weighted term is logged; their sum is the return
    done = rollout["next", "done"]
    for term in ("utilization", "support"):
        values = rollout["next", "metrics", f"reward/{term}"][done]
        print(f"reward/{term}: {values.mean():.4f} per episode")
    return float(rollout["next", "reward"].sum())


if __name__ == "__main__":
    main()
