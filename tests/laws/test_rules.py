"""Laws of packing, and of batches, episodes and state, over random legal episodes."""

import dataclasses
import itertools
from collections.abc import Iterator
from functools import cache

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict, TensorDictBase
from tests.laws.cases import MAPS, Case, cases
from tests.tiny import differing, legal_action, play, play_beside_reference, state_of

from packing_env.core import feasibility
from packing_env.core.orientation import visible_items
from packing_env.envs import PackingEnv
from packing_env.items import Catalogue
from packing_env.types import Instances, State


@given(cases())
def test_what_is_offered_is_what_the_reference_can_place(case: Case) -> None:
    """In placement mode, a mask bit is True iff the reference can place there.

    Candidates are placements that the reference can make. Rest heights, heightmaps, boxes, spaces,
    flags, rewards and metrics equal the reference's, also after illegal or out-of-range actions.
    """
    play_beside_reference(case.env(), 3, 10, case.seed, illegal_share=0.1)


@given(cases())
def test_an_episode_obeys_the_laws_of_packing(case: Case) -> None:
    env = case.env()
    root, generator = env.reset(), case.stream
    seen, states = [], [state_of(env)]
    for _ in range(7):
        step = env.step(root.set("action", legal_action(root["action_mask"], generator)))
        seen.append(step["next"].clone())
        states.append(state_of(env))
        root = env.step_mdp(step)
    live_rows_have_a_legal_action(torch.stack(seen))
    density_metrics_are_ordered(torch.stack(seen)["metrics"].double())
    heights_never_fall_and_stay_under_the_lid(states, env.params.lid)
    rewards_sum_to_the_utilization(seen)
    volume_is_conserved(states[-1], seen[-1]["metrics"], env)
    for row in range(len(states[-1]["step"])):
        packed_items_are_disjoint_and_inside(states[-1], row, env)


def live_rows_have_a_legal_action(seen: TensorDict) -> None:
    assert seen["action_mask"].any(-1).all()
    assert seen["action_mask"][seen["terminated"].squeeze(-1)].all()


def density_metrics_are_ordered(found: TensorDict) -> None:
    """U <= C <= P <= 1, to 1e-6 relative and 1e-5 at the lid."""
    u, c, p = (found[name] for name in ("utilization", "compactness", "pyramidality"))
    assert (u >= 0).all()
    assert (u <= c * (1 + 1e-5)).all()
    assert (c <= p * (1 + 1e-6)).all()
    assert (p <= 1 + 1e-6).all()
    assert (found["height_ratio"] <= 1 + 1e-5).all()


def heights_never_fall_and_stay_under_the_lid(states: list[State], lid: float) -> None:
    for before, after in itertools.pairwise(states):
        assert (after["heightmap"] >= before["heightmap"]).all()
        assert (after["heightmap"] <= lid).all()


def rewards_sum_to_the_utilization(seen: list[TensorDictBase]) -> None:
    total = torch.stack([step["reward"] for step in seen]).sum(0)
    last = seen[-1]["metrics"]
    torch.testing.assert_close(total, last["utilization"], atol=1e-6, rtol=0)
    torch.testing.assert_close(last["reward/utilization"], last["utilization"], atol=1e-6, rtol=0)


def volume_is_conserved(state: State, metrics: TensorDictBase, env: PackingEnv) -> None:
    """The utilization is the volume of the items that the state lists, over the container's."""
    position = state["placement"][..., 0]
    packed = torch.arange(position.shape[1]) < state["items_packed"][:, None]
    volume = env.catalogue.volume[state["item_id"].gather(1, position)]
    total = torch.where(packed, volume, 0.0).sum(1) / env.params.container_volume
    found = metrics["utilization"].squeeze(-1).double()
    torch.testing.assert_close(found, total, atol=1e-6, rtol=0)


def packed_items_are_disjoint_and_inside(state: State, row: int, env: PackingEnv) -> None:
    """Cell by cell, the packed intervals [z + bottom, z + top] do not overlap (1e-6 m)."""
    columns: dict[tuple[int, int], list[tuple[float, float]]] = {}
    across, along = (cells * env.params.units_per_cell for cells in env.params.grid)
    for n in range(int(state["items_packed"][row])):
        position, orientation, x, y = state["placement"][row, n].tolist()
        z = float(state["placement_z"][row, n])
        item = int(state["item_id"][row, position])
        for u, v, low, high in solid(env.catalogue, item, orientation):
            assert x + u < across
            assert y + v < along
            columns.setdefault((x + u, y + v), []).append((z + low, z + high))
    for spans in columns.values():
        spans.sort()
        for (_, lower), (upper, _) in itertools.pairwise(spans):
            assert upper >= lower - 1e-6
    assert not state["items_packed"][row] or columns


def solid(items: Catalogue, row: int, orientation: int) -> Iterator[tuple[int, int, float, float]]:
    """The cells (units in geometry "boxes") of an item, and from where to where it fills each."""
    if items.top.numel():
        bottom, top = items.bottom[row, orientation], items.top[row, orientation]
        for u, v in torch.isfinite(bottom).nonzero().tolist():
            yield u, v, float(bottom[u, v]), float(top[u, v])
        return
    w, h, d = items.cuboid[row, orientation].tolist()
    for u, v in itertools.product(range(w), range(h)):
        yield u, v, 0.0, d * items.cell


