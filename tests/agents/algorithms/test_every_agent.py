"""Every learning agent of the configuration: collect, train, evaluate, save, load, again."""

import copy
import math
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from tests.agents.conftest import TINY_OVERRIDES

from agents.algorithms.base import Agent
from agents.config.build import build_held_out, build_trainer
from agents.config.checks import check_modes, locate
from agents.config.compose import compose
from agents.config.folders import ConfigError, groups
from agents.config.keys import parse
from agents.loggers.logging import NullLogger
from agents.training import checkpoint
from agents.training.evaluate import evaluate
from agents.training.loading import load_policy as load_trained
from agents.training.resume import load_policy

LEARNERS = [
    name for name in groups()["agent"] if name not in ("heuristic", "search", "beam", "finalists")
]


def often(cases: Iterable[str], *quick: str) -> list[Any]:
    """Cases; all but a few are slow tests."""
    return [case if case in quick else pytest.param(case, marks=pytest.mark.slow) for case in cases]


ONE_OF_EACH_KIND = often(LEARNERS, "afterstate", "dqn", "hierarchical", "ppo", "sac")
"""One of each kind of update in every test run."""
CASES = {name: [f"agent={name}"] for name in LEARNERS} | {
    f"{name} {mode}": [f"agent={name}", f"env.action_mode={mode}", f"network={network}"]
    for name, mode, network in (
        ("dqn", "candidate", "candidate_scores"),
        ("rainbow", "candidate", "candidate_scores"),
        ("iqn", "candidate", "candidate_scores"),
        ("ppo", "candidate", "candidate_actor_critic"),
        ("ppo", "multi_head", "multi_head_actor_critic"),
    )
}
"""Every agent in its own action mode, and in the others that it learns in."""
SMALL = {
    "agent.batch_size": 4,
    "replay.capacity": 64,
    "replay.horizon": 4,
    "trainer.warmup": 8,
    "trainer.update_every": 8,
}
"""Sizes, where the configuration has them."""
INDEPENDENT = ("agent.", "network.", "trainer.", "collector.", "evaluation.", "env.num_envs")
"""Keys that no other key depends on: to set them takes a hundredth of the time to compose them."""


def small_config(case: str, *overrides: str) -> DictConfig:
    """The agent on the tiny task, with as little work per update as it allows; a new copy."""
    others = [text for text in overrides if not text.startswith(INDEPENDENT)]
    config = copy.deepcopy(_small_config(case, *others))
    for override in parse([text for text in overrides if text not in others]):
        OmegaConf.update(config, override.key_or_group, override.value())
    return config


@cache
def _small_config(case: str, *overrides: str) -> DictConfig:
    config = compose("train", [*TINY_OVERRIDES, *CASES[case], "trainer.frames=48", *overrides])
    for key, value in SMALL.items():
        if OmegaConf.select(config, key):
            OmegaConf.update(config, key, value)
    return config


@pytest.mark.parametrize("case", often(CASES, *LEARNERS, "dqn candidate", "ppo multi_head"))
def test_an_agent_from_start_to_end(case: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = small_config(case, "evaluation.instances=4")
    trainer = build_trainer(config)
    agent, env = trainer.agent, trainer.collector.env
    assert isinstance(agent, Agent)
    before = [parameter.detach().clone() for parameter in agent.policy.parameters()]
    trainer.run(NullLogger(tmp_path))
    trainer.collector.close()
    assert trainer.updates > 0
    assert math.isfinite(trainer.last["loss"])
    assert trainer.last["skipped"] == 0
    after = list(agent.policy.parameters())
    assert any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))

    held_out = build_held_out(config, env)
    played = evaluate(held_out, agent.policy)
    again = evaluate(held_out, agent.policy)
    meta = {"config": OmegaConf.to_container(config, resolve=False)}
    path = checkpoint.save(tmp_path, trainer.frames, trainer.state_dict(), meta)
    torch.manual_seed(1)  # other weights, before they are loaded
    loaded = load_policy(config, checkpoint.load(path), held_out)
    restored = evaluate(held_out, loaded)
    weights = load_trained(path, held_out).state_dict()  # the environment tells the action mode
    assert all(torch.equal(value, weights[key]) for key, value in loaded.state_dict().items())
    for metric, values in played.metrics.items():
        assert torch.equal(values, again.metrics[metric]), metric
        assert torch.equal(values, restored.metrics[metric]), metric
    assert played.metrics["illegal_actions"].sum() == 0


@pytest.mark.parametrize("name", LEARNERS)
def test_an_action_mode_that_does_not_fit_is_refused(name: str) -> None:
    config = small_config(name)
    modes = locate(config.agent, "agent").action_modes
    mode = config.env.action_mode = "placement" if "continuous" in modes else "continuous"
    with pytest.raises(ConfigError, match=f"not '{mode}'; set env.action_mode={modes[0]}"):
        check_modes(config, ())
