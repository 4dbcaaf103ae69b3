"""Options, declared once: a field's annotation defines its valid values; :func:`check` checks them.

    @dataclass(frozen=True)
    class Sides:
        low: Count = 1
        order: Annotated[str, Option(choices=("arrival", "types"))] = "arrival"

        def __post_init__(self) -> None:
            check(self, "generator.")

The type alone is also a rule: a ``bool`` is true or false, a ``float`` is finite, and ``X | None``
may be omitted. Errors name the option, its value and the valid values.
"""

from __future__ import annotations

import functools
import math
import operator
import re
import struct
import sys
import types
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from numbers import Integral, Real
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from packing_env.names import close_names

MAX_STEPS = 2**30
"""Largest number of cells, or of steps of ``unit``, along one side of the container."""
MAX_SEED = 2**63 - 1
"""Largest seed of a pool and of the rows' streams; the smallest is 0."""
_SIGNIFICAND_BITS = 24
"""Number of bits of a float32's significand."""
UNITS = {"m": 1.0, "cm": 1e-2, "mm": 1e-3, "um": 1e-6, "in": 0.0254, "ft": 0.3048}
"""Metres per unit, by name."""
_UNIT_WORDS = {
    "m": "metre metres meter meters mtr mètre mètres metro metros metri metr м 米 メートル méter",
    "cm": "centimetre centimetres centimeter centimeters zentimeter centimètre centimètres "
    "centímetro centímetros centimetro centimetros centimetri centymetr см 厘米 公分 センチ "
    "centiméter senttimetri 센티미터",
    "mm": "millimetre millimetres millimeter millimeters millimètre millimètres milímetro "
    "milímetros milimetro milimetros millimetro millimetri milimetr мм 毫米 ミリ "
    "milliméter 밀리미터",
    "um": "micrometre micrometres micrometer micrometers micron microns \u03bcm",
    "in": "inch inches ins zoll pouce pouces pulgada pulgadas polegada polegadas pollice pollici "
    "duim cal cale \" '' дюйм дюйма дюймов 英寸 インチ hüvelyk tuuma 인치",
    "ft": "foot feet fuß fuss pied pieds pie pies piede piedi voet stopa stopy ' фут фута футов "
    "英尺 フィート",
}
"""Other names of the units, in lower case."""
UNIT_NAMES = {name: name for name in UNITS} | {
    word: name for name, words in _UNIT_WORDS.items() for word in words.split()
}
"""The unit that each name stands for."""
_SIGNS = str.maketrans(
    {chr(0xFF01 + sign): chr(0x21 + sign) for sign in range(94)}
    | {
        "\u2019": "'", "\u2032": "'", "\u201d": '"', "\u2033": '"',
        "\u00d7": "x", "\u2715": "x", "\u2716": "x", "\u0445": "x", "\u0425": "X",
        "\u2212": "-", "\u00b5": "\u03bc", "\u339c": "mm", "\u339d": "cm", "\u338f": "kg",
        "\u00a0": " ", "\u2007": " ", "\u2009": " ", "\u202f": " ", "\u3000": " ",
    }
)  # fmt: skip
"""Typographic quotation marks, multiplication and minus signs, micro signs and spaces, full-width
forms and units, and the Cyrillic letter Kha (as in 60x40), and the signs that replace them.
"""
_THOUSANDS = re.compile(
    r"(?<![\d.,])[1-9]\d{0,2}(?:[\u00a0\u2007\u2009\u202f]\d{3})+(?!\d|\s*/)", re.ASCII
)


class ParameterError(ValueError):
    """A parameter is invalid; the message names it and a valid value."""


