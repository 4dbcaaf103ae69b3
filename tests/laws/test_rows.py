"""Laws of batches, episodes and state, over random legal episodes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tensordict import TensorDict, TensorDictBase
from tests.laws.cases import Case, cases
from tests.tiny import differing, legal_action, play, state_of

BITS = ("action_mask", "done", "terminated", "truncated")


def same_play(one: TensorDictBase, other: TensorDictBase) -> None:
    """Heights, masks, items and flags bit for bit; rewards and metrics to 1e-6."""
    for key in BITS:
        assert torch.equal(one[key], other[key]), key
        assert torch.equal(one["next", key], other["next", key]), key
    for side in (one, one["next"]), (other, other["next"]):
        assert side[0]["observation"].keys() == side[1]["observation"].keys()
    for name in ("heightmap", "item_id", "drop_height"):
        assert torch.equal(one["observation", name], other["observation", name]), name
        assert torch.equal(one["next", "observation", name], other["next", "observation", name])
    torch.testing.assert_close(one["next", "reward"], other["next", "reward"], atol=1e-6, rtol=0)
    for name, value in one["next", "metrics"].items():
        torch.testing.assert_close(value, other["next", "metrics", name], atol=1e-6, rtol=1e-6)


@given(cases())
def test_a_batch_equals_its_rows_alone(case: Case) -> None:
    """A batch of B equals B batches of 1 with ``row_offset``, through resets."""
    batch = play(case.env(), 8, case.stream)
    for row in range(case.num_envs):
        alone = case.env(num_envs=1, row_offset=row)
        same_play(batch[:, row], play(alone, 8, actions=batch["action"][:, row : row + 1])[:, 0])


@given(cases(), st.permutations(range(4)))
def test_permuting_rows_permutes_the_result(case: Case, order: list[int]) -> None:
    env = case.env(num_envs=4)
    root = play_to_the_middle(env, 2, case.stream)
    saved = env.get_state()
    actions = []
    results = []
    permutation = torch.tensor(order)
    for rows in (torch.arange(4), permutation):
        root = env.reset(saved[rows].contiguous(), set_state=True)
        for index in range(3):
            if len(actions) == index:
                actions.append(legal_action(root["action_mask"], case.stream))
            root = env.step_mdp(env.step(root.set("action", actions[index][rows])))
        results.append((root.clone(), env.get_state()))
    for one, other in zip(*results, strict=True):
        assert not differing(one[permutation], other)


def play_to_the_middle(env, num_steps: int, generator: torch.Generator) -> TensorDictBase:
    root = env.reset()
    for _ in range(num_steps):
        _, root = env.step_and_maybe_reset(
            root.set("action", legal_action(root["action_mask"], generator))
        )
    return root


@given(cases(), st.integers(-5, 10_000))
def test_terminal_rows_are_absorbing(case: Case, action: int) -> None:
    """Whatever is asked of a finished row, nothing changes; reward 0, mask all True."""
    env, generator = case.env(), case.stream
    root = env.reset()
    for _ in range(12):
        root = env.step_mdp(
            env.step(root.set("action", legal_action(root["action_mask"], generator)))
        )
        done = root["done"].squeeze(-1)
        before = state_of(env)
        wild = torch.where(done, action, legal_action(root["action_mask"], generator))
        following = env.step(root.set("action", wild))["next"]
        assert (following["reward"][done] == 0).all()
        assert following["action_mask"][done].all()
        assert following["done"][done].all()
        after = state_of(env)
        for key, value in before.items():
            assert torch.equal(value[done], after[key][done]), key
        root = env.step_mdp(root)


@given(cases(), st.lists(st.booleans(), min_size=4, max_size=4))
def test_a_partial_reset_leaves_other_rows_alone(case: Case, chosen: list[bool]) -> None:
    env = case.env(num_envs=4)
    root = play_to_the_middle(env, 3, case.stream)
    before, rows = state_of(env), torch.tensor(chosen)
    asked = root.clone().set("_reset", rows[:, None])
    fresh = env.reset(asked)
    after = state_of(env)
    for key, value in before.items():
        assert torch.equal(value[~rows], after[key][~rows]), key
    assert torch.equal(after["episode"], before["episode"] + rows)
    assert (after["items_packed"][rows] == 0).all()
    for key, value in root.items(True, True):
        assert torch.equal(value[~rows], fresh[key][~rows]), key
    assert (fresh["observation", "heightmap"][rows] == 0).all()


@given(cases())
def test_the_same_seed_gives_the_same_episode(case: Case) -> None:
    env = case.env()
    first = play(env, 8, case.stream)
    assert not differing(first, play(case.env(), 8, case.stream))
    env.set_seed(case.seed, static_seed=True)
    assert not differing(first, play(env, 8, case.stream))


@given(cases())
def test_native_and_masked_resets_give_the_same_rollout(case: Case) -> None:
    native, masked = case.env(autoreset="native"), case.env(autoreset="masked")
    assert native.autoreset == "native"
    assert not differing(play(native, 10, case.stream), play(masked, 10, case.stream))
    assert not differing(state_of(native), state_of(masked))


@pytest.mark.parametrize("autoreset", ["native", "masked"])
@given(case=cases())
def test_a_saved_state_continues_bit_for_bit(autoreset: str, case: Case) -> None:
    """Also in a fresh environment of another seed: the state holds the streams."""
    env = case.env(autoreset=autoreset)
    play_to_the_middle(env, 3, case.stream)
    saved = env.get_state()
    other = case.env(autoreset=autoreset)
    other.set_seed(case.seed + 1)
    runs = []
    for target in (env, env, other):
        root = target.reset(saved.clone(), set_state=True)
        runs.append(play(target, 10, case.stream, root=root))
    assert not differing(runs[0], runs[1])
    assert not differing(runs[0], runs[2])


@given(cases())
def test_a_shaped_batch_is_a_flat_one(case: Case) -> None:
    """``num_envs=(E, A)`` plays what ``E * A`` rows play."""
    flat = play(case.env(num_envs=4), 8, case.stream)
    actions = flat["action"].unflatten(1, (2, 2))
    shaped = play(case.env(num_envs=(2, 2)), 8, actions=actions)
    assert shaped.batch_size == torch.Size([8, 2, 2])
    flattened = TensorDict(
        {key: value.flatten(1, 2) for key, value in shaped.items(True, True)}, [8, 4]
    )
    assert not differing(flat, flattened)
