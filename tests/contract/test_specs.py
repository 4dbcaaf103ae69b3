"""TorchRL's contract, for every preset, action mode and way to reset."""

import pytest
import torch
from tests.contract.presets import SMALL, modes, small_preset
from tests.tiny import play, tiny_env
from torchrl.envs import check_env_specs

from packing_env.tasks import PRESETS
from packing_env.testing import check_env
from packing_env.types import AUTORESETS


def test_every_preset_has_a_small_version() -> None:
    assert set(SMALL) == set(PRESETS)


CASES = [(name, mode) for name in sorted(PRESETS) for mode in modes(name)]
ONCE = {(name, modes(name)[i % len(modes(name))]) for i, name in enumerate(sorted(PRESETS))}
"""Each preset once, with each mode at least once."""


@pytest.mark.parametrize(
    ("preset", "action_mode", "autoreset"),
    [
        pytest.param(*case, autoreset, marks=[] if case in ONCE else pytest.mark.slow)
        for case in CASES
        for autoreset in AUTORESETS
    ],
)
def test_specs(preset: str, action_mode: str, autoreset: str) -> None:
    env = small_preset(preset, action_mode=action_mode, autoreset=autoreset)
    check_env_specs(env, break_when_any_done="both")


@pytest.mark.parametrize("autoreset", AUTORESETS)
@pytest.mark.parametrize("num_envs", [1, (2, 3), (1, 1)])
def test_specs_of_batch_shapes(num_envs: int | tuple[int, int], autoreset: str) -> None:
    env = tiny_env(num_envs, shell={"autoreset": autoreset}, num_visible=2, preview=1)
    batch = torch.Size([num_envs] if isinstance(num_envs, int) else num_envs)
    assert env.batch_size == batch
    check_env_specs(env, break_when_any_done="both")
    steps = play(env, 6)
    assert steps["action"].shape == (6, *batch)
    assert steps["next", "reward"].shape == (6, *batch, 1)
    assert steps["observation", "heightmap"].shape == (6, *batch, *env.params.grid)


@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_presets_on_real_items_equal_the_reference(preset: str) -> None:
    check_env(small_preset(preset), num_steps=5)


@pytest.mark.parametrize("illegal_action", ["terminate", "noop", "project"])
def test_bounds_hold_whatever_is_played(illegal_action: str) -> None:
    """Every entry stays within its spec, also under actions from the whole range."""
    env = tiny_env(6, illegal_action=illegal_action, num_visible=2, preview=1)
    spec = env.full_observation_spec
    root = env.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(12):
        action = torch.randint(-2, env.mode.num_actions + 2, (6,), generator=generator)
        step, root = env.step_and_maybe_reset(root.set("action", action))
        assert spec.is_in(step["next"].select(*spec.keys()))
        assert spec.is_in(root.select(*spec.keys()))


def test_specs_are_finite_and_locked() -> None:
    env = tiny_env(2)
    for key, spec in env.full_observation_spec.items(True, True):
        if spec.dtype.is_floating_point:
            assert spec.space.low.isfinite().all(), key
            assert spec.space.high.isfinite().all(), key
    assert env.batch_locked
    assert env.is_spec_locked