@dataclass(frozen=True)
class Option:
    """The valid values of a field, in addition to its type.

    Attributes:
        at_least: Smallest number.
        above: Numbers must be larger than this.
        at_most: Largest number.
        below: Numbers must be smaller than this.
        filled: A list must have at least one entry.
        choices: The allowed texts.
        note: What to know about other texts, for the message.
        example: A valid value of a list or a mapping, for the message.
        unit: Unit of a number.
        read: Function of the value and its name that returns the checked value, for conditions that
            types and bounds cannot express.
        goes_with: Another option of the task. If only that option is changed, this one returns to
            its default.
    """

    at_least: float | None = None
    above: float | None = None
    at_most: float | None = None
    below: float | None = None
    filled: bool = False
    choices: Sequence[str] = ()
    note: str = ""
    example: str = ""
    unit: str = ""
    read: Callable[[Any, str], Any] | None = None
    goes_with: str = ""

    @property
    def limits(self) -> list[tuple[str, Callable[[Any, Any], bool], float]]:
        """The bounds: each in words, as a relation, and as a number."""
        named = (
            ("more than", operator.gt, self.above),
            ("at least", operator.ge, self.at_least),
            ("at most", operator.le, self.at_most),
            ("less than", operator.lt, self.below),
        )
        return [(words, holds, limit) for words, holds, limit in named if limit is not None]

    def holds(self, number: float) -> bool:
        """Return whether a number is within the bounds."""
        return all(holds(number, limit) for _, holds, limit in self.limits)

    def refusal(self, name: str, value: Any, kind: str) -> ParameterError:
        """Return the error that states the valid values."""
        numbers = [(words, limit) for words, _, limit in self.limits]
        bounds = " and ".join(
            f"{words} {n if isinstance(n, int) else f'{n:g}'}" for words, n in numbers
        )
        rule = f"{kind}, {bounds} {self.unit}".rstrip(", ") if bounds else kind
        example = f", as in {self.example}" if self.example else ""
        choices = f"; choose one of {', '.join(self.choices)}" if self.choices else ""
        return ParameterError(f"{name}={value!r} must be {rule}{example}{choices}")


Count = Annotated[int, Option(at_least=1)]
Whole = Annotated[int, Option(at_least=0)]
Seed = Annotated[int, Option(at_least=0, at_most=MAX_SEED)]
Positive = Annotated[float, Option(above=0.0)]
NonNegative = Annotated[float, Option(at_least=0.0)]
Share = Annotated[float, Option(at_least=0.0, at_most=1.0)]
Length = Annotated[float, Option(above=0.0, unit="metres")]
_UNIONS = (Union, types.UnionType)


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


@functools.cache
def options(kind: type) -> Mapping[str, Option]:
    """Return the declared options of a dataclass by name."""
    return {f.name: declared(_hints(kind)[f.name])[1] for f in fields(kind)}


def check(instance: Any, prefix: str = "") -> None:
    """Check the fields of a dataclass by their annotations, and store them as plain values.

    Args:
        instance: The dataclass; it may be frozen.
        prefix: Prefix of the names of fields in messages.

    Raises:
        ParameterError: A value is not valid for its field.
    """
    kind: type = type(instance)
    hints = _hints(kind)
    for name in (field.name for field in fields(instance)):
        value = read(prefix + name, getattr(instance, name), hints[name])
        object.__setattr__(instance, name, value)


def check_names(what: str, names: Iterable[str], known: Collection[str]) -> None:
    """Raise if a name does not exist; the message lists the existing names."""
    unknown = [str(name) for name in names if name not in known]
    if unknown:
        listed = f"known: {', '.join(sorted(known))}" if known else "it has no options"
        near = close_names(unknown[0], sorted(known))
        raise ParameterError(f"{what} has no option {', '.join(unknown)}{near}; {listed}")


def read_mapping(kind: type, values: Mapping[str, Any], what: str, prefix: str) -> dict[str, Any]:
    """Return the checked values of a dataclass's options; skip options whose value is None.

    Args:
        kind: The dataclass.
        values: The values by name.
        what: Owner of the options, for messages.
        prefix: Prefix of the names in messages.

    Raises:
        ParameterError: An option is unknown, or its value is not valid.
    """
    hints = {field.name: _hints(kind)[field.name] for field in fields(kind)}
    check_names(what, values, hints)
    return {
        name: read(prefix + name, value, hints[name])
        for name, value in values.items()
        if value is not None
    }


