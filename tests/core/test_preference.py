"""A user's preferences: the placements that they keep are the mask, from every episode's start."""

from typing import Any

import pytest
import torch
from tests.core.test_surest import legality
from tests.tiny import cuboid_env, tiny_env
from torch import Tensor

from packing_env.core import preference
from packing_env.core.preference import Preference
from packing_env.envs import PackingEnv


def at_a_wall(contact: Any, legal: Tensor, *_: object) -> Tensor:
    """Return each item's placements along the lower walls; all if none is legal there."""
    wall = torch.zeros_like(legal)
    wall[..., 0, :] = wall[..., 0] = True
    preferred = legal & wall
    return torch.where(preferred.flatten(2).any(2)[..., None, None, None], preferred, legal)


@pytest.mark.parametrize("make", [tiny_env, cuboid_env], ids=["items", "cuboids"])
@pytest.mark.parametrize("options", [{}, {"action_mode": "candidate"}], ids=["lattice", "list"])
def test_a_preference_may_depend_on_the_place(
    make: Any, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One corner used to stand for the floor, so that every placement was legal at the start."""
    option = Preference(restrict=at_a_wall, check=lambda params: None)
    monkeypatch.setitem(preference.PREFERENCES, "surest", option)
    env: PackingEnv = make(8, illegal_action="noop", surest=("com_hull_10",), **options)
    td, starts, restricted = env.reset(), 0, 0
    for _ in range(25):
        live = ~env.state["terminated"]
        legal, lenient = (legality(env, **rules).flatten(1) for rules in ({}, {"surest": ()}))
        if "action_mode" in options:
            listed, row = env.state["candidate"], torch.arange(8)[:, None]
            assert bool((legal[row, listed.clamp(min=0)] | (listed < 0))[live].all())
        else:
            assert torch.equal(td["action_mask"][live], legal[live])
        begun = env.state["step"] == 0
        starts += int(begun.sum())
        restricted += int((legal != lenient)[begun].any(1).sum())
        _, td = env.step_and_maybe_reset(env.rand_action(td))
    assert starts > 8
    assert restricted > 8
