"""The learning experiments: budgets and settings that let an agent be judged."""

from __future__ import annotations

import pytest
from omegaconf import DictConfig

from agents.config.compose import compose
from agents.config.folders import groups

LEARN = [name for name in groups()["experiment"] if name.startswith("learn_")]
SHORT = ("learn_blobs", "learn_irregular")  # five minutes, to test that an agent learns at all
AFTERSTATES = (
    "learn_afterstate", "learn_cuboid_afterstate", "learn_discrete_s1", "learn_discrete_s2",
    "learn_continuous_s1", "learn_continuous_s2", "learn_meshes",
    "learn_area_corners", "learn_constraints", "learn_buffer", "learn_cut1", "learn_cut2",
    "learn_paper", "learn_com_hull", "learn_nesting",
)  # fmt: skip
"""As their published runs."""
JUDGED = [name for name in LEARN if name not in (*SHORT, *AFTERSTATES)]


def config_of(name: str) -> DictConfig:
    given = ["items.paths=parts"] if name in ("learn_blobs", "learn_meshes") else []
    return compose("train", [f"experiment={name}", *given])


@pytest.mark.parametrize("name", LEARN)
def test_rewards_are_hardly_discounted(name: str) -> None:
    """An item pays its volume wherever it lies; 0.95 left a third of what 20 decisions give."""
    assert config_of(name).agent.gamma >= 0.99


@pytest.mark.parametrize("name", [*JUDGED, *SHORT])
def test_training_instances_are_fresh(name: str) -> None:
    """A pool is replaced before its 4,096 instances have been played often."""
    config = config_of(name)
    assert config.trainer.redraw_every <= 16 * config.env.pool_size


@pytest.mark.parametrize("name", JUDGED)
def test_budgets_are_decisions(name: str) -> None:
    """They were 150 s, whatever the machine made of them: 43 to 4,785 updates."""
    config = config_of(name)
    trainer, agent = config.trainer, config.agent
    assert (trainer.seconds, trainer.minutes) == (None, None)
    assert trainer.frames >= (80_000 if config.env.action_mode == "continuous" else 200_000)
    assert agent.get("lr_frames", trainer.frames) == trainer.frames
    if agent._target_.endswith(("PPO", "DQN")):
        least = {"cuboid_online": 5_000_000, "irregular_com_hull": 500_000}
        assert trainer.frames >= least[config.env.task]


@pytest.mark.parametrize("name", [name for name in LEARN if "rainbow" in name or "iqn" in name])
def test_distributions_are_learned_from_replays_used_often(name: str) -> None:
    """On boxes, whose steps are cheap, they learn as DQN does: an update per 64 decisions."""
    config = config_of(name)
    if config.env.task == "cuboid_online":
        assert config.trainer.update_every == 64
    else:
        assert 8 <= config.trainer.update_every <= 16
    assert config.agent.get("adam_eps", 1e-8) <= 1e-8


def test_the_manager_makes_twenty_thousand_updates() -> None:
    config = config_of("learn_hierarchical")
    joint = config.trainer.frames - config.agent.stage1_frames
    assert joint // config.trainer.update_every // config.agent.manager_every >= 20_000


@pytest.mark.parametrize("name", [name for name in LEARN if "iqn" in name])
def test_kappa_is_in_units_of_returns(name: str) -> None:
    """A reward that is scaled without it turns the loss linear, or quadratic everywhere."""
    config = config_of(name)
    assert config.agent.kappa == pytest.approx(0.01 * config.reward.utilization)