def with_garbage(catalogue: Catalogue, noise: torch.Generator) -> Catalogue:
    """Windows with room to spare, and noise wherever a value has no meaning."""
    padding = ~catalogue.orientation_mask
    size, com = catalogue.size.clone(), catalogue.com.clone()
    size[padding] = torch.randint(0, 5, size[padding].shape, generator=noise)
    com[padding] = torch.randint(-99, 999, com[padding].shape, generator=noise)
    noisy = dataclasses.replace(catalogue, size=size, com=com)
    if not catalogue.top.numel():
        return noisy
    top = torch.nn.functional.pad(catalogue.top, (0, 2, 0, 1), value=-torch.inf)
    bottom = torch.nn.functional.pad(catalogue.bottom, (0, 2, 0, 1), value=torch.inf)
    return dataclasses.replace(noisy, top=top, bottom=bottom)


@cache
def with_shorter_episodes(env: PackingEnv, garbage: bool) -> PackingEnv:
    """Instances of 2 items or more; with ``garbage``, noise after them and in the catalogue."""
    generator = torch.Generator().manual_seed(0)
    ids = env.instances.item_id
    length = torch.randint(2, ids.shape[1] + 1, (len(ids),), generator=generator)
    past = torch.arange(ids.shape[1]) >= length[:, None]
    filler = torch.randint(0, 4, ids.shape, generator=generator) if garbage else 0
    return PackingEnv(
        env.params,
        with_garbage(env.catalogue, generator) if garbage else env.catalogue,
        Instances(torch.where(past, filler, ids), length),
        num_envs=env.batch_size.numel(),
    )


@given(cases())
def test_padding_garbage_never_changes_a_result(case: Case) -> None:
    """Windows and instances with room to spare; noise in padding orientations and past the end."""
    results = []
    for garbage in (False, True):
        env = with_shorter_episodes(case.env(), garbage)
        env.set_seed(case.seed, static_seed=True)
        steps = play(env, 4, case.stream)
        for side in (steps, steps["next"]):
            side["observation"] = side["observation"].exclude("top", "bottom")
        results.append((steps, state_of(env)))
    (one, before), (other, after) = results
    for key, value in one.items(True, True):
        assert torch.equal(value, other[key]), key
    for key in set(before) - {"item_id"}:
        assert torch.equal(before[key], after[key]), key


@given(cases(MAPS, action_mode="placement"))
def test_an_empty_container_needs_no_kernel(case: Case) -> None:
    """The observation after a reset, computed without a kernel, equals that of the kernels."""
    env = case.env()
    root = env.reset()
    state, items = state_of(env), env.catalogue.tensors()
    item_id, there = visible_items(state, env.params.num_visible)
    found = feasibility.placement_maps(state["heightmap"], item_id, there, items, env.params)
    floor = feasibility.legal_on_floor(items, env.params)
    made = feasibility.ground(items, env.params).empty_maps(item_id, there, floor)
    assert torch.equal(made.legal, found.legal)
    assert torch.equal(made.z, found.z)
    assert torch.equal(root["action_mask"], found.legal.flatten(1))


BITS = ("action_mask", "done", "terminated", "truncated")


def same_play(one: TensorDictBase, other: TensorDictBase) -> None:
    """Compare observations, masks and flags bit for bit; rewards and metrics to 1e-6."""
    for key in BITS:
        assert torch.equal(one[key], other[key]), key
        assert torch.equal(one["next", key], other["next", key]), key
    for side in (one, other), (one["next"], other["next"]):
        assert not differing(*(steps["observation"] for steps in side))
    torch.testing.assert_close(one["next", "reward"], other["next", "reward"], atol=1e-6, rtol=0)
    for name, value in one["next", "metrics"].items():
        torch.testing.assert_close(value, other["next", "metrics", name], atol=1e-6, rtol=1e-6)


@given(cases())
def test_a_batch_equals_its_rows_alone(case: Case) -> None:
    """Row i of a batch is the batch of 1 with ``row_offset`` i, through resets."""
    row = 1 + case.params["num_items"] % 4 // 2
    batch = play(case.env(), 4, case.stream)
    alone = play(case.env(num_envs=1, row_offset=row), 4, actions=batch["action"][:, row : row + 1])
    same_play(batch[:, row], alone[:, 0])


@given(cases(), st.integers(-5, 10_000))
def test_terminal_rows_are_absorbing(case: Case, action: int) -> None:
    """No action changes a finished row; its reward is 0, and its mask is all True if terminated."""
    env, generator = case.env(), case.stream
    root = env.reset()
    for _ in range(6):
        done = root["done"].squeeze(-1)
        before = state_of(env)
        wild = torch.where(done, action, legal_action(root["action_mask"], generator))
        following = env.step(root.set("action", wild))["next"]
        assert (following["reward"][done] == 0).all()
        over = following["terminated"].squeeze(-1)
        assert following["action_mask"][over].all()
        mask = root["action_mask"]
        assert torch.equal(following["action_mask"][done & ~over], mask[done & ~over])
        assert following["done"][done].all()
        after = state_of(env)
        for key, value in before.items():
            assert torch.equal(value[done], after[key][done]), key
        root = env.step_mdp(root)


@settings(max_examples=settings.default.max_examples // 2)
@given(cases())
def test_the_same_seed_gives_the_same_rollout_however_rows_are_reset(case: Case) -> None:
    """The same environment, TorchRL's own resets, and a batch of shape ``[3, 1]`` are compared."""
    native, masked = case.env(), case.env(autoreset="masked")
    assert native.autoreset == "native"
    first = play(native, 4, case.stream)
    state = state_of(native)
    assert not differing(first[:2], play(case.env(), 2, case.stream))
    assert not differing(first, play(masked, 4, case.stream))
    assert not differing(state, state_of(masked))
    shaped = play(case.env(num_envs=(3, 1)), 3, actions=first["action"][:3, :, None])
    assert shaped.batch_size == torch.Size([3, 3, 1])
    flat = TensorDict({key: value.flatten(1, 2) for key, value in shaped.items(True, True)}, [3, 3])
    assert not differing(first[:3], flat)
