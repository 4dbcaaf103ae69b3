"""Laws of packing, over random legal episodes."""

from __future__ import annotations

import dataclasses
import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.laws.cases import Case, cases
from tests.tiny import legal_action, play, play_once, state_of

from packing_env.core import feasibility
from packing_env.core.orientation import visible_items
from packing_env.envs import PackingEnv
from packing_env.items import Catalogue
from packing_env.testing import Referee
from packing_env.types import Instances


@given(cases(action_mode="placement"))
def test_a_mask_bit_is_true_iff_the_reference_can_place(case: Case) -> None:
    env = case.env()
    root, generator = env.reset(), case.stream
    referee = Referee(env)
    referee.begin(torch.ones_like(root["done"]), root)
    for _ in range(3):
        root.set("action", legal_action(root["action_mask"], generator))
        decisions = referee.decide(root["action"])
        step = env.step(root)
        referee.step(decisions, step["next"])
        root = env.step_mdp(step)


@given(cases())
def test_live_rows_have_a_legal_action(case: Case) -> None:
    steps = play(case.env(), 10, case.stream)
    assert steps["action_mask"].any(-1).all()
    assert steps["next", "action_mask"].any(-1).all()
    assert steps["next", "action_mask"][steps["next", "done"].squeeze(-1)].all()


@given(cases())
def test_density_metrics_are_ordered(case: Case) -> None:
    """U <= C <= P <= 1, to 1e-6 relative and 1e-5 at the lid."""
    found = play(case.env(), 10, case.stream)["next", "metrics"].double()
    u, c, p = (found[name] for name in ("utilization", "compactness", "pyramidality"))
    assert (u >= 0).all()
    assert (u <= c * (1 + 1e-5)).all()
    assert (c <= p * (1 + 1e-6)).all()
    assert (p <= 1 + 1e-6).all()
    assert (found["height_ratio"] <= 1 + 1e-5).all()


@given(cases())
def test_heights_never_fall_and_stay_under_the_lid(case: Case) -> None:
    env, generator = case.env(), case.stream
    root = env.reset()
    below = env.state["heightmap"].clone()
    for _ in range(6):
        root = env.step_mdp(
            env.step(root.set("action", legal_action(root["action_mask"], generator)))
        )
        heights = env.state["heightmap"].clone()
        assert (heights >= below).all()
        assert (heights <= env.params.lid).all()
        below = heights


@given(cases())
def test_packed_items_are_disjoint_and_inside(case: Case) -> None:
    """Cell by cell, the packed intervals [z + bottom, z + top] do not overlap (1e-6 m)."""
    env = case.env(num_envs=1)
    play_once(env, 8, case.stream)
    state, items = state_of(env), env.catalogue.tensors()
    columns: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for n in range(int(state["items_packed"][0])):
        position, orientation, x, y = state["placement"][0, n].tolist()
        row = int(state["item_id"][0, position])
        bottom, top = items["bottom"][row, orientation], items["top"][row, orientation]
        z = float(state["placement_z"][0, n])
        for u, v in torch.isfinite(bottom).nonzero().tolist():
            assert x + u < env.params.grid[0]
            assert y + v < env.params.grid[1]
            span = (z + float(bottom[u, v]), z + float(top[u, v]))
            columns.setdefault((x + u, y + v), []).append(span)
    for spans in columns.values():
        spans.sort()
        for (_, lower), (upper, _) in itertools.pairwise(spans):
            assert upper >= lower - 1e-6
    assert sum(len(spans) for spans in columns.values()) > 0


@given(cases(reward={"utilization": 1.0}))
def test_utilization_rewards_sum_to_utilization(case: Case) -> None:
    env = case.env()
    seen = play_once(env, 10, case.stream)
    total = torch.stack([step["reward"] for step in seen]).sum(0)
    torch.testing.assert_close(total, seen[-1]["metrics", "utilization"], atol=1e-6, rtol=0)
    torch.testing.assert_close(
        seen[-1]["metrics", "reward/utilization"],
        seen[-1]["metrics", "utilization"],
        atol=1e-6,
        rtol=0,
    )


def mirrored(catalogue: Catalogue, axis: str) -> Catalogue:
    """The catalogue seen in a mirror: x or y reversed within each window, or x and y swapped."""
    if axis == "swap":
        return dataclasses.replace(
            catalogue,
            top=catalogue.top.transpose(2, 3).contiguous(),
            bottom=catalogue.bottom.transpose(2, 3).contiguous(),
            size=catalogue.size.flip(-1),
            com=catalogue.com.flip(-1),
            container=(*catalogue.container[1::-1], catalogue.container[2]),
        )
    place = "xy".index(axis)
    top, bottom, com = catalogue.top.clone(), catalogue.bottom.clone(), catalogue.com.clone()
    for m, r in catalogue.orientation_mask.nonzero().tolist():
        length = int(catalogue.size[m, r, place])
        for maps in (top, bottom):
            window = maps[m, r].narrow(place, 0, length)
            window.copy_(window.flip(place))
        com[m, r, place] = 64 * length - com[m, r, place]
    return dataclasses.replace(catalogue, top=top, bottom=bottom, com=com)


