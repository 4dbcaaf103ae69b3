"""Random actions through TorchRL's own parts are legal, whatever wraps the environment."""

import copy
import pickle
from collections.abc import Callable
from functools import partial

import pytest
import torch
from tensordict import TensorDictBase
from tests.contract.presets import small_preset
from tests.tiny import tiny_env
from torchrl.collectors import Collector
from torchrl.envs import (
    ActionMask,
    EnvBase,
    ExcludeTransform,
    InitTracker,
    ParallelEnv,
    RewardSum,
    StepCounter,
    TransformedEnv,
    VecNormV2,
    check_env_specs,
)

from packing_env.core.actions import MODES
from packing_env.types import AUTORESETS

PRESETS = ("irregular", "cuboid_online", "cuboid_continuous")
SUM = {"in_keys": ["reward"], "out_keys": ["reward_sum"]}
TRANSFORMS: dict[str, Callable[[], object]] = {
    "ActionMask": ActionMask,
    "InitTracker": InitTracker,
    "RewardSum": lambda: RewardSum(**SUM),
    "StepCounter": lambda: StepCounter(max_steps=3),
    "VecNorm": lambda: VecNormV2(in_keys=[("observation", "heightmap")]),
    "without the mask": lambda: ExcludeTransform("action_mask"),
}


def collected(env: EnvBase, frames: int = 200) -> TensorDictBase:
    """Return the steps ``[B, T]`` of a collector without a policy."""
    torch.manual_seed(0)
    collector = Collector(env, None, frames_per_batch=frames, total_frames=frames)
    (batch,) = [part.clone() for part in collector]
    collector.shutdown(close_env=False)
    return batch


def check_legal(played: TensorDictBase) -> None:
    """Check that actions obey the masks, that none is counted as illegal, and that episodes end."""
    assert played["action_mask"].gather(-1, played["action"][..., None]).all()
    assert not played["next", "metrics", "illegal_actions"].any()
    assert played["next", "done"].sum() > 4
    assert len(played["action"].unique()) > 5


@pytest.mark.parametrize("autoreset", AUTORESETS)
@pytest.mark.parametrize("preset", PRESETS)
def test_a_collector_without_a_policy(preset: str, autoreset: str) -> None:
    """Rows go on where they were, and a trajectory is an episode."""
    played = collected(small_preset(preset, 5, autoreset=autoreset))
    check_legal(played)
    ended = played["next", "done"][:, :-1].squeeze(-1)
    for key in (("observation", "heightmap"), ("action_mask",)):
        following, here = played[("next", *key)][:, :-1], played[key][:, 1:]
        assert torch.equal(following[~ended], here[~ended])
    ids = played["collector", "traj_ids"]
    assert torch.equal(ids[:, 1:] != ids[:, :-1], ended)


@pytest.mark.filterwarnings("ignore:Support of VecNormV2 for containers:UserWarning")
@pytest.mark.parametrize("name", TRANSFORMS)
def test_under_any_transform(name: str) -> None:
    env = TransformedEnv(tiny_env(5, num_visible=2), TRANSFORMS[name]())
    check_env_specs(env, break_when_any_done="both")
    for played in (collected(env), env.rollout(40, break_when_any_done=False)):
        assert not played["next", "metrics", "illegal_actions"].any()
        assert played["next", "done"].sum() > 4


@pytest.mark.parametrize("action_mode", sorted(MODES))
def test_in_every_mode(action_mode: str) -> None:
    """Actions are legal in every mode, also after a wrapper has truncated rows and reset them."""
    options = {"action_mode": action_mode, "num_visible": 2, "num_candidates": 12}
    envs: list[EnvBase] = [tiny_env((2, 3), **options), tiny_env(6, **options)]
    envs.append(TransformedEnv(tiny_env(6, **options), StepCounter(max_steps=3)))
    if action_mode != "continuous":
        level = ("manager",) if action_mode == "hierarchical" else ()
        keys = [(*level, key) if level else key for key in ("action", "action_mask")]
        envs.append(TransformedEnv(tiny_env(6, **options), ActionMask(*keys)))
    for env in envs:
        played = collected(env, 120)
        assert not played["next", "metrics", "illegal_actions"].any()
        assert played["next", "done"].sum() > 4


def test_over_several_environments() -> None:
    """The mask transform is outermost, where the actions of all environments are drawn."""
    makers = [partial(tiny_env, 3, shell={"row_offset": 3 * i}) for i in range(2)]
    workers = ParallelEnv(2, makers, mp_start_method="fork")
    env = TransformedEnv(workers, ActionMask())
    try:
        check_env_specs(workers)
        check_legal(env.rollout(20, break_when_any_done=False))
        check_legal(collected(env, 120))
    finally:
        env.close(raise_if_closed=False)  # the collector's shutdown did


def test_masks_that_transforms_see_at_a_partial_reset_are_those_of_every_row() -> None:
    env = TransformedEnv(tiny_env(6), ActionMask())
    root = env.reset()
    root = env.step_mdp(env.step(env.rand_action(root)))
    kept = root["action_mask"].clone()
    rows = torch.tensor([True, False, False, True, False, False])
    fresh = env.reset(root.set("_reset", rows[:, None]))
    assert torch.equal(env.action_spec.mask[~rows], kept[~rows])
    assert torch.equal(env.action_spec.mask, fresh["action_mask"])
    assert not torch.equal(fresh["action_mask"][rows], kept[rows])


@pytest.mark.parametrize("action_mode", ["placement", "hierarchical"])
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_a_copied_environment_draws_from_its_own_state(action_mode: str, copied: Callable) -> None:
    env = tiny_env(5, action_mode=action_mode, num_visible=2)
    root = env.step_mdp(env.step(env.rand_action(env.reset())))
    other = copied(env)
    for _ in range(3):  # the first goes on alone
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
    drawn = other.rand_action()
    assert not other.step(drawn)["next", "metrics", "illegal_actions"].any()
    assert other.action_spec is not env.action_spec
