"""In ``next``, a row that is only truncated has its true mask; a terminated row's is all True."""

from typing import Any

import pytest
import torch
from tests.tiny import cuboid_env, maps_of, tiny_env

from packing_env.core.actions import MODES
from packing_env.envs import PackingEnv
from packing_env.tasks import LEAN

MASKED = sorted(set(MODES) - {"continuous"})


def env_of(make: Any, action_mode: str) -> PackingEnv:
    options = {"action_mode": action_mode, "num_visible": 2, "num_candidates": 300}
    return make(8, **options, num_items=3, max_steps=2, observation=LEAN)


def ended(env: PackingEnv) -> tuple[Any, torch.Tensor, torch.Tensor]:
    """Return the last ``next``, which rows are only truncated, and all placements' legality."""
    root = env.reset()
    for _ in range(2):
        step = env.step(env.rand_action(root))
        root = env.step_mdp(step)
    following = step["next"]
    alone = (following["truncated"] & ~following["terminated"]).squeeze(-1)
    assert following["truncated"].all()
    assert alone.any()
    return following, alone, maps_of(env).legal


@pytest.mark.parametrize("action_mode", MASKED)
@pytest.mark.parametrize("make", [tiny_env, cuboid_env])
def test_the_mask_of_a_truncated_row_is_the_rules(make: Any, action_mode: str) -> None:
    env = env_of(make, action_mode)
    following, alone, legal = ended(env)
    for key in env.mode.mask_keys:
        mask = following[key]
        assert mask.any(-1).all()
        assert not mask[alone].all()
        assert mask[following["terminated"].squeeze(-1)].all()
        if env.mode.mask_is_joint:
            assert torch.equal(mask[alone], legal.flatten(1)[alone])
        if action_mode == "hierarchical":
            assert torch.equal(mask[alone], legal.flatten(2).any(-1)[alone])
        if env.mode.lists:
            assert torch.equal(mask[alone], (env.state["candidate"] >= 0)[alone])


def test_a_stuck_row_is_terminated_whatever_its_count_of_steps() -> None:
    """So a row that is only truncated has a legal action."""
    env = tiny_env(64, num_items=12, max_steps=5, items={"grid": (5, 5)})
    played = env.rollout(60, break_when_any_done=False)["next"]
    both = (played["truncated"] & played["terminated"]).squeeze(-1)
    alone = (played["truncated"] & ~played["terminated"]).squeeze(-1)
    assert both.any()
    assert alone.any()
    assert played["action_mask"].any(-1).all()