def read(name: str, value: Any, hint: Any) -> Any:
    """Return the stored form of a value; raise ParameterError unless it fits the type hint."""
    kinds, option = declared(hint)
    if value is None and type(None) in kinds:
        return None
    kinds = [kind for kind in kinds if kind is not type(None)]
    if option.read is not None:
        return option.read(value, name)
    if len(kinds) > 1:
        plain = tuple(get_origin(kind) or kind for kind in kinds)
        if isinstance(value, bool) or not isinstance(value, plain):
            raise option.refusal(name, value, " or ".join(kind.__name__ for kind in plain))
        return value
    reader = _READERS.get(get_origin(kinds[0]) or kinds[0])
    return value if reader is None else reader(name, value, option, get_args(kinds[0]))


@functools.cache
def declared(hint: Any) -> tuple[list[Any], Option]:
    """Return the types that a type hint allows, and its option (without limits if it has none)."""
    if get_origin(hint) is Annotated:
        kinds, _ = declared(hint.__origin__)
        return kinds, next((o for o in hint.__metadata__ if isinstance(o, Option)), Option())
    if get_origin(hint) not in _UNIONS:
        return [hint], Option()
    parts = [declared(each) for each in get_args(hint)]
    limits = [option for _, option in parts if option != Option()]
    return [kind for kinds, _ in parts for kind in kinds], (limits or [Option()])[0]


# ---------------------------------------------------------------------- readers of each type


def plain(value: Any) -> Any:
    """Return a scalar of NumPy or a tensor of one number as a Python number; others as they are."""
    known = getattr(value, "ndim", None) == 0 and not getattr(value, "mask", False)
    return value.item() if known else value  # the item of a masked number would be 0


def _integer(name: str, value: Any, option: Option, _: Any = None) -> int:
    whole = isinstance(value := plain(value), Integral) and not isinstance(value, bool)
    if not whole or not option.holds(int(value)):
        raise option.refusal(name, value, "an integer")
    return int(value)


def _number(name: str, value: Any, option: Option, _: Any = None) -> float:
    number = isinstance(value := plain(value), Real) and not isinstance(value, bool)
    if not number or not abs(value) <= sys.float_info.max or not option.holds(float(value)):
        raise option.refusal(name, value, "a finite number")
    return float(value)


def _flag(name: str, value: Any, option: Option, _: Any) -> bool:
    if not isinstance(value := plain(value), bool):
        raise option.refusal(name, value, "true or false")
    return value


def _text(name: str, value: Any, option: Option, _: Any) -> str:
    known = isinstance(value, str) and (not option.choices or value in option.choices)
    if known:
        return value
    if not option.choices:
        raise option.refusal(name, value, "a text")
    near, choices = close_names(str(value), option.choices), ", ".join(option.choices)
    note = f"; {option.note}" if option.note else ""
    raise ParameterError(f"{name}={value!r} is unknown{near}; choose one of {choices}{note}")


