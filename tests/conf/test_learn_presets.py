"""The learning experiments: budgets and settings that let an agent be judged."""

import pytest
from omegaconf import DictConfig
from tests.conf.composed import of_option

from agents.config.folders import groups

LEARN = [name for name in groups()["experiment"] if name.startswith("learn_")]
SHORT = (
    "learn_blobs",
    "learn_irregular",
    "learn_voxels",
)  # five minutes, to test that an agent learns at all
AFTERSTATES = (
    "learn_afterstate", "learn_cuboid_afterstate", "learn_discrete_s1", "learn_discrete_s2",
    "learn_continuous_s1", "learn_continuous_s2", "learn_meshes",
    "learn_area_corners", "learn_constraints", "learn_buffer", "learn_cut1", "learn_cut2",
    "learn_paper", "learn_com_hull", "learn_nesting", "learn_cube",
)  # fmt: skip
"""As their published runs."""
JUDGED = [name for name in LEARN if name not in (*SHORT, *AFTERSTATES)]


def config_of(name: str) -> DictConfig:
    return of_option("train", f"experiment={name}")


@pytest.mark.parametrize("name", LEARN)
def test_rewards_are_hardly_discounted(name: str) -> None:
    """An item pays its volume wherever it lies; 0.95 left a third of what 20 decisions give."""
    assert config_of(name).agent.gamma >= 0.99


@pytest.mark.parametrize("name", [*JUDGED, *SHORT])
def test_training_instances_are_fresh(name: str) -> None:
    """A pool is replaced before its 4,096 instances have been played often."""
    config = config_of(name)
    redrawn = config.trainer.redraw_every or config.trainer.frames
    assert redrawn <= 16 * config.env.pool_size


@pytest.mark.parametrize("name", JUDGED)
def test_budgets_are_decisions(name: str) -> None:
    """Budgets were 150 s, in which machines made between 43 and 4,785 updates."""
    config = config_of(name)
    trainer, agent = config.trainer, config.agent
    assert trainer.minutes is None
    assert trainer.frames >= (80_000 if config.env.action_mode == "continuous" else 200_000)
    assert agent.get("lr_frames", trainer.frames) == trainer.frames
    if agent._target_.endswith(("PPO", "DQN")):
        least = {"cuboid_online": 5_000_000, "irregular_com_hull": 500_000}
        assert trainer.frames >= least[config.env.task]
