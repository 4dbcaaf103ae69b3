"""Plans as JSON files, written atomically and read with errors that name the file and the key."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from torch import Tensor

from packing_env import files
from packing_env.constraints import Constraints
from packing_env.items.handling import read_handling
from packing_env.items.meshes.mesh import UNITS
from packing_env.names import close_names, plain_name
from packing_env.plan.packing import DIRECTIONS, Packing, PlacedItem, PlanError, packing_of
from packing_env.plan.settle import settle
from packing_env.plan.solids import find_source
from packing_env.values import Option, Positive, read

if TYPE_CHECKING:
    from packing_env.envs import PackingEnv

_DIGITS = 12
"""Decimals of metres to which moved positions are rounded."""
FORMAT = "packing-plan"
VERSION = 1
PLAN_KEYS = (
    "format", "version", "motion", "origin", "name", "container", "container_unit", "cell",
    "geometry", "unit", "stability", "contact_tol", "constraints", "num_items", "utilization",
    "instance", "policy", "items",
)  # fmt: skip
ITEM_KEYS = (
    "order", "name", "source", "unit", "scale", "rotation", "quaternion", "translation",
    "x", "y", "z", "orientation", "item_id", "support_ratio", "volume", "extent",
    "handling", "z_grid", "gap", "contacts", "balanced", "leaves",
)  # fmt: skip


DECK = "corner of the deck"
"""Origin of a plan of a pallet with overhang: the lower corner of the deck's top."""


def make_plan(
    env: PackingEnv | Packing, row: int = 0, state: Mapping[str, Tensor] | None = None
) -> dict[str, Any]:
    """Return the plan of one container as plain JSON types; see :func:`packing_of`."""
    packing = env if isinstance(env, Packing) else packing_of(env, row, state)
    overhang = any(packing.constraints.get("overhang", ()))
    packing = _moved(packing, -1) if overhang else packing
    return _entries(
        packing,
        PLAN_KEYS,
        format=FORMAT,
        version=VERSION,
        motion="p_world = rotation @ (scale * unit * p_file) + translation, metres",
        origin=DECK if overhang else None,
        name=packing.name or None,
        container=list(packing.container),
        container_unit=packing.container_unit or None,
        constraints=dict(packing.constraints) or None,
        instance=dict(packing.instance),
        policy=None,  # name of the packing policy; save_plan adds it
        items=[_item_to_json(item) for item in packing.items],
    )


def _moved(packing: Packing, sign: int) -> Packing:
    """Return a packing on a pallet with its origin moved between the container and the deck.

    Args:
        packing: Its overhang is the distance between the two corners.
        sign: -1 measures from the corner of the deck, 1 from the corner of the container.
    """
    unit = packing.unit or packing.cell
    steps = [sign * math.ceil(over / unit - 1e-6) for over in packing.constraints["overhang"]]
    shift = np.array([*steps, 0]) * unit
    items = tuple(
        replace(
            item,
            translation=(item.translation + shift).round(_DIGITS) + 0.0,
            contacts=None if item.contacts is None else item.contacts + shift,
            cell=(item.cell[0] + steps[0], item.cell[1] + steps[1]),
        )
        for item in packing.items
    )
    fixed = [
        [round(x + shift[0], _DIGITS), round(y + shift[1], _DIGITS), *others]
        for x, y, *others in packing.constraints.get("preplaced", ())
    ]
    entries = {**packing.constraints} | ({"preplaced": fixed} if fixed else {})
    return replace(packing, items=items, constraints=entries)


def _item_to_json(item: PlacedItem) -> dict[str, Any]:
    return _entries(
        item,
        ITEM_KEYS,
        rotation=(item.rotation + 0.0).tolist(),
        quaternion=quaternion(item.rotation).tolist(),
        translation=item.translation.tolist(),
        x=item.cell[0],
        y=item.cell[1],
        extent=item.extent and list(item.extent),
        handling=dict(item.handling) or None,
        contacts=None if item.contacts is None else item.contacts.tolist(),
    )


