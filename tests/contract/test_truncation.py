"""In ``next``, a row that is only truncated has its true mask; a terminated row's is all True."""

from typing import Any

import pytest
from tests.tiny import cuboid_env, play_beside_reference, tiny_env

from packing_env.core.actions import MODES
from packing_env.tasks import LEAN

MASKED = sorted(set(MODES) - {"continuous"})


@pytest.mark.parametrize("action_mode", MASKED)
@pytest.mark.parametrize("make", [tiny_env, cuboid_env])
def test_the_mask_of_a_truncated_row_is_the_rules(make: Any, action_mode: str) -> None:
    """The referee expects the reference's legality, and True in terminated rows alone."""
    options = {"action_mode": action_mode, "num_visible": 2, "num_candidates": 300}
    env = make(6, **options, num_items=3, max_steps=2, observation=LEAN)
    assert play_beside_reference(env, 6) > 12


def test_a_stuck_row_is_terminated_whatever_its_count_of_steps() -> None:
    """So a row that is only truncated has a legal action."""
    env = tiny_env(64, num_items=12, max_steps=5, items={"grid": (5, 5)})
    played = env.rollout(60, break_when_any_done=False)["next"]
    both = (played["truncated"] & played["terminated"]).squeeze(-1)
    alone = (played["truncated"] & ~played["terminated"]).squeeze(-1)
    assert both.any()
    assert alone.any()
    assert played["action_mask"].any(-1).all()
