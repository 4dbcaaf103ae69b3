"""Weights and shares as people write them, read exactly: ``400kg``, ``12 lb``, ``80 %``, ``0.8``.

A weight without a unit is in kilograms.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from packing_env.names import close_names
from packing_env.planner.reading.lengths import AMOUNT, exact
from packing_env.values import ParameterError, keyboard_signs

_KILOGRAMS = {
    "kg": Fraction(1),
    "g": Fraction(1, 1000),
    "t": Fraction(1000),
    "lb": Fraction("0.45359237"),
    "oz": Fraction("0.028349523125"),
}
"""Kilograms per unit (pound and ounce: avoirdupois, NIST Handbook 44, appendix C)."""
_WORDS = {
    "kg": "kgs kilo kilos kilogram kilograms kilogramm kilogramme kilogrammes кг 公斤 千克 キロ "
    "kilogramma 킬로그램",
    "g": "gr gram grams gramm gramme grammes г гр 克 グラム gramma 그램",
    "t": "to tonne tonnes metric_ton metric_tons т 吨 噸 トン",
    "lb": "lbs pound pounds #",
    "oz": "ounce ounces",
}
_UNITS = {word: unit for unit, words in _WORDS.items() for word in (unit, *words.split())}
_TONS = ("ton", "tons")
_PERCENT = ("%", "percent", "per cent", "pct", "prozent")
_POUNDS = re.compile(
    r"(\d+)\s*(?:lbs?\.?|pounds?)[\s,]*(\d[\d.,]*)\s*(?:oz\.?|ounces?)", re.IGNORECASE | re.ASCII
)
"""Pounds and ounces, as in ``1 lb 4 oz``."""


def is_weight_unit(word: str) -> bool:
    """Return whether a word is a unit of weight, or looks like one (:func:`weight_unit` raises)."""
    return _unit_word(word) in (*_UNITS, *_TONS)


def _unit_word(word: str) -> str:
    return "_".join(word.strip().lower().rstrip(".").split())


def weight_unit(name: str, word: str) -> str:
    """Return the unit of weight that a word names.

    Raises:
        ParameterError: The unit is unknown, or is a ton, which may be 1000 kg or 2000 lb.
    """
    unit = _UNITS.get(_unit_word(word))
    if unit is not None:
        return unit
    if _unit_word(word) in _TONS:
        raise ParameterError(
            f"{name}: {word!r} may be 1000 kg, 2000 lb or 2240 lb; write t, or give kg or lb"
        )
    raise ParameterError(
        f"{name}: {word!r} is not a unit of weight{close_names(word, _UNITS)}; use one of "
        f"{', '.join(_KILOGRAMS)}"
    )


def read_weight(name: str, value: Any, unit: str = "", *, decimal_comma: bool = False) -> float:
    """Read a weight in kilograms: ``400kg``, ``12 lb``, or a number.

    Args:
        name: Name of the option or the column, for messages.
        value: A text, or a number.
        unit: Unit that the header states; "" for kilograms.
        decimal_comma: True if commas are decimal.

    Raises:
        ParameterError: The value is not a number, its unit is unknown or ambiguous, or it differs
            from the header's unit.
    """
    number, word = value, ""
    if isinstance(value, str) and (match := AMOUNT.fullmatch(keyboard_signs(value).strip())):
        number, word = match[1], match[2]
    if both := _POUNDS.fullmatch(str(number) + word):
        ounces = exact_number(name, value, both[2], decimal_comma)
        if ounces >= 16:
            raise ParameterError(f"{name}={value!r} has 16 oz or more; write them as pounds")
        pounds = int(both[1]) + ounces / 16
        number, word = (16 * pounds, "oz") if unit == "oz" else (pounds, "lb")
    own = weight_unit(f"{name}={value!r}", word) if word.strip() else unit or "kg"
    if unit and own != unit:
        raise ParameterError(f"{name}={value!r}: the header states {unit}; use one unit")
    kilograms = exact_number(name, value, number, decimal_comma) * _KILOGRAMS[own]
    return int(kilograms) if kilograms.denominator == 1 else float(kilograms)


def read_share(name: str, value: Any) -> float:
    """Read a share: ``80 %``, ``80%``, or ``0.8``.

    Raises:
        ParameterError: The value is neither, or is a number above 1, which may be a percentage.
    """
    number, word = value, ""
    if isinstance(value, str) and (match := AMOUNT.fullmatch(keyboard_signs(value).strip())):
        number, word = match[1], match[2].strip().lower()
    if word and word not in _PERCENT:
        raise ParameterError(f"{name}={value!r} must be a share, as in 80% or 0.8")
    share = exact_number(name, value, number, False) / (100 if word else 1)
    if share > 1:
        percent = f"; write {float(share):g}% or {float(share / 100):g}" if not word else ""
        raise ParameterError(f"{name}={value!r} must be a share of at most 1, or 100%{percent}")
    return float(share)


def exact_number(
    name: str, value: Any, number: Any, decimal_comma: bool, hint: str = ""
) -> Fraction:
    """Return the number in a value exactly; raise ParameterError, naming the value, if it is none.

    ``hint`` says what the number means.
    """
    try:
        return exact(number, decimal_comma=decimal_comma)
    except ValueError as error:
        raise ParameterError(f"{name}={value!r} must be a number{hint}: {error}") from None