def _entries(source: object, keys: Iterable[str], **others: object) -> dict[str, Any]:
    """Collect the keys from ``others`` or from the attributes of ``source``; leave out None."""
    entries = {key: others[key] if key in others else getattr(source, key) for key in keys}
    return {key: value for key, value in entries.items() if value is not None}


def save_plan(
    path: str | Path,
    env: PackingEnv | Packing,
    row: int = 0,
    state: Mapping[str, Tensor] | None = None,
    *,
    policy: str | None = None,
    settled: bool = True,
) -> dict[str, Any]:
    """Write a plan to a file, atomically, and return it.

    Args:
        path: The file.
        env: The environment, or a packing.
        row: See :func:`packing_of`.
        state: See :func:`packing_of`.
        policy: Name of the policy that packed the container.
        settled: Lower the items until they touch the items below (:func:`settle`), if all solids
            can be read.
    """
    packing = env if isinstance(env, Packing) else packing_of(env, row, state)
    plan = make_plan(settle(packing) if settled else packing)
    plan |= {} if policy is None else {"policy": policy}
    with files.whole_file(path) as draft:
        draft.write_text(json.dumps(plan, indent=1, allow_nan=False) + "\n", encoding="utf-8")
    return plan


def read_json(path: str | Path) -> dict[str, Any]:
    """Read the JSON of a plan.

    Raises:
        PlanError: The file is not a plan, or has another version; the message names the file.
    """
    try:
        plan = files.parse_json(files.read_text(path, encoding="utf-8-sig"))
    except (OSError, ValueError) as error:
        raise PlanError(f"{path}: cannot be read as a JSON plan ({files.reason(error)})") from error
    if not isinstance(plan, dict) or plan.get("format") != FORMAT:
        raise PlanError(f"{path}: not a packing plan (its 'format' is not {FORMAT!r})")
    if plan.get("version") != VERSION:
        raise PlanError(
            f"{path}: a plan of version {plan.get('version')}, but this program reads {VERSION}; "
            "make the plan again"
        )
    return plan


def load_plan(path: str | Path) -> Packing:
    """Read a plan from a file, and find the mesh files that it names.

    Raises:
        PlanError: The file is not a plan, has another version, or is incomplete; the message names
            file and key.
    """
    return parse(path, read_json(path))


def parse(path: str | Path, plan: Mapping[str, Any]) -> Packing:
    """Convert the JSON of a plan's file to a packing; raise PlanError, naming file and key."""
    try:
        packing = _from_json(plan)
    except KeyError as error:
        key, *place = error.args
        raise PlanError(f"{path}: the plan lacks the key {key!r}{''.join(place)}") from error
    except (TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PlanError(f"{path}: the plan has an invalid value ({error})") from error
    sources = {item.source for item in packing.items if item.extent is None}
    where = {source: find_source(source, Path(path)) for source in sources}
    items = [replace(item, source=where.get(item.source, item.source)) for item in packing.items]
    return replace(packing, items=tuple(items))


def refuse_others(entry: Any, known: Sequence[str], where: str) -> None:
    """Raise ValueError for an unknown key: it may be a limit that nothing would check."""
    if not isinstance(entry, Mapping):
        raise ValueError(f"{where} must be an object with {', '.join(known)}; got {entry!r:.40}")
    others = [key for key in entry if key not in known]
    if others:
        raise ValueError(
            f"{where} has the unknown key {others[0]!r}{close_names(others[0], known)}; a limit "
            f"would not be checked, so correct or remove it; known are {', '.join(known)}"
        )


_WHOLE = Annotated[int, Option(at_least=-(2**31), at_most=2**31)]
_UNIT_OR_NONE = Annotated[str, Option(choices=("", *UNITS))]
_TYPES: dict[str, Any] = {
    "unit": Annotated[str, Option(choices=tuple(UNITS))],
    "order": _WHOLE,
    "name": str,
    "source": str,
    "scale": Positive,
    "orientation": _WHOLE,
    "item_id": _WHOLE,
    "z": float,
    "support_ratio": float,
    "volume": float,
}
"""Keys of an item with plain values, and their allowed types."""
_OPTIONAL: dict[str, Any] = {
    "z_grid": float,
    "gap": float,
    "balanced": bool,
    "leaves": Annotated[str, Option(choices=DIRECTIONS)],
}


def _from_json(plan: Mapping[str, Any]) -> Packing:
    origin = read("origin", plan.get("origin"), Annotated[str, Option(choices=(DECK,))] | None)
    packing = _packing_of(plan)
    return packing if origin is None else _moved(packing, 1)


def _packing_of(plan: Mapping[str, Any]) -> Packing:
    items = tuple(_items(plan["items"]))
    rules = Constraints.read(plan.get("constraints", {}))
    if "weight" in rules.needs and any("weight" not in item.handling for item in items):
        raise ValueError("max_load, weight_limit and balance need the weight of each item")
    return Packing(
        container=_sides(plan, "container"),
        cell=read("cell", plan["cell"], float),
        stability=read("stability", plan["stability"], str),
        contact_tol=read("contact_tol", plan["contact_tol"], float),
        items=items,
        num_items=read("num_items", plan["num_items"], _WHOLE),
        instance={key: int(value) for key, value in plan["instance"].items()},
        claimed=read("utilization", plan.get("utilization"), float | None),
        geometry=str(plan.get("geometry", "maps")),
        unit=read("unit", plan.get("unit"), float | None),
        constraints=rules.to_json(),
        name=plain_name(read("name", plan.get("name", ""), str)),
        container_unit=read("container_unit", plan.get("container_unit", ""), _UNIT_OR_NONE),
    )


def _items(items: Any) -> Iterator[PlacedItem]:
    if not isinstance(items, list):
        raise ValueError("items must be a list")
    for number, item in enumerate(items):
        try:
            yield _item_from_json(item)
        except KeyError as error:
            raise KeyError(*error.args, f" of item {number}") from error
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f"item {number}: {error}") from error


