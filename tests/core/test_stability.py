"""Stability rules: the batched hull equals the reference, and the registry."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from packing_env import reference
from packing_env.core import stability
from packing_env.types import ParameterError


def test_com_hull_of_one_placement_equals_the_reference() -> None:
    random = np.random.default_rng(1)
    support = random.random((800, 4, 5)) < random.random((800, 1, 1)) * 0.6
    com = random.integers(0, 11, (800, 2)) * 32 + random.integers(-1, 2, (800, 2))
    expected = [
        reference.com_hull([(int(u), int(v)) for u, v in np.argwhere(s)], tuple(map(int, c)))
        for s, c in zip(support, com, strict=True)
    ]
    cells = torch.from_numpy(support)
    found = stability.com_hull_single(cells, cells, torch.from_numpy(com))
    assert found.tolist() == expected
    assert 0.1 < np.mean(expected) < 0.9


def test_supporting_cells_are_within_the_tolerance() -> None:
    window = torch.tensor([[[1.0, 0.75, 0.0]]])
    bottom = torch.tensor([[[0.0, 0.0, torch.inf]]])
    z = torch.tensor([1.0])
    assert stability.supporting_cells(window, bottom, z, 0.0).tolist() == [[[True, False, False]]]
    assert stability.supporting_cells(window, bottom, z, 0.25).tolist() == [[[True, True, False]]]
    nowhere = stability.supporting_cells(window, bottom, torch.tensor([torch.inf]), 0.25)
    assert not nowhere.any()


def test_an_unknown_rule_names_the_known() -> None:
    with pytest.raises(ParameterError, match=r"'wind' is unknown; .*com_hull"):
        stability.get_rule("wind")


def test_a_taken_name_is_refused() -> None:
    with pytest.raises(ParameterError, match="exists"):
        stability.register("none", stability.get_rule("none"))
