"""Handling of items: weight, load, stacking, fragility, group of unloading, faces that may be up.

Constraints read it (:mod:`packing_env.constraints`); without them it has no effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.constraints import milligrams
from packing_env.names import close_names
from packing_env.values import ParameterError, check_integer, check_number

UNLIMITED = 2**62
"""Load that is never reached, milligrams."""
MAX_GROUP = 2**31
_DRAWN = ("density", "uniform", "share", "seed")
_BOOLEAN = ("stackable", "fragile")


@dataclass(frozen=True, eq=False)
class Handling:
    """Attributes of the rows of a catalogue.

    Attributes:
        weight: milligrams.
        max_load: milligrams that may rest on it.
        stackable: False if nothing may rest on it.
        fragile: True if it is fragile.
        group: when it is unloaded, smaller numbers first.
    """

    weight: Int[Tensor, " M"]
    max_load: Int[Tensor, " M"]
    stackable: Bool[Tensor, " M"]
    fragile: Bool[Tensor, " M"]
    group: Int[Tensor, " M"]

    def tensors(self) -> dict[str, Tensor]:
        """Return the attributes by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def to(self, device: torch.device | str) -> Handling:
        """Return the attributes on another device."""
        return Handling(**{name: value.to(device) for name, value in self.tensors().items()})

    def select(self, rows: Int[Tensor, " K"]) -> Handling:
        """Return the attributes of some rows."""
        return Handling(**{name: value[rows] for name, value in self.tensors().items()})

    def of_row(self, row: int) -> dict[str, Any]:
        """Return the attributes of one row that are not the default, in kilograms."""
        found: dict[str, Any] = {name: value[row].item() for name, value in self.tensors().items()}
        for name in ("weight", "max_load"):
            found[name] = found[name] / 1e6
        same = {"weight": 0.0, "max_load": UNLIMITED / 1e6, "stackable": True, "fragile": False}
        return {name: value for name, value in found.items() if value != {**same, "group": 0}[name]}

    @classmethod
    def default(cls, count: int) -> Handling:
        """Return items without weight, on which everything may rest, of group 0."""
        zeros = torch.zeros(count, dtype=torch.int64)
        off = torch.zeros(count, dtype=torch.bool)
        return cls(zeros, zeros + UNLIMITED, ~off, off, zeros)

    def with_values(
        self, given: Mapping[str, Any], names: Sequence[str], volume: Float[Tensor, " M"]
    ) -> Handling:
        """Return these attributes with others in place of some.

        Args:
            given: By attribute: a value for all items, or a list, one for each, or a mapping of
                names of items to values (the others keep theirs). Weights and loads are kilograms.
                ``{density: 500}`` gives weights by volume (kg/m^3); ``{uniform: [low, high]}``
                draws numbers, whole ones for ``group``; ``{share: 0.2}`` draws True or False;
                ``seed`` beside them chooses the draw.
            names: Names of the items.
            volume: Their volumes, m^3.

        Raises:
            ParameterError: An attribute, a name or a value is wrong; names it and the remedy.
        """
        known = [f.name for f in fields(self)]
        changes: dict[str, Tensor] = {}
        for name, value in given.items():
            if name not in known:
                near = close_names(str(name), known)
                raise ParameterError(
                    f"handling has no attribute {name!r}{near}; known: {', '.join(known)}"
                )
            if value is None:
                continue
            old = getattr(self, name)
            values = _values(name, value, names, volume)
            both = zip(values, old.tolist(), strict=True)
            found = [before if new is None else _read(name, new) for new, before in both]
            changes[name] = torch.tensor(found, dtype=old.dtype)
        return replace(self, **changes)


def _values(name: str, value: Any, names: Sequence[str], volume: Tensor) -> list[Any]:
    """Return one value per item, None where none is given."""
    if isinstance(value, Mapping) and set(value) <= set(_DRAWN):
        return _drawn(name, value, volume)
    if isinstance(value, Mapping):
        unknown = [str(each) for each in value if each not in names]
        if unknown:
            near = close_names(unknown[0], sorted(set(names)))
            raise ParameterError(f"handling.{name}: there is no item {unknown[0]!r}{near}")
        return [value.get(each) for each in names]
    if isinstance(value, (list, tuple, Tensor)):
        values = value.tolist() if isinstance(value, Tensor) else list(value)
        if len(values) != len(names):
            raise ParameterError(
                f"handling.{name} has {len(values)} values for {len(names)} items; give one for "
                "each, or one for all"
            )
        return values
    return [value] * len(names)


