"""A trained run to be attacked, and its configurations."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from benchmarks.attacks import make_run
from omegaconf import DictConfig, OmegaConf
from tests.agents.conftest import TINY_OVERRIDES

from agents.config.compose import compose


@pytest.fixture(scope="session")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a checkpoint; tests change copies of it."""
    return make_run(tmp_path_factory.mktemp("honest") / "run")


@pytest.fixture
def run(honest: Path, tmp_path: Path) -> Path:
    """A copy of the run for one test."""
    shutil.copytree(honest, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture(scope="session")
def composed() -> DictConfig:
    """The configuration of the command ``train``."""
    return compose("train")


@pytest.fixture(scope="session")
def saved() -> dict[str, Any]:
    """The configuration that a run of the tiny task stores."""
    return OmegaConf.to_container(compose("train", TINY_OVERRIDES), resolve=False)
