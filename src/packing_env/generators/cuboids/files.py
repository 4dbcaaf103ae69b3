"""Readers of cuboid files: published instances, plain JSON and CSV.

The format of a file is recognised by its fields, not by its name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from packing_env import files
from packing_env.generators.cuboids.loads import ANY_SIDE, Z_ONLY, Kind, Load, Value
from packing_env.generators.cuboids.text import read_csv
from packing_env.generators.sequence_file import SequenceError
from packing_env.items.meshes.mesh import UNITS

_GROUNDS = {"euro-pallet": (1200.0, 800.0), "rollcontainer": (800.0, 700.0)}
"""Sides of the load carriers of BED-BPP, millimetres."""


def read_loads(path: str | Path) -> list[Load]:
    """Read all loads of a file.

    - JSON: a list of sequences. Their entries are ``[dx, dy, dz]``, ``[dx, dy, dz, count]``, ``[dx,
      dy, dz, count, vx, vy, vz]`` or objects with ``dims``, ``count``, ``vertical_ok``, ``name``.
      The list may stand alone, or as ``sequences`` next to ``unit`` and ``container``.
    - CSV with commas or semicolons. Either each line has the numbers of such an entry and a blank
      line separates sequences, or a header names the columns, from ``sequence name dx dy dz count
      vertical_x vertical_y vertical_z`` (``weight`` and ``value`` are ignored with a remark).
    - Container loading instances: JSON with ``types`` (Bischoff and Ratcliff, Omega 1995; Davies
      and Bischoff, EJOR 1999; Loh and Nee 1992; Ivancic et al. 1989).
    - JSON of ``boxes`` with ``profit`` (Egeblad and Pisinger, COR 2009), orders with ``items_mm``
      (BED-BPP, Kagerer et al., IJRR 2023), truck ``items`` with ``dims_mm``, and ``products`` with
      ``demand`` (Alonso et al., CIE 2019).
    - The published file of BED-BPP: an object of orders with ``item_sequence``.

    Raises:
        SequenceError: The file cannot be read, or has none of these formats; the message names the
            place in the file.
    """
    path = Path(path)
    try:
        text = files.read_text(path, encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise SequenceError(f"{path}: cannot be read: {error}") from error
    if not text.strip():
        raise SequenceError(f"{path}: the file is empty; needed: sequences of cuboids")
    if text.lstrip()[0] in "[{":
        try:
            value = files.parse_json(text)
        except ValueError as error:
            raise SequenceError(f"{path}: cannot be read as JSON: {error}") from error
        return _from_json(Value(path, "", value))
    return read_csv(path, text)


def _from_json(file: Value) -> list[Load]:
    if isinstance(file.value, list):
        return _plain_sequences(file)
    if "sequences" in file:
        loads = _plain_sequences(file["sequences"])
        container = file["container"].sides() if "container" in file else None
        unit = _unit(file, "") if "unit" in file else None
        return [replace(load, container=container, unit=unit) for load in loads]
    if "orders" in file:
        return [_order(entry) for entry in file["orders"].entries()]
    entries = file.value if isinstance(file.value, dict) else {}
    if entries and all("item_sequence" in file[number] for number in entries):
        return [_published_order(file[number], number) for number in entries]
    loads = []
    for group, value in entries.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            name = "" if group == "instances" else group
            loads += [_instance(file, entry, name) for entry in file[group].entries()]
    if not loads:
        raise file.error("a list of sequences, or an object with sequences, instances or orders")
    return loads


def _plain_sequences(rows: Value) -> list[Load]:
    loads = []
    for number, sequence in enumerate(rows.entries()):
        items = sequence.value
        if not isinstance(items, list) or not items or not isinstance(items[0], (list, dict)):
            raise sequence.error("a sequence: a list of [dx, dy, dz]")
        loads.append(Load(str(number), tuple(_plain_item(item) for item in sequence.entries())))
    return loads


def _plain_item(item: Value) -> Kind:
    if isinstance(item.value, dict):
        return _typed(item)
    row = item.value
    if not isinstance(row, list) or len(row) not in (3, 4, 7):
        raise item.error("[dx, dy, dz], [dx, dy, dz, count] or [dx, dy, dz, count, vx, vy, vz]")
    count = item.of(row[3]).count() if len(row) > 3 else 1
    upright = item.of(row[4:]).flags() if len(row) == 7 else ANY_SIDE
    return Kind(item.of(row[:3]).sides(), upright, count)


def _typed(entry: Value) -> Kind:
    return Kind(
        entry["dims"].sides(),
        entry["vertical_ok"].flags() if "vertical_ok" in entry else ANY_SIDE,
        entry["count"].count() if "count" in entry else 1,
        entry["name"].text() if "name" in entry else None,
    )


def _instance(file: Value, entry: Value, group: str) -> Load:
    readers: dict[str, Callable[[Value, Value], Load]] = {
        "types": _types,
        "boxes": _boxes,
        "items": _truck_items,
        "products": _products,
    }
    for field, reader in readers.items():
        if field in entry:
            load = reader(file, entry)
            unit = "mm" if field in ("items", "products") else _unit(file, group)
            return replace(load, group=group or load.name.rpartition("_")[0], unit=unit)
    raise entry.error(f"an instance with one of the fields {', '.join(readers)}")


def _types(file: Value, entry: Value) -> Load:
    kinds = tuple(_typed(row) for row in entry["types"].entries())
    arrival = None
    if "online_order" in entry:
        arrival = tuple(row.count(0) for row in entry["online_order"].entries())
        if [arrival.count(i) for i in range(len(kinds))] != [kind.count for kind in kinds]:
            raise entry["online_order"].error("each type as often as its count says")
    container = entry["container"].sides()
    return Load(entry["name"].text(), kinds, container=container, arrival=arrival)


def _boxes(file: Value, entry: Value) -> Load:
    """Read a knapsack instance; boxes stay upright if the problem forbids rotation."""
    rotated = "problem" not in file or "no rotation" not in file["problem"].text()
    upright = ANY_SIDE if rotated else Z_ONLY
    boxes = entry["boxes"].entries()
    counts = [1] * len(boxes)
    if "count" in entry:
        counts = [row.count() for row in entry["count"].entries()]
    if len(counts) != len(boxes):
        raise entry["count"].error(f"{len(boxes)} counts, one for each of the boxes")
    pairs = zip(boxes, counts, strict=True)
    kinds = tuple(Kind(box.sides(), upright, count) for box, count in pairs)
    remark = "" if rotated else "its problem allows no rotation: use orientations=none"
    return Load(entry["name"].text(), kinds, container=entry["container"].sides(), remark=remark)


def _order(entry: Value) -> Load:
    """Read a customer's order: upright items in arrival order, on a pallet of nominal height."""
    items = entry["items_mm"].entries()
    names: list[str | None] = [None] * len(items)
    if "article_id" in entry:
        names = [article.text() for article in entry["article_id"].entries()]
    if len(names) != len(items):
        raise entry["article_id"].error(f"{len(items)} names, one for each of the items")
    pairs = zip(items, names, strict=True)
    kinds = tuple(Kind(item.sides(), Z_ONLY, 1, name) for item, name in pairs)
    footprint = entry["target_footprint_mm"]
    ground = [side.number() for side in footprint.entries()]
    container = footprint.of([*ground, entry["nominal_max_height_mm"].number()]).sides()
    group = entry["target"].text() if "target" in entry else ""
    return Load(entry["order"].text(), kinds, group, container, "mm", tuple(range(len(kinds))))


