"""Constructors take flat keywords, and receive them grouped."""

import inspect
from dataclasses import dataclass

import pytest
from omegaconf import OmegaConf
from tests.agents.algorithms.test_every_agent import LEARNERS

from agents.config.checks import locate
from agents.config.compose import compose
from agents.options import option_groups


@dataclass(frozen=True)
class Rate:
    lr: float = 1e-3
    lr_end: float = 1e-4


class Built:
    @option_groups
    def __init__(self, env: str, *, size: int = 3, rate: Rate = Rate(lr_end=0.5)) -> None:
        self.env, self.size, self.rate = env, size, rate


def test_fields_are_keywords_of_their_own() -> None:
    assert Built("env").rate == Rate(1e-3, 0.5)
    built = Built(env="env", size=4, lr=0.1)
    assert (built.env, built.size, built.rate) == ("env", 4, Rate(0.1, 0.5))


def test_a_whole_group_may_be_given() -> None:
    assert Built("env", rate=Rate(0.1, 0.2), lr=0.3).rate == Rate(0.3, 0.2)


def test_a_misspelt_option_names_its_neighbour() -> None:
    with pytest.raises(TypeError, match="Built got an unknown option 'lr_ends', did you mean"):
        Built("env", lr_ends=0.1)


@pytest.mark.parametrize("name", LEARNERS)
def test_the_file_of_an_agent_has_every_option_with_its_default(name: str) -> None:
    node = OmegaConf.to_container(compose("train", [f"agent={name}"]).agent, resolve=False)
    taken = inspect.signature(locate(node, "agent")).parameters
    options = {key for key in node if not key.startswith("_")}
    assert options == set(taken) - {"env"}
    for key in options - {"network", "risk"}:
        assert node[key] == taken[key].default, key
