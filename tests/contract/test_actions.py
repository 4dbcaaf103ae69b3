"""Illegal actions, actions of the wrong kind, and random legal ones."""

import math

import pytest
import torch
from tensordict import TensorDictBase
from tests.tiny import act, differing, enact, maps_of, state_of, stream, tiny_env
from torchrl.envs import check_env_specs

from packing_env.core.actions import MODES, Flags, Index, PlacementMode
from packing_env.core.random import choose_uniform
from packing_env.types import ParameterError

BAD = [
    (mode, value)
    for mode in sorted(set(MODES) - {"continuous"})  # tests/contract/test_modes.py
    for value in (None, -1, -(2**63), 2**63 - 1)
]
"""Action mode and what its actions are filled with; None: the first that the rules forbid."""


def bad_action(env, root, value: int | None) -> TensorDictBase:
    """An illegal action in each row, under the mode's keys."""
    if value is None:
        mask = root["action_mask"] if env.mode.lists else maps_of(env).legal.flatten(1)
        assert not mask.all(-1).any()
        chosen = enact(env, root.clone(), (~mask).int().argmax(-1))
    else:
        chosen = root.clone()
        for key, (dtype, shape) in env.takes.items():
            chosen.set(key, torch.full(shape, value, dtype=dtype))
    return chosen.select(*env.takes)


@pytest.mark.parametrize(("action_mode", "value"), BAD)
def test_an_illegal_action_is_counted_and_terminates_waits_or_is_projected(
    action_mode: str, value: int | None
) -> None:
    """What else it changes is compared by the referee, for numbers that are nearly in range."""
    options = {"action_mode": action_mode, "num_candidates": 300}
    for illegal_action in ("terminate", "noop", "project"):
        env = tiny_env(3, illegal_action=illegal_action, **options)
        root = env.reset()
        before, rows = state_of(env), torch.tensor([0, 2])
        written = act(env, root, stream())
        written.update_at_(bad_action(env, root, value)[rows], rows)
        following = env.step(written)["next"]
        ended, projects = illegal_action == "terminate", illegal_action == "project"
        assert following["terminated"].flatten().tolist() == [ended, False, ended]
        assert following["metrics", "illegal_actions"].flatten().tolist() == [1, 0, 1]
        assert following["metrics", "items_packed"].flatten().tolist() == [projects, 1, projects]
        if illegal_action == "noop":
            assert torch.allclose(following["reward"][rows], torch.tensor(-0.1))
            after = state_of(env)
            changed = [
                key for key in before if not torch.equal(before[key][rows], after[key][rows])
            ]
            assert sorted(changed) == ["illegal_actions", "reward_sum", "step"]


@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.bool])
def test_an_action_of_another_dtype_is_refused(dtype: torch.dtype) -> None:
    env = tiny_env(3)
    root = env.reset()
    before = state_of(env)
    with pytest.raises(TypeError, match=r"'action' is torch\.\w+; .*takes torch.int64"):
        env.step(root.set("action", torch.zeros(3, dtype=dtype)))
    assert not differing(before, state_of(env))


@pytest.mark.parametrize("autoreset", ["native", "masked"])
@pytest.mark.parametrize("shape", [(3, 1), (3, 2)])
def test_an_action_of_another_shape_is_refused(shape: tuple[int, ...], autoreset: str) -> None:
    env = tiny_env(3, shell={"autoreset": autoreset})
    root = env.reset().set("action", torch.zeros(shape, dtype=torch.int64))
    for call in (env.step, env.step_and_maybe_reset):
        with pytest.raises(ValueError, match=r"'action' has shape \(3, \d\); .*\(3,\)"):
            call(root.clone())


def test_stepping_or_saving_before_a_reset_says_so() -> None:
    env = tiny_env(2)
    with pytest.raises(RuntimeError, match=r"call env\.reset\(\) first"):
        env.get_state()
    with pytest.raises(RuntimeError, match="before the first reset"):
        env.rand_step()


def test_rows_to_reset_are_named_by_a_bool_mask() -> None:
    env = tiny_env(2)
    root = env.reset()
    with pytest.raises(ParameterError, match=r"_reset is torch\.int64"):
        env.reset(root.set("_reset", torch.ones(2, 1, dtype=torch.int64)))


def test_a_foreign_state_is_refused() -> None:
    env, other = tiny_env(3), tiny_env(3, num_items=5)
    other_items = tiny_env(3, items={"seed": 1})
    root = env.reset()
    other.reset()
    other_items.reset()
    for foreign, message in (
        (env.get_state().exclude("queue"), r"lacks \['queue'\]"),
        (other.get_state(), "comes from another task"),
        (other_items.get_state(), "another task"),
        (root.select("observation"), "holds no state of this environment"),
        (None, "needs the TensorDict"),
    ):
        with pytest.raises(ValueError, match=message):
            env.reset(foreign, set_state=True)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("item_id", 99, "item_id"),
        ("items_packed", 7, "items_packed"),
        ("heightmap", 1e3, "heightmap"),
        ("placement_z", 1e3, "placement_z"),
        ("volume", torch.nan, "volume"),
        ("support_sum", -torch.inf, "support_sum"),
        ("step", -1, "step"),
        ("seed", -1, "seed"),
        ("task", 1, "another task"),
    ],
)
def test_an_impossible_state_changes_nothing(key: str, value: float, message: str) -> None:
    env = tiny_env(3, num_items=6)
    env.reset()
    before, broken = state_of(env), env.get_state()
    broken[key][1] = value
    with pytest.raises(ValueError, match=message):
        env.reset(broken, set_state=True)
    assert not differing(before, state_of(env))


class TwoKeys(PlacementMode):
    """An action mode with one key for the orientation and one for the place, each with a mask."""

    def __init__(self, params, catalogue):
        super().__init__(params, catalogue)
        sizes = {"turn": self.num_orientations, "place": math.prod(params.lattice)}
        self.action_spaces = {(name, "action"): Index(size) for name, size in sizes.items()}
        self.mask_spaces = {(name, "mask"): Flags(size) for name, size in sizes.items()}

    def masks(self, state, maps):
        legal = maps.legal.flatten(3)[:, 0]
        return {("turn", "mask"): legal.any(2), ("place", "mask"): legal.any(1)}

    def random(self, masks, batch_size):
        return {
            (name, "action"): choose_uniform(mask, torch.rand(mask.shape[:-1]))
            for (name, _), mask in masks.items()
        }

    def decode(self, actions, state):
        places = math.prod(self.params.lattice)
        index = actions["turn", "action"] * places + actions["place", "action"]
        return super().decode({"action": index}, state)


@pytest.mark.parametrize("autoreset", ["native", "masked"])
def test_a_mode_may_have_several_keys(monkeypatch: pytest.MonkeyPatch, autoreset: str) -> None:
    """Adding such a mode changes only the registry."""
    monkeypatch.setitem(MODES, "two_keys", TwoKeys)
    env = tiny_env(4, action_mode="two_keys", shell={"autoreset": autoreset})
    check_env_specs(env, break_when_any_done="both")
    steps = env.rollout(20, break_when_any_done=False)
    assert steps["next", "metrics", "items_packed"].max() >= 2
    assert steps["next", "done"].any()
    finished = steps["next", "done"].squeeze(-1)
    assert steps["next", "turn", "mask"][finished].all()
