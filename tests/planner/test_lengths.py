"""Lengths as people write them, read exactly."""

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any

import pytest

from packing_env.planner.reading.lengths import (
    exact,
    exact_container,
    exact_length,
    metres,
)
from packing_env.values import UNITS, ParameterError, read_unit


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("60", 60),
        (" 2.5 ", Fraction(5, 2)),
        ("2,5", Fraction(5, 2)),
        (".5", Fraction(1, 2)),
        ("1.200", Fraction(6, 5)),
        ("0,250", Fraction(1, 4)),
        ("1234,5", Fraction(2469, 2)),
        ("1.200,5", Fraction(2401, 2)),
        ("-1,200.5", Fraction(-2401, 2)),
        ("1,200,500", 1200500),
        ("1'200", 1200),
        ("1\u00a0200", 1200),
        ("1 200,5", Fraction(2401, 2)),
        ("1e3", 1000),
        ("1E-1", Fraction(1, 10)),
        ("3/8", Fraction(3, 8)),
        ("7 1/2", Fraction(15, 2)),
        ("7-1/2", Fraction(15, 2)),
        ("7½", Fraction(15, 2)),
        ("-3", -3),
        (7, 7),
        (0.1, Fraction(1, 10)),
        (1.234, Fraction(617, 500)),
        (0.12345678, Fraction(6172839, 50000000)),
        (1 / 3, Fraction(1, 3)),
        (0.0254 / 3, Fraction(127, 15000)),  # a third of an inch, in metres
        (Decimal("0.1"), Fraction(1, 10)),
        (Fraction(1, 3), Fraction(1, 3)),
    ],
)
def test_numbers_are_exact(value: Any, number: Any) -> None:
    assert exact(value) == number


@pytest.mark.parametrize(
    "value",
    [
        "", "x", "1_0", "1/0", "1 2", "1.2.3", "1,200", "1,20.5", "1,200,5", "1,200.", "0.200,5",
        "1 200", "inf", "nan", float("inf"), float("nan"), True, None, "1e999999999", "٣", [1],
    ],
)  # fmt: skip
def test_what_is_no_number_or_may_be_two_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match=r"number|may be|thousands") as refusal:
        exact(value)
    assert repr(value) in str(refusal.value)


def test_where_commas_are_decimal_points_of_thousands_are_refused() -> None:
    assert exact("1,200", decimal_comma=True) == Fraction(6, 5)
    assert exact(1.234, decimal_comma=True) == Fraction(617, 500)
    with pytest.raises(ValueError, match=r"'1\.200' may be 1\.200 or 1200"):
        exact("1.200", decimal_comma=True)


@pytest.mark.parametrize(
    ("value", "length"),
    [
        ("5mm", Fraction(5, 1000)),
        ("5 MM", Fraction(5, 1000)),
        ("7 1/2 in", Fraction(381, 2000)),
        ('7 1/2"', Fraction(381, 2000)),
        ("1 foot", Fraction(3048, 10000)),
        ("5' 3 1/2\"", Fraction(127, 2) * Fraction(254, 10000)),
        ("5 ft 3 in", 63 * Fraction(254, 10000)),
        ("2,5 Centimetres", Fraction(25, 1000)),
        (0.005, Fraction(5, 1000)),
        (0, 0),
    ],
)
def test_lengths_are_in_metres(value: Any, length: Any) -> None:
    assert exact_length("cell", value) == length


@pytest.mark.parametrize(
    ("container", "sides", "unit"),
    [
        ("300x200x100mm", ("0.3", "0.2", "0.1"), "mm"),
        ("300 X 200 \u00d7 100 MM", ("0.3", "0.2", "0.1"), "mm"),
        ("300mm x 20cm x 0.1m", ("0.3", "0.2", "0.1"), "m"),
        ('4\' 2" x 3\'6" x 5 ½"', ("1.27", "1.0668", "0.1397"), "in"),
        ("7 1/2x3x4 inches", ("0.1905", "0.0762", "0.1016"), "in"),
        ("2,5x1x1m", ("2.5", "1", "1"), "m"),
        ((0.1, 0.2, Fraction(1, 3)), ("0.1", "0.2", "1/3"), "m"),
    ],
)
def test_containers_are_exact(container: Any, sides: tuple[str, ...], unit: str) -> None:
    assert exact_container(container) == (tuple(map(Fraction, sides)), unit)


WRONG_LENGTHS = [
    ("5", "cell='5' needs a unit"),
    ("5 milimeter", "did you mean millimeter"),
    ("mm", "must be 1 lengths and a unit"),
    ("-5mm", "must not be negative"),
    (float("nan"), "cell"),
    ("1'005 in", "must be 1 lengths"),  # thousands, not feet
    ("5' 14\"", "12 inches or more"),
    ("5 inchs", "did you mean inches"),
]
WRONG_CONTAINERS = [
    ((240, 180, 150), "lengths without a unit are metres"),
    ("240x180mm", "must be 3 lengths and a unit"),
    ("240x180x150", "needs a unit"),
    ("240x180x150furlong", "as in 240x180x150mm"),
    ("300mm x 200 x 100", "one unit at the end, or one after each"),
    ("1,225x1x1m", "='1,225x1x1m': '1,225' may be 1.225 or 1225: .* as 1225, or .* as 1.225"),
    ("300x200x100mmm", "did you mean mm"),
    ("0x2x1m", "more than 0"),
    ((1, 2), "three lengths"),
]


@pytest.mark.parametrize(
    ("read", "value", "message"),
    [
        *((partial(exact_length, "cell"), *case) for case in WRONG_LENGTHS),
        *((exact_container, *case) for case in WRONG_CONTAINERS),
    ],
)
def test_wrong_lengths_are_refused(read: Callable[[Any], Any], value: Any, message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read(value)


@pytest.mark.parametrize(
    ("word", "unit"),
    [
        ("MM", "mm"), ("Millimetres", "mm"), ("millimeter", "mm"), ("cm", "cm"), ("M", "m"),
        ("metre", "m"), ("meters", "m"), ("IN", "in"), ("inch", "in"), ("Inches", "in"),
        ('"', "in"), ("ft", "ft"), ("feet", "ft"), ("'", "ft"), ("in.", "in"), ("µm", "um"),
    ],
)  # fmt: skip
def test_units_have_their_usual_names(word: str, unit: str) -> None:
    assert read_unit("unit", word) == unit
    assert metres(word) == Fraction(str(UNITS[unit]))
