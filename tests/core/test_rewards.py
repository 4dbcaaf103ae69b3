"""Reward terms and their weights."""

import pytest
import torch

from packing_env.core import metrics, rewards
from packing_env.testing import check_reward
from packing_env.types import ParameterError


@pytest.mark.parametrize("name", sorted(rewards.TERMS))
def test_every_term_keeps_the_rules_of_terms(name: str) -> None:
    check_reward(name)


@pytest.mark.parametrize(
    "term",
    [
        lambda before, after, legal: after["utilization"][:, None],
        lambda before, after, legal: after["utilization"].sum(),
        lambda before, after, legal: 1.0,
        lambda before, after, legal: None,
    ],
)
def test_a_term_that_is_no_number_per_row_is_named(term, monkeypatch) -> None:
    monkeypatch.setitem(rewards.TERMS, "mine", term)
    found = {name: torch.zeros(1, dtype=torch.float64) for name in metrics.NAMES}
    with pytest.raises(ParameterError, match="'mine'"):
        rewards.weighted_terms({"mine": 1.0}, found, found, torch.tensor([True]))
