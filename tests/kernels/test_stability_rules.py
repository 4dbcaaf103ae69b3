"""The formulas of the stability rules: torch, numba and the reference program agree on them."""

import numpy as np
import pytest
import torch

from packing_env import kernels
from packing_env.kernels import stability_rules as rules

NUM = 200_000


def cases(seed: int) -> tuple[np.ndarray, ...]:
    """Random counts, areas, corners, contact of the highest corner, and verdicts of a hull."""
    random = np.random.default_rng(seed)
    area = random.integers(0, 200, NUM)
    count = random.integers(0, area + 1)
    near = random.random(NUM) < 0.5  # near the shares, exact ones too
    share = random.choice([50, 60, 80, 85, 95], NUM)
    count[near] = np.clip(share * area // 100 + random.integers(-1, 2, NUM), 0, area)[near]
    flags = random.random((2, NUM)) < 0.5
    return count, area, random.integers(0, 5, NUM), flags[0], flags[1]


def in_torch(name: str, seed: int) -> np.ndarray:
    count, area, corners, touching, in_hull = map(torch.from_numpy, cases(seed))
    rule = rules.RULES[name]
    limits = tuple(rules.limit(area, percent) for percent in rule.percents)
    support = rules.Support(count, limits, corners, touching, in_hull, area)
    return (torch.ones(NUM, dtype=torch.bool) & rule.formula(support)).numpy()


def written_out(name: str, seed: int) -> np.ndarray:
    """Return the verdicts of the papers' formulas, with shares as fractions."""
    count, area, corners, touching, in_hull = cases(seed)

    def over(percent: int) -> np.ndarray:
        return 100 * count > percent * area

    held = {
        "none": np.ones(NUM, bool),
        "area_corners": over(60) & (corners == 4) | over(80) & (corners >= 3) | over(95),
        "area_corners_code": (corners >= 3)
        & (over(95) | touching & np.where(corners == 4, over(50), over(85))),
        "center_hull": (2 * count > area) | in_hull,
        "com_hull": in_hull,
    }
    return held[name]


@pytest.mark.parametrize("name", rules.NAMES)
def test_torch_evaluates_the_formula(name: str) -> None:
    assert np.array_equal(in_torch(name, 0), written_out(name, 0))


@pytest.mark.parametrize("name", rules.NAMES)
@pytest.mark.skipif("numba" not in kernels.available_backends(), reason="needs numba")
def test_numba_compiles_the_same_formula(name: str) -> None:
    from packing_env.kernels.compiled.jit import kernel
    from packing_env.kernels.compiled.stability_rules import judge, limits

    @kernel
    def judge_all(rule, found, out):
        count, area, corners, touching, in_hull = found
        for i in range(out.size):
            share = limits(rule, area[i])
            measured = (count[i], share, corners[i], touching[i], in_hull[i], area[i])
            support = rules.Support(*measured)
            out[i] = judge(rule, support)

    out = np.zeros(NUM, bool)
    judge_all(rules.NAMES.index(name), cases(1), out)
    assert np.array_equal(out, in_torch(name, 1))


def test_rules_are_monotone() -> None:
    """Therefore, backends may skip the hull where a rule holds without it."""
    for name, rule in rules.RULES.items():
        for corners in range(5):
            for touching in (False, True):
                verdicts = [
                    bool(rule.formula(rules.Support(count, limits, corners, touching, in_hull, 40)))
                    for in_hull in (False, True)
                    for limits in [tuple(rules.limit(40, percent) for percent in rule.percents)]
                    for count in range(41)
                ]
                assert verdicts == sorted(verdicts[:41]) + sorted(verdicts[41:]), name
                assert all(a <= b for a, b in zip(verdicts[:41], verdicts[41:], strict=True)), name


def test_a_share_is_exceeded_by_whole_cells() -> None:
    for area in range(60):
        for percent in (50, 60, 80, 85, 95):
            limit = rules.limit(area, percent)
            assert [count > limit for count in range(area + 1)] == [
                100 * count > percent * area for count in range(area + 1)
            ]
