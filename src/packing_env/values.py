"""Checks of single values: numbers, lengths and containers, refused by name and with a remedy."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any

MAX_STEPS = 2**30
"""Largest number of cells, or of steps of ``unit``, along one side of the container."""


_SIGNIFICAND_BITS = 24
"""Of a float32."""


class ParameterError(ValueError):
    """A parameter is invalid; the message names it and a valid value."""


def to_float32(value: float) -> float:
    """Round ``value`` to the nearest float32, as a Python float (no tensor, no NumPy)."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def lid_tolerance(height: float) -> float:
    """Return the metres that an item may exceed a container's height by, for rounding.

    1e-6 m, or the spacing of float32 numbers at that height where it is larger, above 16 m. Rest
    height and peak of an item are each rounded to half a spacing at most, so a stack of exactly the
    container's height may come out one spacing above it, and never more.
    """
    _, exponent = math.frexp(to_float32(height))
    return max(1e-6, math.ldexp(1.0, exponent - _SIGNIFICAND_BITS))


def lid(height: float) -> float:
    """Return the highest legal ``float32(z + peak)`` in a container of a height, metres."""
    return to_float32(height + lid_tolerance(height))


def whole_cells(length: float, cell: float, name: str) -> int:
    """Return ``length / cell`` as an integer; raise if it is not whole to 1e-6 of a cell."""
    cells = length / cell
    if cells > MAX_STEPS:
        raise ParameterError(
            f"container {name} = {length} m has {cells:.3g} cells of {cell} m, and at most "
            f"{MAX_STEPS} are supported; use a larger cell"
        )
    if round(cells) < 1 or abs(cells - round(cells)) > 1e-6:
        raise ParameterError(
            f"container {name} = {length} m is not a whole multiple of cell = {cell} m ({cells:.4f}"
            f" cells); use {max(1, round(cells)) * cell:.6g} m or another cell, in metres"
        )
    return round(cells)


def check_integer(name: str, value: Any, at_least: int, at_most: int | None = None) -> int:
    """Return ``value`` as an int; raise unless it is an integer (not a bool) in these bounds."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise ParameterError(f"{name}={value!r} must be an integer, {at_least} or more")
    whole = int(value)
    if whole < at_least:
        limit = "" if at_most is None else f" and at most {at_most}"
        raise ParameterError(f"{name}={whole} must be at least {at_least}{limit}")
    if at_most is not None and whole > at_most:
        raise ParameterError(f"{name}={whole} must be at most {at_most} and at least {at_least}")
    return whole


def check_number(name: str, value: Any, above: float | None = None) -> float:
    """Return ``value`` as a float; raise unless it is finite and above ``above``, or if a bool."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise ParameterError(f"{name}={value!r} must be a finite number")
    number = float(value)
    if above is not None and number <= above:
        raise ParameterError(f"{name}={number} must be more than {above:g}")
    return number


def check_container(container: Any) -> tuple[float, float, float]:
    """Return ``(X, Y, H)`` in metres; raise unless they are three positive numbers."""
    given = container.tolist() if hasattr(container, "tolist") else container
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 3:
        raise ParameterError(f"container={given!r} must be three lengths (X, Y, H) in metres")
    real = all(isinstance(length, Real) and not isinstance(length, bool) for length in given)
    if not real or not all(0 < float(length) < math.inf for length in given):
        raise ParameterError(f"container={given!r} must be positive numbers (X, Y, H), metres")
    x, y, height = map(float, given)
    return x, y, height
