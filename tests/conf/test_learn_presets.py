"""The learning experiments: settings that let an agent be judged."""

import pytest
from omegaconf import DictConfig
from tests.conf.composed import of_option

from agents.config.folders import groups


@pytest.fixture(params=[name for name in groups()["experiment"] if name.startswith("learn_")])
def config(request: pytest.FixtureRequest) -> DictConfig:
    return of_option("train", f"experiment={request.param}")


def test_rewards_are_hardly_discounted(config: DictConfig) -> None:
    """An item pays its volume wherever it lies; 0.95 left a third of what 20 decisions give."""
    assert config.agent.gamma >= 0.99


def test_training_instances_are_fresh(config: DictConfig) -> None:
    """A pool is replaced before its instances have been played often.

    Values of afterstates may play them more often: their published runs did.
    """
    redrawn = config.trainer.redraw_every or config.trainer.frames
    decisions = 400 if config.agent._target_.endswith("Afterstate") else 16  # of each instance
    assert redrawn <= decisions * config.env.pool_size


def test_budgets_are_decisions(config: DictConfig) -> None:
    """Budgets were 150 s, in which machines made between 43 and 4,785 updates."""
    frames, minutes = config.trainer.frames, config.trainer.minutes
    if minutes is not None:  # to test that an agent learns at all
        assert config.name in ("learn_blobs", "learn_irregular")
    else:
        assert config.agent.get("lr_frames", frames) == frames
