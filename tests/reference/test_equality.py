"""Random legal episodes on irregular items equal the reference program."""

import pytest
from tests.tiny import play_beside_reference, tiny_env

from packing_env.testing import KNOWN_RULES

FULL = [
    # grid, orientations, window, height, task
    ((6, 5), 3, 3, 0.06, {"grid_step": 1, "stability": "com_hull"}),
    ((7, 9), 2, 4, 0.08, {"grid_step": 2, "stability": "none"}),
    ((8, 6), 4, 5, 0.07, {"grid_step": 3, "stability": "com_hull", "num_visible": 2}),
    ((10, 10), 3, 4, 0.06, {"grid_step": 2, "stability": "com_hull", "num_visible": 3}),
    ((5, 8), 6, 3, 0.09, {"grid_step": 1, "stability": "none", "num_visible": 2, "preview": 1}),
    ((6, 6), 2, 3, 0.05, {"grid_step": 1, "stability": "com_hull", "contact_tol": 0.0}),
    ((9, 7), 3, 4, 0.08, {"grid_step": 2, "stability": "com_hull", "action_mode": "candidate"}),
    ((20, 20), 6, 6, 0.05, {"grid_step": 1, "stability": "com_hull"}),
    ((7, 7), 3, 4, 0.08, {"stability": "center_hull", "stability_metric": "area_corners_code"}),
    ((8, 7), 3, 4, 0.08, {"grid_step": 2, "stability": "area_corners", "num_visible": 2}),
    ((7, 8), 4, 3, 0.08, {"stability": "area_corners_code", "contact_tol": 0.005}),
    ((8, 9), 4, 4, 0.06, {"stability": "center_hull", "candidate_range": "pct", "grid_step": 2}),
]
LARGEST = 7
REWARD = {"utilization": 1.0, "objective": 0.5, "item": 0.1, "height": 0.2, "illegal": 0.3}


@pytest.mark.parametrize("case", range(len(FULL)))
def test_whole_masks(case: int) -> None:
    """20 steps per case, 8 on the largest: heights, rest heights, masks, done, reward, metrics.

    Other backends give the same bits (`core/test_compiled_step.py`, benchmarks/fuzz_engines.py).
    """
    grid, orientations, window, height, task = FULL[case]
    items = {"grid": grid, "num_orientations": orientations, "window": window, "height": height}
    num_envs, num_steps = (1, 8) if case == LARGEST else (2, 10)
    env = tiny_env(num_envs, seed=case, items={"seed": case, **items}, reward=REWARD, **task)
    assert play_beside_reference(env, num_steps, None, seed=case) > 0


@pytest.mark.parametrize("stability", KNOWN_RULES)
def test_chosen_placements_and_sampled_masks(stability: str) -> None:
    """45 steps with one, two or three visible items; benchmarks/fuzz_reference.py plays more."""
    case = KNOWN_RULES.index(stability) % 3
    env = tiny_env(
        3,
        seed=case,
        items={"seed": 10 + case, "grid": (8 + case, 8), "height": 0.08},
        reward=REWARD,
        stability=stability,
        num_visible=case + 1,
        grid_step=1 + case % 2,
    )
    assert play_beside_reference(env, 15, 64, seed=case) > 2


@pytest.mark.parametrize("action_mode", ["placement", "candidate"])
@pytest.mark.parametrize("illegal_action", ["terminate", "noop", "project"])
def test_illegal_actions(action_mode: str, illegal_action: str) -> None:
    """A third of the actions are drawn from the whole range, out of range included."""
    env = tiny_env(
        3,
        action_mode=action_mode,
        illegal_action=illegal_action,
        num_visible=2,
        num_candidates=12,
        reward=REWARD,
        items={"grid": (6, 5), "height": 0.06},
    )
    assert play_beside_reference(env, 15, seed=1, illegal_share=0.33) > 3


def test_largest_first() -> None:
    """``item_order="volume"`` offers the items by bounding box, the largest first."""
    env = tiny_env(4, num_visible=3, item_order="volume", items={"seed": 3})
    box = env.catalogue.tensors()["extent"].prod(-1)[env.instances.item_id]
    assert bool((box.diff(dim=1) <= 0).all())
    assert play_beside_reference(env, 10, 64) > 0
