"""Pools of training instances drawn anew: other instances, the same after a break, and no reads."""

import copy
from pathlib import Path

import pytest
import torch
from tests.agents.training.test_resume import trainer_of
from tests.counting import host_reads as reads

from agents.config.build import build_trainer
from agents.config.compose import compose
from agents.loggers.logging import NullLogger
from agents.training.trainer import Trainer
from agents.training.workers import device_collector
from packing_env import PackingEnv, make_env
from packing_env.generators import GeneratorError
from packing_env.types import Instances, ParameterError

SMALL = {"num_items": 5, "pool_size": 16}


def env_of(num_envs: int = 4, **options: object) -> PackingEnv:
    return make_env("cuboid_online", num_envs=num_envs, **SMALL, **options)


def stepped(trainer: Trainer, count: int) -> Trainer:
    for _ in range(count):
        trainer.step()
    return trainer


def copied(instances: Instances) -> torch.Tensor:
    return instances.item_id.clone()


@pytest.mark.parametrize("engine", ["auto", "rules"])
def test_running_episodes_keep_their_items_and_new_ones_have_others(engine: str) -> None:
    env = env_of(8, engine=engine)
    torch.manual_seed(0)
    root = env.step_and_maybe_reset(env.rand_action(env.reset()))[1]
    running, former = env.get_state()["item_id"], copied(env.instances)
    drawn = env.pools(5)
    assert not reads(lambda: env.exchange(drawn), 1)
    assert torch.equal(env.get_state()["item_id"], running)
    for _ in range(12):
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
    state = env.get_state()
    assert (state["episode"] > 0).all()
    present = {tuple(row) for row in env.instances.item_id.tolist()}
    assert {tuple(row) for row in state["item_id"].tolist()} <= present
    assert present.isdisjoint(tuple(row) for row in former.tolist())


def test_training_goes_on_bit_for_bit_with_pools_drawn_anew() -> None:
    """Training stops after the first redraw; the resumed run passes the second."""
    every = "trainer.redraw_every=120"
    whole = stepped(trainer_of("dqn", every), 20)
    state = copy.deepcopy(stepped(trainer_of("dqn", every), 9).state_dict())
    second = trainer_of("dqn", every, seed=1)
    second.load_state_dict(state)
    stepped(second, 11)
    assert (whole.frames, whole.schedule.pool(whole.frames)) == (400, 3)
    one, other = (each.collector.env for each in (whole, second))
    assert torch.equal(one.instances.item_id, other.instances.item_id)
    assert torch.equal(one.get_state()["item_id"], other.get_state()["item_id"])
    for a, b in zip(*(t.agent.network.parameters() for t in (whole, second)), strict=True):
        assert torch.equal(a, b)
    usual = trainer_of("dqn")
    first_pool = copied(usual.collector.env.instances)
    usual.run(NullLogger(Path()))
    assert torch.equal(usual.collector.env.instances.item_id, first_pool)
    assert not torch.equal(one.instances.item_id, first_pool)


def test_a_generator_with_one_pool_is_refused_at_the_start() -> None:
    task = ["env=cuboid_continuous", "env.pool_size=4", "env.num_items=4", "env.num_envs=2"]
    config = compose("train", [*task, "network=candidate_scores", "trainer.redraw_every=100"])
    with pytest.raises(GeneratorError, match="redraw_every=null"):
        build_trainer(config, device_collector)
    bare = env_of()
    bare.pools = None
    with pytest.raises(ParameterError, match="make_env"):
        bare.redraw(1)