def mirror_x(env: PackingEnv, axis: str, action: torch.Tensor) -> torch.Tensor:
    """The same placement in the mirrored container, as an action (grid_step 1)."""
    xs, ys = env.params.lattice
    orientations = env.catalogue.num_orientations
    y, x = action % ys, action // ys % xs
    plane = action // (xs * ys)
    if axis == "swap":
        return (plane * ys + y) * xs + x
    state = state_of(env)
    item_id, _ = visible_items(state, env.params.num_visible)
    item = item_id.gather(1, (plane // orientations)[:, None]).squeeze(1)
    width = env.catalogue.size[item, plane % orientations]
    if axis == "x":
        x = xs - width[:, 0] - x
    else:
        y = ys - width[:, 1] - y
    return (plane * xs + x) * ys + y


@pytest.mark.parametrize("axis", ["x", "y", "swap"])
@given(case=cases(action_mode="placement", grid_step=1))
def test_mirroring_container_and_items_mirrors_the_result(axis: str, case: Case) -> None:
    env = case.env()
    params = env.params
    if axis == "swap":
        x, y, h = params.container
        params = params.evolve(container=(y, x, h))
    other = PackingEnv(
        params, mirrored(env.catalogue, axis), env.instances, num_envs=case.num_envs, seed=case.seed
    )
    root, image, generator = env.reset(), other.reset(), case.stream
    for _ in range(6):
        action = legal_action(root["action_mask"], generator)
        live = ~root["done"].squeeze(-1)
        turned = torch.where(live, mirror_x(env, axis, action), 0)
        step = env.step(root.set("action", action))
        seen = other.step(image.set("action", turned))
        heights, there = env.state["heightmap"], other.state["heightmap"]
        back = there.transpose(1, 2) if axis == "swap" else there.flip(1 + "xy".index(axis))
        assert torch.equal(heights, back)
        for key in ("reward", "done", "terminated"):
            assert torch.equal(step["next", key], seen["next", key])
        assert torch.equal(env.state["stable_items"], other.state["stable_items"])
        root, image = env.step_mdp(step), other.step_mdp(seen)


def with_garbage(catalogue: Catalogue, seed: int) -> Catalogue:
    """More capacity than needed, and noise wherever a value has no meaning."""
    noise = torch.Generator().manual_seed(seed)
    m, _, u, v = catalogue.top.shape
    top = torch.nn.functional.pad(catalogue.top, (0, 2, 0, 1), value=-torch.inf)
    bottom = torch.nn.functional.pad(catalogue.bottom, (0, 2, 0, 1), value=torch.inf)
    padding = ~catalogue.orientation_mask
    size, com = catalogue.size.clone(), catalogue.com.clone()
    size[padding] = torch.randint(0, 5, size[padding].shape, generator=noise)
    com[padding] = torch.randint(-99, 999, com[padding].shape, generator=noise)
    assert top.shape == (m, catalogue.num_orientations, u + 1, v + 2)
    return dataclasses.replace(catalogue, top=top, bottom=bottom, size=size, com=com)


@given(cases(num_items=5), st.integers(0, 99))
def test_padding_garbage_never_changes_a_result(case: Case, noise: int) -> None:
    """Windows and instances with room to spare; noise in padding orientations and past the end."""
    plain = case.env()
    generator = torch.Generator().manual_seed(noise)
    length = torch.randint(3, 6, plain.instances.num_items.shape, generator=generator)
    ids = plain.instances.item_id
    past = torch.arange(ids.shape[1]) >= length[:, None]
    results = []
    for garbage in (False, True):
        filler = torch.randint(0, 6, ids.shape, generator=generator) if garbage else 0
        env = PackingEnv(
            plain.params,
            with_garbage(plain.catalogue, noise) if garbage else plain.catalogue,
            Instances(torch.where(past, filler, ids), length),
            num_envs=case.num_envs,
            seed=case.seed,
        )
        steps = play(env, 10, case.stream)
        steps["next", "observation"] = steps["next", "observation"].exclude("top", "bottom")
        steps["observation"] = steps["observation"].exclude("top", "bottom")
        results.append((steps, state_of(env)))
    (one, before), (other, after) = results
    for key, value in one.items(True, True):
        assert torch.equal(value, other[key]), key
    for key in set(before) - {"item_id"}:
        assert torch.equal(before[key], after[key]), key


@given(cases(action_mode="placement"))
def test_an_empty_container_needs_no_kernel(case: Case) -> None:
    """What a reset shows (computed without a kernel) is what the kernels find."""
    env = case.env()
    root = env.reset()
    state, items = state_of(env), env.catalogue.tensors()
    item_id, there = visible_items(state, env.params.num_visible)
    found = feasibility.placement_maps(state["heightmap"], item_id, there, items, env.params)
    floor = feasibility.legal_on_floor(items, env.params)
    made = feasibility.empty_container_maps(item_id, there, floor, items, env.params)
    assert torch.equal(made.legal, found.legal)
    assert torch.equal(made.z, found.z)
    assert torch.equal(root["action_mask"], found.legal.flatten(1))
