"""The plain formulations that kernels are compared with agree with the rules."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from agents.bench.baselines.agreement import compare_with_unfold
from agents.bench.baselines.formulations import lowest, numpy_map, unfold_legal, unfold_map
from agents.bench.baselines.problems import SIZES, Size, random_problem
from packing_env import kernels


@pytest.mark.parametrize("backend", kernels.available_backends("cpu"))
def test_heights_legality_and_the_lowest_place_agree(
    backend: str, record_property: pytest.RecordProperty
) -> None:
    found = compare_with_unfold(backend, cases=200, seed=1)
    record_property("ties", found.ties)
    assert found.cases == 200
    assert found.heights == found.legality == found.choices == 0
    assert found.ties > 10  # cases that only the order of places decides
    assert 10 < found.none_legal < 100


def test_a_wrong_kernel_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = kernels.drop_height
    monkeypatch.setattr(kernels, "drop_height", lambda *given, **kw: exact(*given, **kw) + 1e-3)
    found = compare_with_unfold("eager", cases=20, seed=1)
    assert found.heights > 10
    assert found.differences > found.heights


def test_a_map_by_hand() -> None:
    heightmap = torch.tensor([[0.0, 1.0, 0.0], [2.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    bottom = torch.tensor([[0.0, torch.inf], [0.5, 0.0]])
    expected = torch.tensor([[1.5, 1.0], [2.0, 0.0]])  # the empty cell does not bind
    assert torch.equal(unfold_map(heightmap, bottom, 1), expected)
    assert torch.equal(unfold_map(heightmap, bottom, 2), expected[:1, :1])
    mine = numpy_map(heightmap.numpy(), bottom.numpy(), 1)
    assert np.array_equal(mine, expected.numpy())
    assert unfold_legal(expected, 1.0, 2.0).tolist() == [[False, True], [False, True]]


def test_the_lowest_place_is_the_first_of_equals() -> None:
    high, low = torch.tensor([[3.0, 2.0]]), torch.tensor([[1.0, 1.0], [0.5, 1.0]])
    everywhere = [torch.ones_like(z, dtype=torch.bool) for z in (high, low)]
    assert lowest([high, low], everywhere) == ((1, 1, 0), 1)
    everywhere[1][1, 0] = False
    assert lowest([high, low], everywhere) == ((1, 0, 0), 3)
    assert lowest([high, high], everywhere[:1] * 2) == ((0, 0, 1), 2)
    assert lowest([high], [~everywhere[0]]) == (None, 0)


def test_the_published_sizes() -> None:
    millions = {name: round(size.operations / 1e6) for name, size in SIZES.items()}
    assert (millions["A"], millions["A1"], millions["B"]) == (64, 990, 613)
    assert round(SIZES["batch"].operations / 1e9, 1) == 66.1


def test_a_problem_is_what_its_size_says() -> None:
    size = Size(2, 30, 3, ((5, 9), (1, 1), (9, 5)))
    problem = random_problem(size, torch.Generator().manual_seed(0))
    assert problem.bottom.shape == (2, 3, 9, 9)
    assert bool((problem.heightmap >= 0).all())
    for orientation, (w, h) in enumerate(size.footprints):
        bottom = problem.cut(1, orientation)
        assert bottom.shape == (w, h)
        assert bool(bottom[0, 0] == 0)
        assert bool(bottom[-1, -1].isfinite())
        assert problem.bottom[1, orientation].isfinite().sum() == bottom.isfinite().sum()
    filled = problem.cut(0, 0).isfinite().float().mean()
    assert 0.6 < float(filled) < 0.97
