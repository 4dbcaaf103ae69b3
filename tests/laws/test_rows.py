"""Laws of batches, episodes and state, over random legal episodes."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tensordict import TensorDict, TensorDictBase
from tests.laws.cases import Case, cases
from tests.tiny import differing, legal_action, play, state_of

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
