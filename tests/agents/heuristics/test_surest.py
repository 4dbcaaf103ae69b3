"""The preference for placements that are surest to stand."""

import pytest
import torch
from tests.tiny import tiny_env
from torchrl.envs.utils import step_mdp

from agents.heuristics import build
from agents.heuristics.surest import Surest
from packing_env.core import feasibility
from packing_env.core.orientation import visible_items
from packing_env.types import ParameterError

RULES = ("com_hull_10", "com_hull_20")


def masks(env):
    """Return the mask of every rule, the strictest first, for the state of an environment."""
    state = dict(env.state.items())
    items = visible_items(state, env.params.num_visible)
    return [
        feasibility.legal_maps(
            state, *items, env.catalogue.tensors(), env.params.evolve(stability=rule)
        ).legal.flatten(1)
        for rule in reversed(RULES)
    ]


def test_actions_are_those_of_the_strictest_rule_that_has_any():
    env = tiny_env(16, stability="com_hull", contact_tol=0.0, illegal_action="noop")
    policy = build("random_legal", env, surest=RULES)
    torch.manual_seed(0)
    td, seen = env.reset(), set()
    for _ in range(8):
        mask = td["action_mask"].clone()
        strict = masks(env)
        td = policy(td)
        assert torch.equal(td["action_mask"], mask)
        for row, action in enumerate(td["action"].tolist()):
            tiers = [(held[row] & mask[row]) for held in strict] + [mask[row]]
            tier = next(number for number, held in enumerate(tiers) if held.any())
            assert tiers[tier][action]
            seen.add((tier, bool((mask[row] & ~tiers[tier]).any())))
        td = step_mdp(env.step(td))
    assert {(0, True), (2, False)} <= seen  # a choice was restricted, and none was left


def test_without_rules_it_is_the_heuristic():
    env = tiny_env(4)
    td = env.reset()
    plain = build("deepest_bottom_left", env)(td.clone())["action"]
    policy = Surest(build("deepest_bottom_left", env), env, ())
    assert torch.equal(policy(td)["action"], plain)


def test_what_it_cannot_do_is_refused():
    env = tiny_env(2, action_mode="candidate", num_candidates=8)
    with pytest.raises(ParameterError, match="action_mode='placement'"):
        build("random_legal", env, surest=RULES)
    env = tiny_env(2)
    with pytest.raises(ParameterError, match="com_hull_30"):
        build("random_legal", env, surest=("com_hull_30",))
