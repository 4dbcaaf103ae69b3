"""Readers of load plans of other programs; they keep the exact lengths of the files.

Sources of the formats (as written in November 2026):

- BoxPacker, github.com/dvdoug/BoxPacker: ``jsonSerialize`` of ``src/PackedBox.php`` and
  ``src/PackedItem.php``; ``generateVisualisationURL`` of ``src/PackedBoxList.php``.
- py3dbp, github.com/enzoruiz/3dbinpacking and its fork github.com/jerry800416/3D-bin-packing:
  ``Bin.string()`` and ``Item.string()`` of ``py3dbp/main.py``, rotations of ``constants.py``.
- PackingSolver, github.com/fontanf/packingsolver: the certificate of ``src/box/solution.cpp``.
- BED-BPP, github.com/floriankagerer/bed-bpp-env: ``data_model/packing_plan.py``, ``action.py`` and
  ``orientation.py``.
"""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packing_env import files
from packing_env.names import plain_name
from packing_env.plan.document import FORMAT, refuse_others
from packing_env.plan.packing import PlanError

Size = tuple[Fraction, Fraction, Fraction]
KNOWN = (
    "plans of packing pack, JSON with 'container' and 'boxes', BoxPacker (JSON or the visualiser's "
    "URL), py3dbp (printed text), PackingSolver (certificate of the box problem) and BED-BPP (JSON)"
)
LARGEST = 1e12
"""Largest length or weight that is read; its inverse is the smallest above 0."""
_ROUNDED = Context(prec=14)
"""Digits that are read: a sum of binary numbers may be written as 0.30000000000000004."""


@dataclass(frozen=True)
class ForeignBox:
    """A box as another program placed it: lengths in the unit of its plan, weight in kilograms."""

    name: str
    position: Size
    size: Size
    weight: Fraction | None = None


@dataclass(frozen=True)
class ForeignLoad:
    """A loaded container of another program.

    Attributes:
        program: Name of the program that wrote the plan.
        name: Name of the container in the file.
        size: Inner sides; ``None`` if the file states no size.
        boxes: Boxes in the order of the file.
        unit: Unit of lengths; ``None`` if the file states no unit.
        ordered: True if the list is the order of loading.
        rules: ``stability``, ``support`` and ``weight_limit``, if the file states them.
        note: A likely cause if the check of the plan fails.
    """

    program: str
    name: str
    size: Size | None
    boxes: tuple[ForeignBox, ...]
    unit: str | None = None
    ordered: bool = False
    rules: Mapping[str, Any] | None = None
    note: str = ""


def read_foreign(path: Path) -> list[ForeignLoad] | None:
    """Read the containers of a plan in any known format; return ``None`` for our own plans.

    Raises:
        PlanError: The file cannot be read, or its format is unknown; the message names the known
            formats.
    """
    try:
        text = files.read_text(path, encoding="utf-8-sig").strip()
        document = _parse(text) if text[:1] in ("{", "[") else text
        reader = _reader(document)
    except (OSError, ValueError, RecursionError) as error:
        reason = files.reason(error) if isinstance(error, OSError) else error
        raise PlanError(f"{path}: cannot be read as a JSON plan ({reason})") from error
    if isinstance(document, dict) and document.get("format") == FORMAT:
        return None
    if reader is None:
        raise PlanError(f"{path}: not a packing plan of a known format; known formats: {KNOWN}")
    try:
        loads = reader(document)
    except KeyError as error:
        raise PlanError(f"{path}: the plan lacks {error.args[0]!r}") from error
    except (TypeError, ValueError, AttributeError, IndexError) as error:
        raise PlanError(f"{path}: the plan has an invalid value ({error})") from error
    if not loads:
        raise PlanError(f"{path}: the plan has no container")
    return loads


def _reader(document: Any) -> Callable[[Any], list[ForeignLoad]] | None:
    """Choose the reader by the content of the file."""
    if isinstance(document, str):
        if "#packing=" in document:
            return lambda text: _boxpacker_url(_parse(unquote(text.partition("#packing=")[2])))
        if "max_weight:" in document:
            return _py3dbp
        return _packingsolver if document.startswith("TYPE,ID,COPIES,BIN,X,Y,Z,") else None
    if isinstance(document, dict) and {"items", "boxes"} <= document.keys():
        return _boxpacker_url
    first = document[0] if isinstance(document, list) and document else document
    if isinstance(first, dict):
        if {"box", "items"} <= first.keys():
            return _boxpacker
        if {"container", "boxes"} <= first.keys():
            return _own
        actions = next((each for each in first.values() if each), None)
        action = actions[0] if isinstance(actions, list) else None
        if isinstance(action, dict) and "flb_coordinates" in action:
            return _bed_bpp
    return None


