"""Reward terms and their weights."""

import pytest
import torch

from packing_env.core import metrics, rewards
from packing_env.testing import check_reward
from packing_env.types import ParameterError


def metric(**values: float) -> dict[str, torch.Tensor]:
    return {n: torch.tensor([values.get(n, 0.0)], dtype=torch.float64) for n in metrics.NAMES}


@pytest.mark.parametrize("name", sorted(rewards.TERMS))
def test_every_term_keeps_the_rules_of_terms(name: str) -> None:
    check_reward(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("objective", 0.75 * 0.2 + 0.25 * 0.3 + 0.25 * 0.5),
        ("utilization", 0.1),
        ("item", 1.0),
        ("height", -0.25),
        ("illegal", 0.0),
    ],
)
def test_terms_by_hand(name: str, value: float) -> None:
    before = metric(utilization=0.2, compactness=0.4, pyramidality=0.5, stability=0.5)
    after = metric(
        utilization=0.3, compactness=0.6, pyramidality=0.8, stability=1.0, items_packed=1,
        height_ratio=0.25,
    )  # fmt: skip
    assert float(rewards.TERMS[name](before, after, torch.tensor([True]))) == pytest.approx(value)


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
    with pytest.raises(ParameterError, match="'mine'"):
        rewards.weighted_terms({"mine": 1.0}, metric(), metric(), torch.tensor([True]))


def test_an_illegal_action_costs_its_weight() -> None:
    same = metric()
    terms = rewards.weighted_terms({"item": 2.0, "illegal": 0.5}, same, same, torch.tensor([False]))
    assert terms.tolist() == [[0.0, -0.5]]
