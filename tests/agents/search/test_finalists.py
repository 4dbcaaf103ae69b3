"""Placements that are simulated before they are played."""

from functools import partial

import pytest
import torch
from tensordict.nn import TensorDictModule

from agents import heuristics
from agents.search import Finalists, build_finalists
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


def test_an_episode_ends_if_no_choice_stands() -> None:
    env = task(rows=1)

    def base(_: PackingEnv) -> TensorDictModule:
        """Return a policy that stacks every box at the same lower corner."""
        return TensorDictModule(
            lambda mask: mask.int().argmax(-1), in_keys=["action_mask"], out_keys=["action"]
        )

    once = evaluate(env, Finalists(env, base, tries=1, apart=0), 1, keep=1)
    more = evaluate(env, Finalists(env, base, tries=16, apart=0), 1, keep=1)
    assert once.metrics["illegal_actions"] == 1
    assert 0 < once.metrics["items_packed"] < more.metrics["items_packed"]


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
def test_other_tasks_are_refused(options: dict[str, str]) -> None:
    with pytest.raises(ParameterError, match=next(iter(options))):
        build_finalists(task(**options), "deepest_bottom_left")
