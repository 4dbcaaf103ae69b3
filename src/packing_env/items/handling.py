"""Handling of items: weight, load, stacking, fragility, unloading group, allowed orientations.

Constraints read these attributes (:mod:`packing_env.constraints`); without constraints they have no
effect. Orders of boxes also have :class:`Stacking`, which needs no constraint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from numbers import Real
from typing import Annotated, Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.constraints import limit_in_mg, read_kilograms, weight_in_mg
from packing_env.names import close_names
from packing_env.values import (
    Option,
    ParameterError,
    check_integer,
    check_names,
    check_number,
    options,
    plain,
    read,
    read_mapping,
)

UNLIMITED = 2**62
"""A load in milligrams that is never reached."""
MAX_GROUP = 2**31
FACES = ("+x", "-x", "+y", "-y", "+z", "-z")
"""Faces of an item by their outward direction, in the frame of its file."""
POSES = ("faces", "turn")
"""Entries of a plan item's handling that limit its orientations."""
_BOOLEAN = ("stackable", "fragile")
_WEIGHTS = ("weight", "max_load")
_WAYS = {"density": ("weight",), "uniform": (*_WEIGHTS, "group"), "share": _BOOLEAN}
"""The attributes to which each way of computing values applies."""


@dataclass(frozen=True)
class Stacking:
    """Attributes of an item in an order of boxes; a catalogue does not have them.

    Attributes:
        layers: Largest number of levels in a stack whose lowest level is the item, so at most
            ``layers - 1`` levels rest on it. None means any number.
        on_like: True if the item rests only on the floor or on items of the same name.
        like: The name that ``on_like`` compares; "" means the item's own name. If two rows have the
            same name, plans call the second ``name#2``.
        priority: 1 is packed first. Items without a priority (None) come last.
        value: Value of packing the item; None means its volume.
        together: Label of items that stay together: all are in one container, or none is packed.
    """

    layers: Annotated[int, Option(at_least=1)] | None = None
    on_like: bool = False
    like: str = ""
    priority: Annotated[int, Option(at_least=1)] | None = None
    value: Annotated[float, Option(at_least=0.0)] | None = None
    together: str | None = None


