"""Lengths as people write them, read exactly: ``2,5``, ``7 1/2 in``, ``5' 3"``, ``24x18x15mm``.

Lengths are fractions, so that the planner recognises parts that fill a container exactly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from numbers import Rational, Real
from typing import Any

from packing_env.names import close_names
from packing_env.values import (
    UNIT_NAMES,
    UNITS,
    ParameterError,
    check_container,
    check_number,
    is_unit,
    keyboard_signs,
    read_unit,
)

ExactSize = tuple[Fraction, Fraction, Fraction]
"""``(X, Y, H)`` metres."""
_LARGEST = 100
"""Length in metres above which a container counts as a mistake in units."""
_MOST_DIGITS = 300
"""Largest number of digits, and the largest exponent, of a number."""
_LARGEST_DENOMINATOR, _ROUNDING = 10**6, 3e-16
"""The simple fraction that a float rounds: its largest denominator, and the relative error. A third
of an inch is 127/15000 m."""
_MOST_MEASURED = 10**5
"""Largest denominator of the simple fraction that the length of a mesh rounds."""
_VULGAR = {
    "½": "1/2", "¼": "1/4", "¾": "3/4", "⅓": "1/3", "⅔": "2/3",
    "⅛": "1/8", "⅜": "3/8", "⅝": "5/8", "⅞": "7/8",
}  # fmt: skip
_DECIMAL = re.compile(r"([+-]?(?:\d+[.,]?\d*|[.,]\d+))(?:e([+-]?\d+))?", re.IGNORECASE | re.ASCII)
_MIXED = re.compile(r"([+-]?)\s*(?:(\d+)(?:\s+|-))?(\d+)\s*/\s*(\d+)", re.ASCII)
_GROUPED = re.compile(
    r"([+-]?[1-9]\d{0,2}(?P<mark>[.,' ])\d{3}(?:(?P=mark)\d{3})*)(?:(?!(?P=mark))[.,](\d+))?",
    re.ASCII,
)
"""Groups of three digits, and perhaps another mark and decimals: 1,200 and 1.200,5 and 1 200."""
_SIGNS = r"[x*]\s*|\sby\s+|"
_BETWEEN = re.compile(
    rf"{_SIGNS}(?<![\s,;])[\s,;]+(?=[^\W\d_]+\s*[:=]|[^\W\d_x]\s*\d)", re.IGNORECASE
)
"""Signs between sides; letters of the sides also separate them, as in ``L:120 W:100 H:50``."""
_BEHIND = re.compile(rf"{_SIGNS}(?<=(?<![^\W\d_])[^\W\d_xem])[\s,;]*(?=[\d.,])", re.IGNORECASE)
"""Signs between sides whose letters follow them, as in ``120L 100W 50H``."""
_PIECE = re.compile(
    r"([+-]?\s*[\d.,](?:[\d.,/\s-]*?)(?:e[+-]?\d+)?)\s*[(\[]?([^\W\d_][^\d)\]]*|[\"']+)?[)\]]?",
    re.IGNORECASE,
)
"""A number with an optional unit."""
AMOUNT = re.compile(r"(.*[\d½¼¾⅓⅔⅛⅜⅝⅞][.,]?)\s*([^\d½¼¾⅓⅔⅛⅜⅝⅞]*)", re.DOTALL)
"""A number and what follows it, as the file has them."""
_FEET = re.compile(
    r"(\d+)\s*(?:'|ft\.?|foot|feet)\s*-?\s*(\d{1,2}(?!\d)[\d.,/\s-]*?)\s*"
    r"(?:\"|''|ins?\.?|inch|inches)",
    re.IGNORECASE | re.ASCII,
)
"""Feet and inches: 5' 3" and 5 ft 3 1/2 in."""