def _published_order(entry: Value, number: str) -> Load:
    """Read an order of BED-BPP as its authors publish it; piles end at 2 m."""
    target, items = entry["properties"]["target"], entry["item_sequence"]
    if target.text() not in _GROUNDS:
        raise target.error(f"one of {', '.join(_GROUNDS)}")
    if not isinstance(items.value, dict) or not items.value:
        raise items.error("an object with at least one item")
    kinds = []
    for key in items.value:
        item = items[key]
        sides = [item[f"{name}/mm"].value for name in ("length", "width", "height")]
        kinds.append(Kind(item.of(sides).sides(), Z_ONLY, 1, item["id"].text()))
    group, container = target.text(), (*_GROUNDS[target.text()], 2000.0)
    return Load(number, tuple(kinds), group, container, "mm", tuple(range(len(kinds))))


def _truck_items(file: Value, entry: Value) -> Load:
    kinds, forced = [], 0
    for item in entry["items"].entries():
        kinds.append(Kind(item["dims_mm"].sides(), Z_ONLY, 1, item["id"].text()))
        forced += "forced_orientation" in item and item["forced_orientation"].text() != "n"
    remark = "its trucks, weights and stacking codes are ignored"
    if forced:
        remark += f"; {forced} items have a forced_orientation, which is ignored"
    return Load(entry["name"].text(), tuple(kinds), remark=remark)


def _products(file: Value, entry: Value) -> Load:
    kinds = []
    for product in entry["products"].entries():
        if "rot_xyz" in product and product["rot_xyz"].value != [1, 1, 1]:
            raise product["rot_xyz"].error("[1, 1, 1], any rotation; others are not supported")
        count = product["demand"].count(0)
        kinds.append(Kind(product["dims_mm"].sides(), ANY_SIDE, count, product["id"].text()))
    remark = "its pallets, trucks and days are ignored"
    return Load(entry["name"].text(), tuple(kinds), remark=remark)


def _unit(file: Value, group: str) -> str | None:
    """Parse the unit of a group: ``cm``, or ``mm for LN, abstract integer units for IMM``."""
    parts = file["unit"].text().split(",")
    own = [part for part in parts if group and f"for {group}" in part]
    word = (own or parts)[0].strip().split(" ")[0]
    if word in UNITS or word == "abstract":
        return word if word in UNITS else None
    raise file["unit"].error(f"one of {', '.join(UNITS)}, or abstract units")