# ------------------------------------------------------------------ the formats


def _own(document: Any) -> list[ForeignLoad]:
    """Read ``{unit, container, boxes, ordered, rules}``, or a list of them."""
    return [
        _own_load(entry, f"container {number}") for number, entry in enumerate(_several(document))
    ]


def _own_load(entry: Mapping[str, Any], name: str) -> ForeignLoad:
    container = entry["container"]
    rules = entry.get("rules", {})
    refuse_others(entry, ("unit", "container", "boxes", "ordered", "rules"), "the plan")
    refuse_others(container, ("name", "length", "width", "height"), "the container")
    refuse_others(rules, ("stability", "support", "weight_limit"), "rules")
    boxes = []
    for number, box in enumerate(entry["boxes"]):
        refuse_others(box, ("name", "position", "size", "weight"), f"box {number}")
        weight = None if box.get("weight") is None else _number(box["weight"])
        place = _three(box["position"]), _three(box["size"])
        boxes.append(ForeignBox(_name(box.get("name", "box")), *place, weight))
    ordered = entry.get("ordered", False)
    if not isinstance(ordered, bool):
        raise ValueError(f"ordered={ordered!r} must be true or false")
    size = _three(container[key] for key in ("length", "width", "height"))
    name, unit = _name(container.get("name", name)), entry.get("unit")
    return ForeignLoad("JSON", name, size, tuple(boxes), unit, ordered, rules)


def _boxpacker(document: Any) -> list[ForeignLoad]:
    """Read ``json_encode`` of a PackedBox or of a PackedBoxList; depth is up."""
    sides = ("width", "length", "depth")
    loads = []
    for entry in _several(document):
        box = entry["box"]
        size = _three(box[key] for key in ("innerWidth", "innerLength", "innerDepth"))
        boxes = tuple(
            ForeignBox(
                _name(item["item"]["description"]),
                _three(item[key] for key in "xyz"),
                _three(item[key] for key in sides),
            )
            for item in entry["items"]
        )
        loads.append(ForeignLoad("BoxPacker", _name(box["reference"]), size, boxes))
    return loads


def _boxpacker_url(document: Any) -> list[ForeignLoad]:
    """Read the data of ``generateVisualisationURL``: items by number, and boxes with places."""
    items = document["items"]
    names = items if isinstance(items, dict) else {str(n): item for n, item in enumerate(items)}
    loads = []
    for reference, *sides, places in document["boxes"]:
        boxes = tuple(
            ForeignBox(_name(names[str(number)][0]), _three(at[:3]), _three(at[3:]))
            for number, *at in places
        )
        loads.append(ForeignLoad("BoxPacker", _name(reference), _three(sides), boxes))
    return loads


_NUMBER = r"(-?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)"
_SIDES = rf"\({_NUMBER}x{_NUMBER}x{_NUMBER}"
_BIN = re.compile(rf"^[: ]*(.*){_SIDES}, max_weight:{_NUMBER}\) vol\(")
_ITEM = re.compile(rf"^[=> ]*(.*){_SIDES}, weight: {_NUMBER}\) pos\((.*)\) rt\((\d+)\) vol\(")
_MOVED = (
    "other bins have these items, too: with distribute_items=False py3dbp packs each item into "
    "every bin, but keeps only its place in the last one; pack with distribute_items=True, or each "
    "bin with a packer of its own"
)
_TURNS = ((0, 1, 2), (1, 0, 2), (1, 2, 0), (2, 1, 0), (2, 0, 1), (0, 2, 1))
"""py3dbp: which of width, height and depth lie along x, y and z, by rotation type."""