def exact(value: Any, *, decimal_comma: bool = False) -> Fraction:
    """Read a number exactly.

    Args:
        value: A number, or a text: ``60``, ``2.5``, ``2,5``, ``1e3``, ``3/8``, ``7 1/2``. A float
            is read as the simple fraction that it rounds (such as 1/3), or its shortest decimal.
        decimal_comma: True if commas are decimal: ``1,200`` is 1.2, and ``1.200`` is refused.

    Raises:
        ValueError: The value is not a finite number, or is ambiguous; the message names it.
    """
    if getattr(value, "ndim", None) == 0:  # NumPy prints the shortest decimal of a dtype
        value = (value.numpy(force=True) if hasattr(value, "detach") else value)[()]
    if isinstance(value, Rational) and not isinstance(value, bool):
        return Fraction(int(value.numerator), int(value.denominator))
    if isinstance(value, (Real, Decimal)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError(f"{value!r} is not a finite number")
        shortest = Fraction(str(value))
        simple = shortest.limit_denominator(_LARGEST_DENOMINATOR)
        return simple if math.isclose(simple, value, rel_tol=_ROUNDING) else shortest
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a number")
    text = _without_groups(value, _plain(value), decimal_comma)
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"{value!r} is not a number")
    if match := _DECIMAL.fullmatch(text):
        exponent = int(match[2] or 0)
        if abs(exponent) <= _MOST_DIGITS:
            return Fraction(match[1].replace(",", ".")) * Fraction(10) ** exponent
    if (match := _MIXED.fullmatch(text)) and int(match[4]):
        number = int(match[2] or 0) + Fraction(int(match[3]), int(match[4]))
        return -number if match[1] == "-" else number
    raise ValueError(f"{value!r} is not a number")


def _plain(text: str) -> str:
    """Return a text with signs of a keyboard; ½ becomes 1/2, and a run of spaces a line break.

    On a long run of spaces, the patterns would take time in proportion to the square of its length.
    Only a single space may separate thousands; a line break or a tab does not.
    """
    text = keyboard_signs(text)
    for sign, fraction in _VULGAR.items():
        text = text.replace(sign, f" {fraction}")
    return re.sub(r"\s{2,}|[^\S ]", "\n", text.strip())


def _without_groups(value: str, text: str, decimal_comma: bool) -> str:
    """Return a number without the separators of its thousands.

    Raises:
        ValueError: The mark before a single group of three digits may also be decimal, a keyboard's
            space may stand between two numbers, or commas are decimal in other numbers.
    """
    grouped = _GROUPED.fullmatch(text)
    if grouped is None:
        return text
    mark, digits = grouped["mark"], grouped[1].lstrip("+-")
    if grouped[3] is None and digits.count(mark) == 1 and mark in ".,":
        if mark == ("," if decimal_comma else "."):
            return text
        as_decimal, as_thousands = digits.replace(",", "."), digits.replace(mark, "")
        raise ValueError(
            f"{value!r} may be {as_decimal} or {as_thousands}: write thousands without a "
            f"separator, as {as_thousands}, or decimals as {float(as_decimal):g}"
        )
    two = grouped[3] is None and " " in value.strip()
    if two or (decimal_comma and mark == ","):
        raise ValueError(f"{value!r} has separators of thousands; write it without them")
    return f"{grouped[1].replace(mark, '')}.{grouped[3] or 0}"


def is_number(value: Any, *, decimal_comma: bool = False) -> bool:
    """Return whether :func:`exact` can read a value."""
    try:
        exact(value, decimal_comma=decimal_comma)
    except ValueError:
        return False
    return True


def like_number(cell: str) -> bool:
    """Return whether a cell is a number, with either decimal mark."""
    return is_number(cell) or is_number(cell, decimal_comma=True)


def num_lengths(cells: Iterable[str]) -> int:
    """Return how many lengths cells hold: three in ``60x40x30 cm``, one in ``10in`` or in ``4``."""
    sides = [each for each in map(split_sides, cells) if len(each) in (1, 3)]
    return sum(len(each) for each in sides if all(map(_like_length, each)))


def _like_length(side: str) -> bool:
    return in_feet(side) or like_number(split_unit(side)[0])


