"""Constructors take flat keywords, and receive them grouped."""

from dataclasses import dataclass

import pytest

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
