"""Seeds of the episodes, also in a running environment, and the seed of the pool."""

import multiprocessing
from functools import partial

import pytest
import torch
from tests.contract.presets import small_preset
from tests.tiny import differing, legal_action, play, stream, tiny_env
from torchrl.collectors import Collector
from torchrl.envs import ParallelEnv, StepCounter, TransformedEnv

from packing_env.envs import PackingEnv
from packing_env.shells import PackingGymEnv
from packing_env.types import AUTORESETS


@pytest.mark.parametrize("autoreset", AUTORESETS)
def test_running_episodes_keep_their_seed(autoreset: str) -> None:
    """Automatic resets keep it too; a new seed acts only after a full reset."""
    env, other = (tiny_env(5, shell={"autoreset": autoreset}) for _ in range(2))
    roots = [env.reset(), other.reset()]
    finished, generator = 0, stream()
    for index in range(20):
        if index == 3:
            env.set_seed(7, static_seed=True)
        action = legal_action(roots[0]["action_mask"], generator)
        pairs = zip((env, other), roots, strict=True)
        found = [one.step_and_maybe_reset(root.set("action", action)) for one, root in pairs]
        (step, _), (expected, _) = found
        assert not differing(step, expected)
        roots = [root for _, root in found]
        finished += int(step["next", "done"].sum())
    assert finished > 5


def test_the_next_full_reset_starts_episode_0_of_the_new_seed() -> None:
    env = tiny_env(5)
    play(env, 12)
    env.set_seed(7, static_seed=True)
    some = torch.tensor([True, False, True, False, False])[:, None]
    env.reset(env.step_mdp(env.step(env.rand_action())).set("_reset", some))
    assert (env.state["seed"] == 0).all()
    assert not differing(play(env, 10, stream()), play(tiny_env(5, seed=7), 10, stream()))
    assert (env.state["seed"] == 7).all()
    episode = env.state["episode"].clone()
    env.reset()  # once: the reset after that goes on in the new stream
    assert torch.equal(env.state["episode"], episode + 1)


def test_a_restored_state_brings_its_own_seed() -> None:
    env = tiny_env(4, seed=3)
    play(env, 5)
    saved = env.get_state()
    env.set_seed(8)
    env.reset(saved, set_state=True)
    env.reset()
    assert (env.state["seed"] == 3).all()
    assert torch.equal(env.state["episode"], saved["episode"] + 1)


def test_a_seed_per_row_and_the_row_offset() -> None:
    """Row i draws from (seed, row_offset + i), whatever the batch."""
    env, one = tiny_env(3, shell={"row_offset": 4}), tiny_env(1, shell={"row_offset": 5})
    env.reset()
    env._set_seed(torch.tensor([1, 2, 3]))
    env.reset()
    assert env.state["seed"].tolist() == [1, 2, 3]
    one.set_seed(2, static_seed=True)
    one.reset()
    assert torch.equal(env.state["item_id"][1], one.state["item_id"][0])


def test_through_wrappers_and_worker_processes() -> None:
    wrapped = TransformedEnv(tiny_env(2), StepCounter())
    wrapped.rollout(3)
    wrapped.set_seed(5, static_seed=True)
    wrapped.reset()
    assert (wrapped.base_env.state["seed"] == 5).all()
    workers = ParallelEnv(1, partial(tiny_env, 2), mp_start_method="fork")
    try:
        root = workers.reset()
        workers.set_seed(5, static_seed=True)
        root = workers.step_mdp(workers.step(workers.rand_action(root)))
        assert not differing(workers.reset().squeeze(0), tiny_env(2, seed=5).reset())
    finally:
        workers.close()


@pytest.mark.parametrize(
    ("make", "warns"),
    [
        (tiny_env, True),
        *((partial(tiny_env, shell={"row_offset": offset}), False) for offset in (0, 2)),
        # `AsyncVectorEnv` gives each worker its own seed; rows have nothing to do with it.
        (lambda: PackingGymEnv("cuboid_online", pool_size=4).reset(seed=1), False),
    ],
)
def test_worker_processes_of_one_factory_are_warned(make, warns, caplog, monkeypatch) -> None:
    """``ParallelEnv(2, make)`` would play the same items twice."""
    make()
    assert not caplog.records
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: "another process")
    make()
    assert [r for r in caplog.records if "row_offset" in r.getMessage()] == caplog.records
    assert len(caplog.records) == warns


def test_a_collector_may_be_seeded_while_it_runs() -> None:
    """``Trainer(seed=...)`` sets the seed after the collector has reset its environment."""
    env = tiny_env(4)
    collector = Collector(env, None, frames_per_batch=40, total_frames=120)
    batches = iter(collector)
    next(batches)
    collector.set_seed(3)
    for batch in batches:
        assert not batch["next", "metrics", "illegal_actions"].any()
    assert (env.state["seed"] == 0).all()
    collector.shutdown(close_env=False)
    env.reset()
    assert (env.state["seed"] == 3).all()


def pool(env: PackingEnv) -> torch.Tensor:
    return env.instances.item_id


@pytest.mark.parametrize("preset", ["irregular", "cuboid_online"])
def test_the_pool_has_a_seed_of_its_own(preset: str) -> None:
    first, other = (small_preset(preset, 3, seed=seed, pool_seed=9) for seed in (0, 1))
    assert torch.equal(pool(first), pool(other))
    for seed, env in enumerate((first, other)):
        env.reset()
        assert (env.state["seed"] == seed).all()
    assert torch.equal(pool(small_preset(preset, 3, seed=9)), pool(first))  # by default the seed
    held_out = small_preset(preset, 3, seed=9, split="test")
    assert not torch.equal(pool(held_out), pool(first))
    assert not torch.equal(pool(small_preset(preset, 3, seed=0)), pool(first))