def split_unit(value: Any) -> tuple[Any, str | None]:
    """Split a number from its unit, as in ``10in``; the unit is None if there is none.

    Feet and inches, as in ``5' 3"``, stay together; :func:`exact_side` reads them as inches.
    """
    if in_feet(value):
        return value.strip(), "in"
    piece = _PIECE.fullmatch(_plain(value)) if isinstance(value, str) else None
    if piece is None or not piece[2] or not is_unit(piece[2]):
        return value, None
    as_given = AMOUNT.fullmatch(value.strip())
    same = as_given and _plain(as_given[1]) == piece[1].strip()
    return as_given[1] if as_given and same else piece[1], piece[2]


def split_sides(text: str) -> list[str]:
    """Split ``40 x 30 x 20``, or with ``*`` or ``by`` between the sides."""
    text = keyboard_signs(text).strip()
    between = _BEHIND if text[:1].isdecimal() else _BETWEEN
    return [side.strip() for side in between.split(text)]


def in_feet(value: Any) -> bool:
    """Return whether a value consists of feet and inches."""
    return isinstance(value, str) and _FEET.fullmatch(_plain(value)) is not None


def exact_side(value: Any, *, decimal_comma: bool = False) -> Fraction:
    """Read the number of :func:`split_unit`, in its unit.

    Raises:
        ValueError: As :func:`exact`, or 12 inches or more stand beside feet.
    """
    match = _FEET.fullmatch(_plain(value)) if isinstance(value, str) else None
    if match is None:
        piece = _PIECE.fullmatch(_plain(value)) if isinstance(value, str) else None
        if piece and piece[2]:
            read_unit("unit", piece[2].strip())  # raises, and names the units that are known
        return exact(value, decimal_comma=decimal_comma)
    inches = exact(match[2], decimal_comma=decimal_comma)
    if inches >= 12:
        raise ValueError(f"{value!r} has 12 inches or more; write them as feet")
    return 12 * int(match[1]) + inches


def in_one_unit(
    sides: list[Fraction], pairs: Sequence[tuple[Any, str | None]], stated: Sequence[str]
) -> tuple[list[Fraction], str | None]:
    """Return sides in one unit, which the entry, the header or the sides state, and this unit.

    Sides that all state a unit are converted. If the first sides state none, they are in the unit
    of the last. ``stated`` are the units of the entry and the header.

    Raises:
        ParameterError: Units differ, or a side has none.
    """
    words = [word and read_unit("unit", word) for _, word in pairs]
    own = {word for word in words if word}
    if all(words):
        units = {*stated}  # to which the sides are converted
    elif in_feet(pairs[-1][0]) and not stated:
        raise ParameterError("give the unit of each side")
    elif own and words[-1] is None and own != {*stated[:1]}:
        raise ParameterError("give the unit of each side, or of the last")
    else:
        units = {*stated, *own}
    if len(units) > 1:
        raise ParameterError(f"units differ: {', '.join(sorted(units))}; use one")
    unit = next(iter(units), words[-1])
    if all(words):
        lengths = [side * metres(word or "") for side, word in zip(sides, words, strict=True)]
        sides = [length / metres(unit or "") for length in lengths]
    return sides, unit


def metres(unit: str) -> Fraction:
    """Return the exact length of a unit.

    Raises:
        ParameterError: The unit is unknown.
    """
    return Fraction(str(UNITS[read_unit("unit", unit)]))


def exact_length(name: str, value: Any) -> Fraction:
    """Read ``5mm``, ``7 1/2 in``, ``5' 3"`` or a number of metres; return metres.

    Raises:
        ParameterError: The value is not a length, or it is negative.
    """
    if isinstance(value, str):
        (length,), _ = exact_lengths(name, value, 1, "5mm")
    else:
        check_number(name, value)
        length = exact(value)
    if length < 0:
        raise ParameterError(f"{name}={value!r} must not be negative")
    return length