@dataclass(frozen=True, eq=False)
class Handling:
    """Attributes of the rows of a catalogue.

    Attributes:
        weight: milligrams.
        max_load: milligrams that may rest on the item.
        stackable: False if nothing may rest on it.
        fragile: True if it is fragile.
        group: order of unloading; smaller numbers are unloaded first.
    """

    weight: Int[Tensor, " M"]
    max_load: Int[Tensor, " M"]
    stackable: Bool[Tensor, " M"]
    fragile: Bool[Tensor, " M"]
    group: Int[Tensor, " M"]

    def tensors(self) -> dict[str, Tensor]:
        """Return the attributes by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def each(self, change: Callable[[Tensor], Tensor]) -> Handling:
        """Return the attributes, each changed by a function, such as a selection of rows."""
        return Handling(**{name: change(value) for name, value in self.tensors().items()})

    def of_row(self, row: int) -> dict[str, Any]:
        """Return the attributes of one row that differ from the defaults; weights in kilograms."""
        values: dict[str, Any] = {}
        for name, default in Handling.default(1).tensors().items():
            value = getattr(self, name)[row].item()
            if value != default.item():
                values[name] = value / 1e6 if name in _WEIGHTS else value
        return values

    @classmethod
    def default(cls, count: int) -> Handling:
        """Return default attributes: no weight, everything may rest on the item, group 0."""
        zeros = torch.zeros(count, dtype=torch.int64)
        off = torch.zeros(count, dtype=torch.bool)
        return cls(zeros, zeros + UNLIMITED, ~off, off, zeros)

    def with_values(
        self, given: Mapping[str, Any], names: Sequence[str], volume: Float[Tensor, " M"]
    ) -> Handling:
        """Return a copy with new values of some attributes.

        Args:
            given: For each attribute: a value for all items, a list with one value per item, or a
                mapping from names of items to values (other items keep theirs). Weights and loads
                are in kilograms. ``{density: 500}`` computes weights from volumes (kg/m^3).
                ``{uniform: [low, high]}`` draws numbers (whole numbers for ``group``). ``{share:
                0.2}`` draws True or False. An additional ``seed`` selects the draw.
            names: Names of the items.
            volume: Their volumes, m^3.

        Raises:
            ParameterError: An attribute, a name or a value is wrong.
        """
        for name in options(Stacking):
            if given.get(name) is not None:
                raise ParameterError(
                    f"handling.{name} applies to orders of boxes; leave it out for items of an "
                    "environment and of orders packed on heightmaps"
                )
        known = [name for name in given if name not in options(Stacking)]
        check_names("handling", known, self.tensors())
        changes: dict[str, Tensor] = {}
        for name, value in given.items():
            if value is not None:
                before = getattr(self, name)
                values = _values(name, value, names, volume)
                both = zip(values, before.tolist(), strict=True)
                rows = [old if new is None else _read(name, new) for new, old in both]
                changes[name] = torch.tensor(rows, dtype=before.dtype)
        return replace(self, **changes)


def _values(name: str, value: Any, names: Sequence[str], volume: Tensor) -> list[Any]:
    """Return one value per item; None for items that keep their own."""
    if isinstance(value, Mapping) and set(value) <= {*_WAYS, "seed"}:
        return _drawn(name, value, volume)
    if isinstance(value, Mapping):
        unknown = next((str(item) for item in value if item not in names), None)
        if unknown is not None:
            near = close_names(unknown, sorted(set(names)))
            raise ParameterError(f"handling.{name}: there is no item {unknown!r}{near}")
        return [value.get(item) for item in names]
    if not isinstance(value, (list, tuple, Tensor)):
        return [value] * len(names)
    values = value.tolist() if isinstance(value, Tensor) else list(value)
    if len(values) != len(names):
        raise ParameterError(
            f"handling.{name} has {len(values)} values for {len(names)} items; give one for each, "
            "or one for all"
        )
    return values


def _drawn(name: str, value: Mapping[str, Any], volume: Tensor) -> list[Any]:
    where = f"handling.{name}"
    seed = check_integer(f"{where}.seed", value.get("seed", 0), 0)
    ways = [way for way in value if way != "seed"]
    allowed = [way for way, attributes in _WAYS.items() if name in attributes]
    if len(ways) != 1 or ways[0] not in allowed:
        raise ParameterError(f"{where}={dict(value)} must be a mapping of {' or '.join(allowed)}")
    if ways[0] == "density":
        density = check_number(f"{where}.density", value["density"])
        return (volume.cpu().double() * density).tolist()
    draw = torch.Generator().manual_seed(seed)
    uniform = torch.rand(len(volume), generator=draw, dtype=torch.float64)
    if ways[0] == "share":
        return (uniform < check_number(f"{where}.share", value["share"])).tolist()
    bounds = value["uniform"]
    if not isinstance(bounds, (list, tuple)) or len(bounds) != 2:
        raise ParameterError(f"{where}.uniform={bounds!r} must be two numbers [low, high]")
    low, high = (check_number(f"{where}.uniform", bound) for bound in bounds)
    if name == "group":
        return [int(low + (high - low + 1) * u) for u in uniform.tolist()]
    return (low + (high - low) * uniform).tolist()


def _read(name: str, value: Any) -> int | bool:
    where = f"handling.{name}"
    if name in _WEIGHTS:
        kilograms = read_kilograms(where, value)
        return weight_in_mg(kilograms) if name == "weight" else limit_in_mg(kilograms)
    if name == "group":
        return check_integer(where, value, 0, MAX_GROUP)
    if not isinstance(value, bool):
        raise ParameterError(f"{where}={value!r} must be true or false")
    return value


# ---------------------------------------------------------------------- faces that may be up


def read_faces(faces: Any) -> tuple[str, ...]:
    """Return the faces that may be up, from a list or words; ``x`` stands for ``+x`` and ``-x``."""
    words = faces.replace(",", " ").split() if isinstance(faces, str) else list(faces)
    distinct: dict[str, None] = {}
    for word in words:
        both = (f"+{word}", f"-{word}") if word in ("x", "y", "z") else (word,)
        if not set(both) <= set(FACES):
            raise ParameterError(f"faces={word!r} is not a face; choose from {', '.join(FACES)}")
        distinct |= dict.fromkeys(both)
    return tuple(distinct)


def read_each(faces: Sequence[Any] | None, items: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """Return the faces of each item that may be up; empty if every face of every item may."""
    if faces is None or not any(len(entry) for entry in faces):
        return ()
    if len(faces) != len(items):
        raise ParameterError(
            f"faces has {len(faces)} entries for {len(items)} items; give one for each item"
        )
    return tuple(read_faces(entry) for entry in faces)


def faces_up(rotations: Float[Tensor, "R 3 3"], faces: Sequence[str]) -> Bool[Tensor, " R"]:
    """Return which rotations turn one of the faces up (within 1e-6); all if there are no faces."""
    if not faces:
        return torch.ones(len(rotations), dtype=torch.bool)
    axes = [("xyz".index(face[1]), 1.0 if face[0] == "+" else -1.0) for face in faces]
    up = [rotations[:, 2, axis] * sign >= 1.0 - 1e-6 for axis, sign in axes]
    return torch.stack(up).any(0)


def allowed(
    rotations: Float[Tensor, "R 3 3"], faces: Sequence[str], turn: bool
) -> Float[Tensor, "A 3 3"]:
    """Return the rotations of an item that its ``faces`` and ``turn`` allow.

    Without ``turn``, the +x face keeps its direction (within 1e-6): the item turns about x alone.
    """
    rotations = rotations[faces_up(rotations, faces)]
    return rotations if turn else rotations[rotations[:, 0, 0] >= 1.0 - 1e-6]


def read_handling(attributes: Any) -> dict[str, Any]:
    """Return the handling of one item of a plan; raise unless its entries are valid."""
    if not isinstance(attributes, Mapping):
        raise ParameterError(f"handling={attributes!r} must be a mapping")
    special = options(Stacking)
    known = [f.name for f in fields(Handling)]
    check_names("handling", attributes, [*known, *special, *POSES])
    values = {name: plain(v) for name, v in attributes.items() if name in known and v is not None}
    for name, value in values.items():
        _read(name, value)
        if isinstance(value, Real) and not isinstance(value, int):
            values[name] = float(value)  # JSON knows no fractions
    stacking = {name: value for name, value in attributes.items() if name in special}
    stacking = read_mapping(Stacking, stacking, "handling", "handling.")
    unset = (None, False)  # compared by identity: a value may be 0
    values |= {k: v for k, v in stacking.items() if not any(v is each for each in unset)}
    poses: dict[str, Any] = {}
    if "faces" in attributes:
        poses["faces"] = list(read_faces(attributes["faces"]))
    if not read("handling.turn", attributes.get("turn", True), bool):
        poses["turn"] = False
    return values | poses
