"""No agent reads from the device, in a decision or in an update; the naive wrapper does."""

from collections import Counter

import pytest
import torch
from hydra.utils import instantiate
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tests.agents.algorithms.test_every_agent import small_config
from tests.agents.algorithms.test_every_update import SETTINGS
from tests.counting import host_reads as reads
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.config.build import build_agent, build_env, build_replay
from agents.policies.policy_wrapper import PolicyWrapper
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


class NaiveWrapper(TensorDictModuleBase):
    """The policy as it is written first: a loop over rows, each taken to the host and back."""

    def __init__(self, policy: PolicyWrapper) -> None:
        super().__init__()
        self.policy = policy
        self.in_keys, self.out_keys = policy.in_keys, policy.out_keys

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        rows = []
        for row in tensordict.unbind(0):
            value = self.policy.action_values(row[None])[0]
            legal = row["action_mask"].nonzero().squeeze(1)
            if torch.rand(()).item() < self.policy.epsilon.item():
                rows.append(legal[torch.randint(len(legal), ())].item())
            else:
                rows.append(legal[value[legal].argmax()].item())
        return tensordict.set("action", torch.tensor(rows, device=tensordict.device))


def test_the_naive_wrapper_fails_this_check() -> None:
    counts = []
    for num_envs in (4, 8):
        config = small_config("dqn", f"env.num_envs={num_envs}")
        env = build_env(config)
        policy, root = NaiveWrapper(build_agent(config, env).policy), env.reset()
        with torch.no_grad():
            counts.append(reads(lambda p=policy, r=root: p(r), 1).total())
    assert counts[0] > 0
    assert counts[1] > 1.5 * counts[0]