def exact_container(value: str | Sequence[Any]) -> tuple[ExactSize, str]:
    """Read ``240x180x150mm`` or three lengths in metres; return metres and the unit.

    Raises:
        ParameterError: The value is neither, or a side is longer than 100 m.
    """
    unit = "m"
    lengths: Sequence[Any] = ()
    if isinstance(value, str):
        lengths, unit = exact_lengths("container", value, 3, "240x180x150mm")
        check_container([float(length) for length in lengths])
    else:
        check_container(value)
        lengths = value
    x, y, height = (exact(length) for length in lengths)
    longest = max(x, y, height)
    if longest > _LARGEST:
        raise ParameterError(
            f"container={value!r} is {float(longest):g} m long; lengths without a unit are metres: "
            "write 240x180x150mm for millimetres"
        )
    return (x, y, height), unit


def exact_lengths(name: str, text: str, count: int, example: str) -> tuple[list[Fraction], str]:
    """Read lengths with ``x`` between them and a unit after the last, or after each.

    Args:
        name: Name of the option, for messages.
        text: For example ``50x40x20mm`` or ``50 cm x 40 cm x 0.2 m``.
        count: Number of lengths.
        example: A correct text, for messages.

    Returns:
        The lengths in metres, and the unit of the last one.

    Raises:
        ParameterError: The text does not have this form, or a unit is missing or unknown.
    """
    wrong = f"{name}={text!r} must be {count} lengths and a unit, as in {example}"
    pieces = split_sides(text)
    pairs: list[tuple[str, str | None]] = []
    for piece in pieces:
        if in_feet(piece):
            pairs.append((piece.strip(), "in"))
        elif match := _PIECE.fullmatch(_plain(piece)):
            pairs.append((match[1], match[2] and match[2].strip()))
    if len(pairs) != count or len(pieces) != count:
        raise ParameterError(wrong)
    words = [word for _, word in pairs]
    if not all(words) and (any(words[:-1]) or in_feet(pieces[-1])):
        raise ParameterError(f"{name}={text!r}: give one unit at the end, or one after each length")
    if not words[-1] or not is_unit(words[-1]):
        raise ParameterError(_lacks_unit(name, text, words[-1], example))
    try:
        numbers = [exact_side(number) for number, _ in pairs]
    except ValueError as error:
        raise ParameterError(f"{name}={text!r}: {error}") from None
    units = [read_unit(name, word or words[-1]) for word in words]
    sides = zip(numbers, units, strict=True)
    return [number * metres(unit) for number, unit in sides], units[-1]


def _lacks_unit(name: str, text: str, word: str | None, example: str) -> str:
    """Return the message about a unit that is missing or unknown."""
    end = text.rstrip()
    number = end[: len(end) - len(word)].rstrip() if word else end
    hint = close_names(word, UNIT_NAMES) if word else ""
    units = ", ".join(UNITS)
    return f"{name}={text!r} needs a unit, one of {units}, as in {number or example}mm{hint}"


def read_length(name: str, length: Any) -> float:
    """Read ``5mm``, or a number of metres.

    Raises:
        ParameterError: The value is neither, or it is not positive.
    """
    return check_number(name, float(exact_length(name, length)), above=0.0)


def measured(length: float) -> Fraction:
    """Return a length of a mesh, metres, as the simple fraction or the decimal that it rounds."""
    simple = Fraction(length).limit_denominator(_MOST_MEASURED)
    return simple if abs(simple - length) < 5e-13 else exact(round(length, 12))


def common_unit(lengths: Iterable[Fraction]) -> Fraction:
    """Return the greatest length that divides all lengths.

    Raises:
        ValueError: No length differs from zero.
    """
    fractions = [Fraction(length) for length in lengths if length]
    if not fractions:
        raise ValueError("no length other than zero")
    numerator = math.gcd(*(fraction.numerator for fraction in fractions))
    return Fraction(numerator, math.lcm(*(fraction.denominator for fraction in fractions)))
