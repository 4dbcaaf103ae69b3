"""Episodes that must not change: another digest means another environment version (`Packing-v2`).

A change for speed leaves them as they are. To record new ones on purpose:
`python tests/golden/test_golden.py`.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.tiny import tiny_env

from packing_env.core.random import choose_uniform, philox

RECORDED = Path(__file__).with_name("digests.json")
CASES: dict[str, dict[str, Any]] = {
    "online": {},
    "no_rule": {"stability": "none", "grid_step": 2},
    "buffer": {"num_visible": 3, "preview": 1, "num_items": 5},
    "largest_first": {"num_visible": 2, "item_order": "volume"},
    "candidates": {"action_mode": "candidate", "num_candidates": 12},
    "noop": {"illegal_action": "noop"},
    "project": {"illegal_action": "project"},
    "truncated": {"max_steps": 3},
}


def digest(case: str, steps: int = 25) -> str:
    """Return a SHA-256 of all exact values: actions, heights, rest heights, masks, flags, draws."""
    env = tiny_env(6, seed=7, **CASES[case])
    root, found = env.reset(), hashlib.sha256()
    rows = torch.arange(6)
    for step in range(steps):
        words = philox(torch.full_like(rows, 11), rows, torch.full_like(rows, step))
        action = choose_uniform(root["action_mask"], words[0].double() / 2**32)
        if step % 5 == 4 and "illegal_action" in CASES[case]:
            action = words[1] % env.mode.num_actions
        transition, root = env.step_and_maybe_reset(root.set("action", action))
        following = transition["next"]
        exact = (
            action,
            following["observation", "heightmap"],
            following["action_mask"],
            following["done"],
            following["terminated"],
            env.state["placement_z"],
            env.state["item_id"],
        )
        for value in exact:
            found.update(value.contiguous().numpy().tobytes())
    return found.hexdigest()


@pytest.mark.parametrize("case", sorted(CASES))
def test_episodes_are_those_recorded(case: str) -> None:
    assert digest(case) == json.loads(RECORDED.read_text())[case]


if __name__ == "__main__":
    RECORDED.write_text(json.dumps({case: digest(case) for case in sorted(CASES)}, indent=1) + "\n")
