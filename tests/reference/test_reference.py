"""The reference program against results computed by hand or with exact arithmetic."""

from fractions import Fraction

import numpy as np
import pytest

from packing_env import reference
from packing_env.reference import Episode, Item, Rules
from packing_env.reference.stability import in_hull_of_contacts

INF = np.inf


def maps(rows: list[list[float]]) -> np.ndarray:
    return np.array(rows, np.float32)


def block(w: int, h: int, height: float, com: tuple[int, int] | None = None) -> Item:
    return Item(
        top=[np.full((w, h), height, np.float32)],
        bottom=[np.zeros((w, h), np.float32)],
        com=[com or (32 * w, 32 * h)],
        volume=w * h * height,
    )


def rules(**changes: object) -> Rules:
    return Rules(**{"height": 10.0, "cell": 1.0, "contact_tol": 0.0, **changes})  # type: ignore[arg-type]


def test_drop_height_is_the_largest_gap() -> None:
    ground = maps([[0, 2, 0], [1, 5, 0]])
    bottom = maps([[0, 1.5], [0, INF]])
    assert reference.drop_height(ground, bottom, 0, 0) == 1.0  # max(0-0, 2-1.5, 1-0)
    assert reference.drop_height(ground, bottom, 0, 1) == 5.0  # max(2-0, 0-1.5, 5-0)


def test_an_overhang_slides_under_nothing_but_spans() -> None:
    ground = maps([[0, 3]])
    assert reference.drop_height(ground, maps([[0, 3]]), 0, 0) == 0.0
    assert reference.drop_height(ground, maps([[0, 2.5]]), 0, 0) == 0.5


def test_contact_tolerance_decides_what_supports() -> None:
    ground, bottom = maps([[1, 0.75, 0]]), maps([[0, 0, 0]])
    assert reference.supporting_cells(ground, bottom, 0, 0, np.float32(1), 0.0) == [(0, 0)]
    cells = reference.supporting_cells(ground, bottom, 0, 0, np.float32(1), 0.25)
    assert cells == [(0, 0), (0, 1)]


def is_over(cells: list[tuple[int, int]], com: tuple[int, int]) -> bool:
    return in_hull_of_contacts([(u, v, u + 1, v + 1) for u, v in cells], [com])


def in_hull(points: set[tuple[int, int]], at: tuple[int, int]) -> bool:
    """Test exactly: outside iff directions from ``at`` to the points leave a gap over 180 deg."""
    rel = [(x - at[0], y - at[1]) for x, y in points]
    if (0, 0) in rel:
        return True
    turn = sorted(rel, key=_angle)
    return all(
        ax * by >= ay * bx for (ax, ay), (bx, by) in zip(turn, turn[1:] + turn[:1], strict=True)
    )


def _angle(p: tuple[int, int]) -> tuple[int, Fraction]:
    """Compare directions counter-clockwise, exactly."""
    x, y = p
    if y == 0:
        return (0 if x > 0 else 4, Fraction(0))
    return (1 if y > 0 else 5, Fraction(-x, abs(y)) if y > 0 else Fraction(x, abs(y)))


def test_com_hull_equals_exact_geometry() -> None:
    random = np.random.default_rng(0)
    answers = []
    for _ in range(3000):
        count = random.integers(1, 5)
        cells = [tuple(int(v) for v in random.integers(0, 5, 2)) for _ in range(count)]
        com = tuple(int(v) for v in random.integers(0, 11, 2) * random.choice([32, 16, 27]))
        corners = {(64 * (u + i), 64 * (v + j)) for u, v in cells for i in (0, 1) for j in (0, 1)}
        expected = in_hull(corners, com)
        answers.append(expected)
        assert is_over(cells, com) == expected, (cells, com)
    assert 0.1 < np.mean(answers) < 0.9


def test_stacking_two_blocks() -> None:
    episode = Episode((4, 4), [block(4, 4, 1.0), block(2, 2, 2.0)], rules())
    assert episode.decide((0, 0, 0, 0), 1) == pytest.approx(16 / 160)
    assert episode.decide((0, 0, 2, 2), 1) == pytest.approx(8 / 160)
    assert episode.heightmap[3, 3] == 3.0
    assert episode.heightmap[0, 0] == 1.0
    assert episode.terminated
    assert not episode.truncated
    found = episode.metrics()
    assert found["utilization"] == pytest.approx(24 / 160)
    assert found["compactness"] == pytest.approx(24 / 48)
    assert found["pyramidality"] == pytest.approx(1.0)
    assert found["stability"] == 1.0
    assert found["support_ratio"] == 1.0
    assert found["height_ratio"] == 0.3


def test_likely_placements_are_tried_first_and_do_not_change_the_result(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A block of 2 x 2 fits only beside one that fills the container to the lid."""
    episode = Episode((4, 2), [block(2, 2, 10.0), block(2, 2, 1.0)], rules())
    examined: list[int] = []
    examine = Episode.examine
    monkeypatch.setattr(
        Episode, "examine", lambda self, *at: (examined.append(at[2]), examine(self, *at))[1]
    )
    episode.decide((0, 0, 0, 0), 1)
    for likely, places in (([], [0, 0, 1, 1, 2]), ([(0, 0, 2, 0)], [2]), ([(0, 0, 9, 9)], [9, 0])):
        episode.likely, examined[:] = likely, []
        assert episode.any_legal(1)
        assert examined[: len(places)] == places


def test_range_pct_keeps_where_the_unrotated_item_would_fit() -> None:
    """A bar of 3 x 1 in a container of 4 x 3, and its second orientation, 1 x 3."""
    bar = Item(
        top=[np.ones((3, 1), np.float32), np.ones((1, 3), np.float32)],
        bottom=[np.zeros((3, 1), np.float32), np.zeros((1, 3), np.float32)],
        com=[(96, 32), (32, 96)],
        volume=3.0,
    )
    turned = {
        name: Episode((4, 3), [bar], rules(candidate_range=name)).mask(2)[0, 1, :, 0].tolist()
        for name in ("container", "pct")
    }
    assert turned == {"container": [True] * 4, "pct": [True, True, False, False]}