def _py3dbp(text: str) -> list[ForeignLoad]:
    """Read the output of ``Bin.string()`` and ``Item.string()``; skip items that do not fit."""
    loads: list[tuple[str, Size, Fraction, list[ForeignBox]]] = []
    fitted = True
    for number, line in enumerate(text.splitlines(), 1):
        if match := _BIN.match(line):
            name, *sides, limit = match.groups()
            loads.append((_name(name), _three(sides), _number(limit), []))
            fitted = True
        elif " pos(" not in line:
            fitted = fitted and "UNFITTED" not in line.upper()
        elif fitted:
            item = _ITEM.match(line)
            if item is None or not loads:
                raise ValueError(f"line {number} is not an item of a bin: {plain_name(line[:80])}")
            name, *sides, weight, position, turn = item.groups()
            if int(turn) >= len(_TURNS):
                raise ValueError(f"line {number}: rotation type {turn} is unknown")
            size = _three(sides)
            place = _three(re.findall(_NUMBER, re.sub(r"[A-Za-z_][\w.]*\(", "", position)))
            lying = _three(size[axis] for axis in _TURNS[int(turn)])
            loads[-1][3].append(ForeignBox(_name(name), place, lying, _number(weight)))
    # Count the bins that list a box at the same place; such boxes compare equal.
    bins = Counter(box for *_, boxes in loads for box in set(boxes))
    return [
        ForeignLoad(
            "py3dbp", name, size, tuple(boxes), rules={"weight_limit": limit},
            note=_MOVED if boxes and all(bins[box] > 1 for box in boxes) else "",
        )
        for name, size, limit, boxes in loads
    ]  # fmt: skip


def _packingsolver(text: str) -> list[ForeignLoad]:
    """Read the certificate of the box problem; it lists equal bins once, with their number."""
    bins: dict[str, tuple[str, Size]] = {}
    boxes: dict[str, list[ForeignBox]] = {}
    for row in csv.DictReader(text.splitlines()):
        sides = _three(row[key] for key in ("LX", "LY", "LZ"))
        if row["TYPE"] == "BIN":
            copies = "" if row["COPIES"] == "1" else f", {row['COPIES']} copies"
            bins[row["BIN"]] = (f"bin {row['BIN']}{copies}", sides)
        elif row["TYPE"] == "ITEM":
            place = _three(row[key] for key in "XYZ")
            name = f"item type {row['ID']}"
            boxes.setdefault(row["BIN"], []).append(ForeignBox(name, place, sides))
        else:
            raise ValueError(f"TYPE={row['TYPE']!r} is neither BIN nor ITEM")
    lost = boxes.keys() - bins.keys()
    if lost:
        raise ValueError(f"items are in bin {min(lost)}, which has no row")
    return [
        ForeignLoad("PackingSolver", _name(name), size, tuple(boxes.get(key, ())))
        for key, (name, size) in bins.items()
    ]


def _bed_bpp(document: Any) -> list[ForeignLoad]:
    """Read packing plans: a list of actions per order, in millimetres, without a container."""
    loads = []
    for order, actions in document.items():
        boxes = []
        for action in actions:
            item, turn = action["item"], action["orientation"]
            if turn not in (0, 1):
                raise ValueError(f"orientation={turn} of order {order} is neither 0 nor 1")
            length, width = (_number(item[key]) for key in ("length/mm", "width/mm"))
            floor = (width, length) if turn else (length, width)
            size = _three((*floor, item["height/mm"]))
            weight = _number(item["weight/kg"])
            place = _three(action["flb_coordinates"])
            boxes.append(ForeignBox(_name(item["article"]), place, size, weight))
        loads.append(ForeignLoad("BED-BPP", _name(order), None, tuple(boxes), "mm", ordered=True))
    return loads


# ------------------------------------------------------------------ values


def _parse(text: str) -> Any:
    """Parse JSON; keep numbers as they are written."""
    return files.parse_json(text, parse_float=Decimal)


def _several(document: Any) -> Sequence[Any]:
    return document if isinstance(document, list) else [document]


def _name(value: Any) -> str:
    return plain_name(str(value).strip()) or "box"


def _number(value: Any) -> Fraction:
    """Return a number as it is written, without the rounding error of a binary number."""
    if isinstance(value, bool) or not isinstance(value, (int, str, Decimal, Fraction)):
        raise ValueError(f"{value!r} is not a number")
    if isinstance(value, Fraction):
        return value
    try:
        number = Decimal(value)
    except ArithmeticError as error:
        raise ValueError(f"{value!r} is not a number") from error
    small = number != 0 and not 1 / LARGEST <= abs(number) <= LARGEST
    if not number.is_finite() or small:
        raise ValueError(f"{value} is not a length or weight from {1 / LARGEST:g} to {LARGEST:g}")
    # Fractions of an inch, such as 12.000030517578125, may have more digits, and are exact.
    exact = Fraction(number)
    return exact if exact.denominator <= LARGEST else Fraction(_ROUNDED.plus(number))


def _three(values: Iterable[Any]) -> Size:
    numbers = [_number(value) for value in values]
    if len(numbers) != 3:
        raise ValueError(f"{len(numbers)} lengths where three are needed")
    x, y, z = numbers
    return x, y, z
