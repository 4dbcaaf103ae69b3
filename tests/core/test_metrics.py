"""Metrics by hand."""

import pytest
import torch

from packing_env.core import metrics
from packing_env.types import PackingParams

PARAMS = PackingParams(container=(2.0, 2.0, 4.0), cell=1.0, num_items=4)


def measure(heights: list[list[float]], **state: float) -> dict[str, float]:
    known = {
        "volume": 0.0, "items_packed": 0, "num_items": 4, "stable_items": 0,
        "support_sum": 0.0, "illegal_actions": 0, "overflow": 0,
    }  # fmt: skip
    found = metrics.measure(
        {
            "heightmap": torch.tensor([heights]),
            **{
                key: torch.tensor(
                    [value], dtype=torch.float64 if isinstance(value, float) else torch.int64
                )
                for key, value in {**known, **state}.items()
            },
        },
        PARAMS,
    )
    assert set(found) == set(metrics.NAMES)
    assert all(value.dtype == torch.float64 for value in found.values())
    return {key: float(value) for key, value in found.items()}


def test_a_packed_container() -> None:
    found = measure(
        [[2.0, 1.0], [0.0, 0.0]],
        volume=2.4, items_packed=2, stable_items=1, support_sum=1.5, illegal_actions=3,
    )  # fmt: skip
    assert found["utilization"] == pytest.approx(2.4 / 16)
    assert found["compactness"] == pytest.approx(2.4 / 8)
    assert found["pyramidality"] == pytest.approx(2.4 / 3)
    assert found["stability"] == 0.5
    assert found["support_ratio"] == 0.75
    assert found["height_ratio"] == 0.5
    assert found["success"] == 0
    assert found["illegal_actions"] == 3


def test_nothing_is_clipped() -> None:
    assert measure([[1.0, 0.0], [0.0, 0.0]], volume=99.0)["pyramidality"] == 99.0