def _drawn(name: str, value: Mapping[str, Any], volume: Tensor) -> list[Any]:
    """Return values by density, or random ones."""
    seed = check_integer(f"handling.{name}.seed", value.get("seed", 0), 0)
    ways = [way for way in value if way != "seed"]
    allowed = "share" if name in _BOOLEAN else "density" if name == "weight" else "uniform"
    if len(ways) != 1 or (ways[0] != allowed and (ways[0] != "uniform" or name in _BOOLEAN)):
        raise ParameterError(
            f"handling.{name}={dict(value)} is not understood; use {{{allowed}: ...}}"
        )
    draw = torch.Generator().manual_seed(seed)
    if ways[0] == "density":
        density = check_number(f"handling.{name}.density", value["density"])
        return (volume.cpu().double() * density).tolist()
    uniform = torch.rand(len(volume), generator=draw, dtype=torch.float64)
    if ways[0] == "share":
        share = check_number(f"handling.{name}.share", value["share"])
        return (uniform < share).tolist()
    bounds = value["uniform"]
    if not isinstance(bounds, (list, tuple)) or len(bounds) != 2:
        raise ParameterError(f"handling.{name}.uniform={bounds!r} must be two numbers [low, high]")
    low, high = (check_number(f"handling.{name}.uniform", bound) for bound in bounds)
    if name == "group":
        return [int(low + (high - low + 1) * u) for u in uniform.tolist()]
    return (low + (high - low) * uniform).tolist()


def _read(name: str, value: Any) -> int | bool:
    """Check a value of an attribute and return it as it is kept."""
    where = f"handling.{name}"
    if name in _BOOLEAN:
        if not isinstance(value, bool):
            raise ParameterError(f"{where}={value!r} must be true or false")
        return value
    if name == "group":
        return check_integer(where, value, 0, MAX_GROUP)
    return milligrams(where, value)


FACES = ("+x", "-x", "+y", "-y", "+z", "-z")
"""Faces of an item by their outward direction, in the frame of its file."""


def read_faces(faces: Any) -> tuple[str, ...]:
    """Return the faces that may be up, from a list or words; ``x`` stands for ``+x`` and ``-x``.

    Raises:
        ParameterError: There is no such face.
    """
    words = faces.replace(",", " ").split() if isinstance(faces, str) else list(faces)
    found: list[str] = []
    for word in words:
        both = [f"+{word}", f"-{word}"] if word in ("x", "y", "z") else [word]
        if not set(both) <= set(FACES):
            raise ParameterError(f"faces={word!r} is not a face; choose from {', '.join(FACES)}")
        found += both
    return tuple(dict.fromkeys(found))


def read_each(faces: Sequence[Any] | None, items: Sequence[Any]) -> tuple[tuple[str, ...], ...]:
    """Return the faces of each item that may be up, empty if all of all may.

    Raises:
        ParameterError: There are not as many entries as items, or no such face.
    """
    if faces is None or not any(len(each) for each in faces):
        return ()
    if len(faces) != len(items):
        raise ParameterError(f"faces has {len(faces)} entries for {len(items)} items")
    return tuple(read_faces(each) for each in faces)


def faces_up(rotations: Float[Tensor, "R 3 3"], faces: Sequence[str]) -> Bool[Tensor, " R"]:
    """Return which rotations turn one of the faces up, to 1e-6; all of them for no faces."""
    if not faces:
        return torch.ones(len(rotations), dtype=torch.bool)
    axes = [("xyz".index(face[1]), 1.0 if face[0] == "+" else -1.0) for face in faces]
    up = [rotations[:, 2, axis] * sign >= 1.0 - 1e-6 for axis, sign in axes]
    return torch.stack(up).any(0)


def read_handling(given: Any) -> dict[str, Any]:
    """Return the handling of one item of a plan; raise unless its entries are valid."""
    if not isinstance(given, Mapping):
        raise ParameterError(f"handling={given!r} must be a mapping")
    found = dict(given)
    faces = {"faces": list(read_faces(found.pop("faces")))} if "faces" in found else {}
    Handling.default(1).with_values(found, ["item"], torch.ones(1))
    return {name: value for name, value in found.items() if value is not None} | faces
