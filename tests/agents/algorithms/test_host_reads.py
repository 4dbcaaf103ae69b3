"""No agent reads from the device, in a decision or in an update."""

from collections import Counter

import pytest
import torch
from hydra.utils import instantiate
from tests.agents.algorithms.test_every_agent import small_config
from tests.agents.algorithms.test_every_update import SETTINGS
from tests.counting import host_reads as reads
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.config.build import build_agent, build_env, build_replay
from agents.training.trainer import Trainer


def trainer_of(case: str) -> Trainer:
    """An agent that has trained for a while, so that nothing happens for the first time."""
    torch.manual_seed(0)
    agent, *options = SETTINGS[case]
    config = small_config(agent, *options, "trainer.log_every=100_000")
    env = build_env(config)
    agent = build_agent(config, env)
    replay = build_replay(config, env, agent)
    collector = instantiate(config.collector)(env, agent.policy)
    trainer = instantiate(config.trainer)(agent, collector, replay)
    while trainer.updates < 2:
        trainer.step()
    return trainer


@pytest.mark.parametrize("case", ["afterstate", "dqn", "hierarchical", "ppo", "sac"])
def test_training_and_acting_read_nothing(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(case)
    # On a CPU, and only there, Adam's kernel reads its own step counters: leave it out.
    monkeypatch.setattr(torch.optim.Adam, "step", lambda self, closure=None: None)
    before = trainer.updates

    def train() -> None:
        while trainer.updates < before + 2:
            trainer.step()

    assert reads(train, 1) == Counter()
    assert trainer.updates == before + 2
    env, policy = trainer.collector.env, trainer.agent.policy
    root = env.reset()

    def act() -> None:
        nonlocal root
        _, root = env.step_and_maybe_reset(policy(root))

    for mode in (ExplorationType.RANDOM, ExplorationType.DETERMINISTIC):
        with torch.no_grad(), set_exploration_type(mode):
            act()
            assert reads(act, 2) == Counter()
