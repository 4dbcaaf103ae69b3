"""Static equilibrium of piles of cuboids: by hand, its forces, and in episodes on maps."""

import random
from typing import Any

import numpy as np
import pytest
from tests.kernels.piles import put
from tests.tiny import cuboid_env, play_beside_reference

from packing_env.reference import boxes as reference
from packing_env.reference import equilibrium

BLOCK = (0, 0, 10, 10, 1)
PLANK = (BLOCK, (4, 0, 10, 2, 1))
"""The plank has mass 20 and its centre at 9; the block ends at 10."""
TIP = ((0, 0, 6, 2, 1), (0, 0, 9, 2, 1), (16, 0, 4, 2, 2))
PILLARS = ((0, 0, 2, 2, 4), (8, 0, 2, 2, 4))


@pytest.mark.parametrize(
    ("puts", "expected"),
    [
        (PLANK, True),
        ((BLOCK, (4, 0, 12, 2, 1)), False),  # a tie: the centre is over the edge
        ((*PLANK, (12, 0, 2, 2, 2)), False),  # (20 * 9 + 8 * 13) / 28 = 10.1
        ((*PLANK, (4, 0, 2, 2, 4), (12, 0, 2, 2, 2)), True),  # with a counterweight 8.3
        ((*PLANK, (12, 0, 1, 2, 3)), True),  # (20 * 9 + 6 * 12.5) / 26 = 9.8
        ((*PILLARS, (0, 0, 10, 2, 1)), True),
        ((*PILLARS, (0, 0, 10, 2, 1), (4, 0, 2, 2, 20)), True),
        ((*PILLARS, (0, 0, 16, 2, 1)), True),  # its centre at 8, at the edge of a pillar, 0 .. 10
        ((*PILLARS, (0, 0, 18, 2, 1), (17, 0, 1, 2, 9)), False),
        # one pillar is a plank over the edge of a block, and 43 % of the beam or more on its tip
        ((*TIP, (8, 0, 10, 2, 3)), False),
        ((*TIP, (8, 0, 10, 2, 1)), True),
        (((0, 0, 9, 2, 2), (16, 0, 4, 2, 2), (8, 0, 10, 2, 3)), True),
    ],
)
def test_piles_by_hand(puts: tuple[Any, ...], expected: bool) -> None:
    assert reference.holds("equilibrium", put(*puts)) == expected


def test_a_rule_of_one_box_does_not_see_what_falls_below() -> None:
    *below, top = put(*PLANK, (12, 0, 2, 2, 2))
    assert reference.is_stable("com_hull", below, top)
    assert not reference.is_stable("equilibrium", below, top)
    assert reference.is_stable("equilibrium", below, reference.drop(below, (0, 5), (2, 2, 2)))
    # a pile that falls anyway: nothing but the floor is stable
    assert not reference.is_stable("equilibrium", [*below, top], (0, 5, 1, 2, 7, 3))
    assert reference.is_stable("equilibrium", [*below, top], (20, 5, 0, 22, 7, 3))


def test_forces_push_inside_of_the_contacts_and_balance_the_load() -> None:
    rng, found = random.Random(0), 0
    for _ in range(400):
        contacts = []
        for _ in range(rng.randint(2, 6)):
            x, y = rng.randint(0, 12), rng.randint(0, 12)
            contacts.append((x, y, x + rng.randint(1, 3), y + rng.randint(1, 3)))
        mass = rng.uniform(1, 50)
        load = (mass, mass * rng.uniform(0, 14), mass * rng.uniform(0, 14))
        below = equilibrium.loads_below(load, contacts)
        if below is None:
            continue
        found += 1
        np.testing.assert_allclose(np.sum(below, 0), load, rtol=1e-9)
        for (part, moment_x, moment_y), (x0, y0, x1, y1) in zip(below, contacts, strict=True):
            assert part >= 0
            if part > 1e-9 * mass:
                assert x0 < moment_x / part < x1
                assert y0 < moment_y / part < y1
    assert 100 < found < 390


@pytest.mark.parametrize(
    "task",
    [
        {"stability": "equilibrium"},
        {"stability": "equilibrium", "stability_metric": "equilibrium", "num_visible": 2},
        {"stability": "none", "stability_metric": "equilibrium", "grid_step": 2},
        {"stability": "equilibrium", "action_mode": "candidate", "num_candidates": 9},
        {"stability": "equilibrium", "illegal_action": "noop", "candidate_range": "pct"},
    ],
)
def test_episodes_on_maps_equal_the_reference(task: dict[str, Any]) -> None:
    assert play_beside_reference(cuboid_env(4, seed=3, **task), 12) > 0


def test_a_task_on_maps_has_constraints_beside_it() -> None:
    """The first legal placements were computed from a state without boxes."""
    env = cuboid_env(2, stability="equilibrium", constraints={"wall_clearance": 1.0})
    assert env.rollout(3).shape[0] == 2
