"""Placements that are simulated before they are played."""

from functools import partial
from typing import Any

import pytest
import torch
from tensordict.nn import TensorDictModule

from agents import heuristics
from agents.search import Finalists
from agents.training.evaluate import evaluate
from packing_env import PackingEnv, make_env
from packing_env.physics import read_settings, simulate
from packing_env.types import ParameterError

for package in ("mujoco", "manifold3d"):
    pytest.importorskip(package, reason="pip install 'packing-env[physics]'")

RULE = partial(heuristics.build, "random_legal")


def task(rows: int = 4, **options: object) -> PackingEnv:
    """Return streams of 9 boxes that may be placed where they fall."""
    settings = {"stability": "none", "num_items": 9, "pool_size": rows, **options}
    return make_env("cuboid_online", num_envs=rows, split="test", draw="sequential", **settings)


def test_what_the_finalists_pack_stands() -> None:
    env, settings = task(), read_settings({"jolt": 0.0})

    def stands(policy: torch.nn.Module) -> list[bool]:
        packings = evaluate(env, policy, 4, keep=4).packings(env)
        assert all(len(packing.items) > 3 for packing in packings)
        return [simulate(packing, settings).stands for packing in packings]

    assert not all(stands(RULE(env)))
    assert all(stands(Finalists(env, RULE, trials=1, settings=settings)))


def stack(_: PackingEnv) -> TensorDictModule:
    """Return a policy that puts every box at the first legal placement, one on the other."""
    return TensorDictModule(
        lambda mask: mask.int().argmax(-1), in_keys=["action_mask"], out_keys=["action"]
    )


def test_an_episode_ends_if_no_choice_stands() -> None:
    env = task(rows=1)
    once, more, all_moves = (
        evaluate(env, Finalists(env, stack, apart=0, **options), 1).metrics
        for options in ({"tries": 1}, {"tries": 16}, {"tries": 1, "limit": 1e6})
    )
    assert once["illegal_actions"] == 1
    assert 0 < once["items_packed"] < more["items_packed"]
    # A limit that no motion reaches refuses nothing.
    assert all_moves["illegal_actions"] == 0
    assert all_moves["items_packed"] > once["items_packed"]


def test_the_first_decision_of_an_episode_is_needed() -> None:
    env = task(rows=1)
    later = env.step(RULE(env)(env.reset()))["next"]
    with pytest.raises(ParameterError, match="row 0"):
        Finalists(env, RULE)(later)


def test_hidden_items_do_not_change_a_decision() -> None:
    env = task()
    root = env.reset()
    state = env.get_state()
    decisions = []
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        changed = state.clone()
        hidden = changed["item_id"][:, 1:]
        hidden.copy_(torch.randint(len(env.catalogue), hidden.shape, generator=generator))
        env.reset(changed, set_state=True)
        torch.manual_seed(0)
        decisions.append(Finalists(env, RULE)(root.clone())["action"])
    assert all(torch.equal(decisions[0], each) for each in decisions)


@pytest.mark.parametrize(
    "options",
    [{"action_mode": "candidate"}, {"illegal_action": "noop"}],
    ids=lambda o: next(iter(o)),
)
def test_other_tasks_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        Finalists(task(**options), "deepest_bottom_left")
