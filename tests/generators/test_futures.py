"""Hidden items are drawn from the task's distribution, and visible items are kept."""

import pytest
import torch
from torch import Tensor

from packing_env import make_env
from packing_env.core import feasibility
from packing_env.core.observation import cut_surfaces
from packing_env.envs import PackingEnv
from packing_env.generators import Futures, make_pool

SMALL = {"container": (5.0, 5.0, 5.0), "num_items": 12}


def cuboid_env(**options: object) -> PackingEnv:
    law = {"name": "uniform_cuboids", "low": 1, "high": 2}
    return make_env("cuboid_online", 2, **{"generator": law, "pool_size": 16, **SMALL, **options})


def futures_of(env: PackingEnv, seed: int = 0) -> Futures:
    assert env.generator is not None
    return Futures(env.generator, env.catalogue, env.params, seed)


def hidden(env: PackingEnv, seen: int) -> Tensor:
    env.reset()
    state = env.get_state()
    places = torch.arange(env.params.num_items)
    return torch.where(places < seen, state["item_id"], -1)


@pytest.fixture
def few_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let futures be drawn from fewer containers: to cut the usual number takes seconds."""
    monkeypatch.setattr("packing_env.generators.futures._POOL", 512)


def test_known_items_stay_and_every_stratum_is_drawn_once() -> None:
    env = cuboid_env()
    known, size = hidden(env, 3), len(env.catalogue)
    drawn = futures_of(env).draw(known, 3 * size)
    assert (drawn[:, :, :3] == known[:, None, :3]).all()
    for row in drawn:
        for place in row[:, 3:].unbind(1):
            assert place.bincount(minlength=size).tolist() == [3] * size


def test_the_law_is_the_generators() -> None:
    env = make_env("irregular", 1, scales=[0.8, 1.0], pool_size=512, num_items=20)
    assert env.generator is not None
    playable = feasibility.legal_on_floor(env.catalogue.tensors(), env.params).any(1)
    law = env.generator.law(playable, env.catalogue)
    assert law is not None
    assert law.sum().item() == pytest.approx(1.0)
    drawn = make_pool(env.generator, env.catalogue, env.params, playable, size=4096).item_id
    share = drawn.flatten().bincount(minlength=len(law)).double() / drawn.numel()
    assert (share - law).abs().max() < 5 * (law.max() / drawn.numel()) ** 0.5


def test_sorted_tasks_with_ties_follow_the_law() -> None:
    """Given the visible items, hidden ones are as frequent as in sorted sequences of the task."""
    env = cuboid_env(num_items=4, item_order="volume", num_visible=2, pool_size=4)
    size = env.catalogue.tensors()["extent"].prod(-1)
    num = len(size)
    whole = torch.cartesian_prod(*[torch.arange(num)] * 4)
    order = (-size[whole]).argsort(dim=1, stable=True)
    whole = whole.gather(1, order)
    for seen in ([7, 7], [7, 6], [5, 3], [6, 1]):
        fits = (whole[:, :2] == torch.tensor(seen)).all(1)
        rest = size[whole[fits][:, 2:]]
        truth = torch.stack([(rest[:, 0] == v).double().mean() for v in size.unique()])
        known = torch.tensor([[*seen, -1, -1]])
        drawn = size[futures_of(env).draw(known, 20_000)[0, :, 2:]]
        assert (drawn[:, 0] >= drawn[:, 1]).all()
        found = torch.stack([(drawn[:, 0] == v).double().mean() for v in size.unique()])
        torch.testing.assert_close(found, truth, atol=0.02, rtol=0)


@pytest.mark.usefixtures("few_cuts")
def test_sorted_cuts_are_not_larger_than_what_was_seen() -> None:
    env = make_env("cuboid_offline", 8, pool_size=64)
    known = hidden(env, env.params.num_slots)
    size = env.catalogue.tensors()["extent"].prod(-1)[futures_of(env).draw(known, 16)]
    assert (size[..., 20:] <= size[..., 19:20]).all()
    assert (size[..., 21:] <= size[..., 20:-1]).all()


@pytest.mark.usefixtures("few_cuts")
def test_fresh_instances_are_not_those_of_the_environment() -> None:
    options = {"num_visible": 4, "item_order": "arrival", "pool_size": 64}
    env = make_env("cuboid_offline", 2, seed=0, **options)
    fresh = futures_of(env, 0).fresh
    assert fresh is not None
    same = (fresh.item_id[:64, None] == env.instances.item_id[None]).all(-1)
    assert not same.any()


def test_known_states_hold_neither_hidden_items_nor_streams() -> None:
    env = cuboid_env(seed=3, num_visible=2, preview=1)
    root = env.reset()
    for packed in range(4):
        known, state = env.get_known_state(), env.get_state()
        assert (known["item_id"][:, : packed + 3] == state["item_id"][:, : packed + 3]).all()
        assert (known["item_id"][:, packed + 3 :] == -1).all()
        assert not any(known[key].any() for key in ("seed", "row", "episode"))
        root["action"] = root["action_mask"].byte().argmax(-1)
        root = env.step_mdp(env.step(root))


def test_hidden_pieces_continue_the_pieces_seen() -> None:
    """The next piece of CUT-1 fits on the lowest part of the surface of those before it."""
    law = {"name": "guillotine", "variant": "cut1", "low": 2, "high": 5}
    env = cuboid_env(container=(10.0, 10.0, 10.0), num_items=125, generator=law, pool_size=512)
    catalogue = env.catalogue.tensors()
    known = torch.where(torch.arange(125) < 12, env.instances.item_id, -1)
    lowest = cut_surfaces(known[:, :12], catalogue, env.params)[:, -1, -2]
    small = lowest <= 0.2  # where few pieces fit
    drawn = futures_of(env).draw(known[small], 32)
    assert (drawn[..., :12] == known[small, None, :12]).all()
    area, most = catalogue["extent"][:, :2].prod(1) / 100, lowest[small, None] + 1e-6
    fits = (area[drawn[..., 12]] <= most).double().mean()
    unrelated = (area[env.instances.item_id[:, 12]] <= most).double().mean()
    assert fits > 0.9
    assert unrelated < 0.7
