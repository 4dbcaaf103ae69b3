"""The preference for placements that are surest to stand, as a rule of the task."""

from typing import Any

import pytest
import torch
from tests.engine.engines import needs_numba
from tests.tiny import play_beside_reference, tiny_env
from torchrl.envs.utils import step_mdp

from packing_env.core import feasibility
from packing_env.core.orientation import visible_items
from packing_env.envs import PackingEnv
from packing_env.testing import Episode, begin_episode
from packing_env.testing.referee import decode_place

RULES = ("com_hull_10", "com_hull_20")
OPTIONS: dict[str, dict[str, Any]] = {
    "terminate": {},
    "buffer": {"num_visible": 2, "grid_step": 2},
    "noop": {"illegal_action": "noop", "contact_tol": 0.0},
    "project": {"illegal_action": "project", "contact_tol": 0.0},
    "lenient": {"stability": "none", "surest": ("center_hull", *RULES)},
    "strict": {"stability": "com_hull_strict", "contact_tol": 0.002},
}
SMALL = {"grid": (5, 4), "height": 0.08, "num_orientations": 2}


def legality(env: PackingEnv, **rules: Any) -> torch.Tensor:
    """Return the legal placements in an environment's state under other rules."""
    state, params = dict(env.state.items()), env.params.evolve(**rules)
    items = visible_items(state, params.num_visible)
    return feasibility.legal_maps(state, *items, env.catalogue.tensors(), params).legal


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_episodes_equal_the_reference(options: dict[str, Any]) -> None:
    """Eager kernels give the same bits (`test_compiled_step.py`)."""
    env = tiny_env(4, items=SMALL, **{"surest": RULES, **options})
    assert play_beside_reference(env, 6, illegal_share=0.2) > 0


def test_the_reference_examines_no_more_than_a_check_needs(monkeypatch) -> None:
    """It used to examine every placement of the lattice in every state: minutes per episode."""
    env = tiny_env(1, surest=RULES)
    root, episode, examined = env.reset(), begin_episode(env, 0, {}), []
    examine = Episode.examine

    def counted(*place: Any, **rule: Any) -> Any:
        examined.append(place)
        return examine(*place, **rule)

    monkeypatch.setattr(Episode, "examine", counted)
    sure = decode_place(env, int(root["action_mask"].int().argmax()))
    assert episode.check(*sure.place(layered=False)).legal
    assert len(examined) < env.mode.num_actions


@pytest.mark.parametrize(
    ("engine", "spoils"),
    [
        ("rules", False),
        pytest.param("compiled", False, marks=needs_numba),
        pytest.param("compiled", True, marks=needs_numba),
    ],
)
def test_a_placement_that_is_stable_but_not_among_the_surest_is_illegal(
    engine: str, spoils: bool
) -> None:
    """Also if the user writes to the mask, from which legality once came."""
    options = {"contact_tol": 0.0, "illegal_action": "noop", "surest": RULES}
    env, other = (tiny_env(16, shell={"engine": engine}, **options) for _ in range(2))
    td, found = env.reset(), 0
    other.reset()
    for _ in range(6):
        other.reset(env.get_state(), set_state=True)  # decides without a mask of its own
        live = ~env.state["terminated"][:, None]
        sure, lenient = (legality(env, **rules).flatten(1) & live for rules in ({}, {"surest": ()}))
        if spoils:
            td["action_mask"].numpy()[:] = True
        unsure = lenient & ~sure
        rows = unsure.any(1) & (torch.arange(16) % 2 == 0)
        action = torch.where(rows, unsure.int().argmax(1), sure.int().argmax(1))
        steps = [one.step(td.clone().set("action", action)) for one in (env, other)]
        for key in ("observation", "action_mask", "done", "reward"):
            first, second = (step["next"].get(key) for step in steps)
            assert bool((first == second).all())
        before = td["metrics", "illegal_actions"][:, 0]
        counted = steps[0]["next", "metrics", "illegal_actions"][:, 0] - before
        assert torch.equal(counted > 0, rows)
        found += int(rows.sum())
        td = step_mdp(steps[0])
    assert found > 5


@pytest.mark.parametrize("engine", ["rules", pytest.param("compiled", marks=needs_numba)])
def test_a_state_is_restored_with_or_without_what_is_legal(engine: str) -> None:
    """Legality is computed again for a state that lacks it: an older one, or one of other rules."""
    env = tiny_env(3, items=SMALL, surest=RULES, shell={"engine": engine})
    root = env.reset()
    _, root = env.step_and_maybe_reset(env.rand_action(root))
    saved, mask = env.get_state(), root["action_mask"].clone()
    legal = env.state["legal"].clone()
    for given in (saved.clone(), saved.exclude("legal")):
        env.step_and_maybe_reset(env.rand_action(root))
        again = env.reset(given, set_state=True)
        assert torch.equal(again["action_mask"], mask)
        assert torch.equal(env.state["legal"], legal)