def _list(name: str, value: Any, option: Option, inner: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return a list as a tuple, each of its entries checked; ``inner`` may fix their number."""
    entries = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(entries, str) or not isinstance(entries, Iterable):
        raise option.refusal(name, value, "a list")
    entries, hints = list(entries), inner
    if not inner or inner[-1] is Ellipsis:
        hints = (Annotated[inner[0], option] if inner else Any,) * len(entries)
    elif len(entries) != len(inner):
        raise option.refusal(name, value, f"a list of {len(inner)} entries")
    read_entries = tuple(
        read(f"{name}[{i}]", entry, hint)
        for i, (entry, hint) in enumerate(zip(entries, hints, strict=True))
    )
    if option.filled and not read_entries:
        raise option.refusal(name, value, "a list of at least one entry")
    return read_entries


def _mapping(name: str, value: Any, option: Option, inner: tuple[Any, ...]) -> dict[Any, Any]:
    """Return a mapping as a dictionary, each of its values checked."""
    if not isinstance(value, Mapping):
        raise option.refusal(name, value, "a mapping")
    hint = inner[1] if inner else Any
    return {key: read(f"{name}.{key}", each, hint) for key, each in value.items()}


_READERS: dict[Any, Callable[..., Any]] = {
    bool: _flag,
    int: _integer,
    float: _number,
    str: _text,
    tuple: _list,
    Sequence: lambda name, value, option, inner: _list(name, value, option, (*inner, ...)),
    Mapping: _mapping,
}


def check_choice(name: str, value: Any, choices: Iterable[str]) -> str:
    """Return ``value``; raise unless it is one of the choices."""
    return _text(name, value, Option(choices=sorted(choices)), ())


def keyboard_signs(text: str) -> str:
    """Return a text with signs of a keyboard, and without typographic spaces before thousands."""
    text = _THOUSANDS.sub(lambda number: "".join(filter(str.isdigit, number[0])), text)
    return text.translate(_SIGNS)


def _unit_word(text: str) -> str:
    return keyboard_signs(text).strip().rstrip(".").lower()


def is_unit(text: str) -> bool:
    """Return whether :func:`read_unit` knows a unit."""
    return _unit_word(text) in UNIT_NAMES


def read_unit(name: str, unit: str) -> str:
    """Return the key of :data:`UNITS` for a unit in any case or by another name (MM, inches).

    Raises:
        ParameterError: The unit is unknown; the message names the nearest ones.
    """
    if not is_unit(unit):
        hint = close_names(_unit_word(unit), UNIT_NAMES).rstrip("?")
        raise ParameterError(f"{name}={unit!r} is unknown{hint}; use one of {', '.join(UNITS)}")
    return UNIT_NAMES[_unit_word(unit)]


def check_integer(name: str, value: Any, at_least: int, at_most: int | None = None) -> int:
    """Return ``value`` as an int; raise unless it is an integer (not a bool) within the bounds."""
    return _integer(name, value, Option(at_least=at_least, at_most=at_most))


def check_number(name: str, value: Any, above: float | None = None) -> float:
    """Return ``value`` as a float; raise if it is a bool, not finite, or not above ``above``."""
    return _number(name, value, Option(above=above))


def to_float32(value: float) -> float:
    """Round ``value`` to the nearest float32; return a Python float (no tensor, no NumPy)."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def lid_tolerance(height: float) -> float:
    """Return by how many metres rounding may lift an item above a container's height.

    This is 1e-6 m or, if larger (above 16 m), the spacing of float32 numbers at that height. An
    item's rest height and peak are each rounded by half a spacing at most. So a stack exactly as
    high as the container may come out one spacing too high, but never more.
    """
    _, exponent = math.frexp(to_float32(height))
    return max(1e-6, math.ldexp(1.0, exponent - _SIGNIFICAND_BITS))


def lid(height: float) -> float:
    """Return the highest legal ``float32(z + peak)`` in a container of this height, in metres."""
    return to_float32(height + lid_tolerance(height))


def whole_cells(length: float, cell: float, name: str) -> int:
    """Return ``length / cell`` as an integer; raise unless it is whole within 1e-6 of a cell."""
    cells = length / cell
    if cells > MAX_STEPS:
        raise ParameterError(
            f"container {name} = {length} m has {cells:.3g} cells of {cell} m, but at most "
            f"{MAX_STEPS} are supported; use a larger cell"
        )
    if round(cells) < 1 or abs(cells - round(cells)) > 1e-6:
        raise ParameterError(
            f"container {name} = {length} m is not a whole multiple of cell = {cell} m ({cells:.4f}"
            f" cells); use {max(1, round(cells)) * cell:.6g} m or another cell, in metres"
        )
    return round(cells)


def check_container(container: Any, name: str = "container") -> tuple[float, float, float]:
    """Return ``(X, Y, H)`` in metres; raise unless they are three positive numbers."""
    sides = container.tolist() if hasattr(container, "tolist") else container
    if not isinstance(sides, Sequence) or isinstance(sides, str) or len(sides) != 3:
        raise ParameterError(f"{name}={sides!r} must be three lengths (X, Y, H) in metres")
    x, y, height = (read(name, side, Length) for side in sides)
    return x, y, height