def _item_from_json(item: Mapping[str, Any]) -> PlacedItem:
    values = {key: read(key, item[key], kind) for key, kind in _TYPES.items()}
    values |= {key: read(key, item[key], kind) for key, kind in _OPTIONAL.items() if key in item}
    if item.get("quaternion") is not None:
        values["quaternion"] = _array(item, "quaternion", (4,))
    if item.get("contacts") is not None:
        count = len(item["contacts"])
        values["contacts"] = _array(item, "contacts", (count, 3)) if count else np.zeros((0, 3))
    return PlacedItem(
        **values,
        extent=_sides(item, "extent") if item.get("extent") is not None else None,
        rotation=_array(item, "rotation", (3, 3)),
        translation=_array(item, "translation", (3,)),
        cell=(read("x", item["x"], _WHOLE), read("y", item["y"], _WHOLE)),
        handling=read_handling(item.get("handling", {})),
    )


def _sides(entry: Mapping[str, Any], key: str) -> tuple[float, float, float]:
    x, y, z = read(key, entry[key], tuple[float, ...])
    return x, y, z


def _array(entry: Mapping[str, Any], key: str, shape: tuple[int, ...]) -> np.ndarray:
    array = np.asarray(entry[key], np.float64)
    if array.shape != shape or not np.isfinite(array).all():
        raise ValueError(f"{key} must be finite numbers of shape {list(shape)}")
    return array


def quaternion(rotation: np.ndarray) -> np.ndarray:
    """Return the unit quaternion ``(w, x, y, z)`` of a rotation ``[3, 3]``, with w >= 0.

    The four products 4 q q^T are sums of the matrix's entries. The largest product gives the best
    conditioned square root (Shepperd, J. Guidance and Control 1978).
    """
    (a, b, c), (d, e, f), (g, h, i) = rotation
    products = np.array(
        [
            [1 + a + e + i, h - f, c - g, d - b],
            [h - f, 1 + a - e - i, b + d, c + g],
            [c - g, b + d, 1 - a + e - i, f + h],
            [d - b, c + g, f + h, 1 - a - e + i],
        ]
    )
    best = products[np.argmax(np.diag(products))]
    unit = best / np.linalg.norm(best)
    return unit if unit[0] >= 0 else -unit
