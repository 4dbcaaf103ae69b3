"""Reader of 3MF: the items of the build, with their components, in their poses.

A package holds one model file (3MF Core Specification 1.3) or several (Production Extension 1.1).
An id is unique only within its model file.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from array import array
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from urllib.parse import unquote
from xml.parsers import expat

import numpy as np

from packing_env.items.meshes import limits
from packing_env.items.meshes.formats import slicers
from packing_env.items.meshes.mesh import UNITS
from packing_env.items.meshes.surface import (
    Matrix,
    MeshError,
    Surface,
    damaged,
    merged,
    surface,
    unsupported,
)

UNIT_NAMES = {
    "micron": "um", "millimeter": "mm", "millimeters": "mm", "centimeter": "cm", "inch": "in",
    "foot": "ft", "meter": "m",
}  # fmt: skip
"""Key of `mesh.UNITS` for each unit name of 3MF."""
DEFAULT_UNIT = "mm"
READ = (
    "http://schemas.microsoft.com/3dmanufacturing/core/2015/02",
    "http://schemas.microsoft.com/3dmanufacturing/production/2015/06",
)
"""Namespaces of the elements and attributes that are read."""
LATTICE = "http://schemas.microsoft.com/3dmanufacturing/beamlattice/2017/02"
"""Namespace of beams, which are left out with a warning."""
SOLID = ("model", "solidsupport", slicers.NORMAL_PART, "")
"""Types of the objects that are solid; those of type support, surface and other are left out."""
SAME_SHAPE = ("/core/", "/production/2015/", "/material/", "/trianglesets/")
"""Parts of the namespaces that a model may require: read here, or without effect on shapes."""
MODEL_RELATION = "/3dmodel"
"""End of the relationship type with which a package names its root model file."""
CONTENTS = ("vertex", "triangle", "mesh", "beamlattice")
"""Elements inside objects."""
USUAL_ROOT = "3d/3dmodel.model"
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, expat.ExpatError, EOFError, NotImplementedError,
    OSError, RuntimeError, LookupError, ValueError,
)  # fmt: skip
"""Errors that `zipfile` and `expat` raise for a damaged file."""


@dataclass(slots=True)
class _Reference:
    """A build item or a component: an object, its transform, and why it is left out, or ""."""

    name: str
    file: str
    matrix: Matrix
    why: str


@dataclass
class _Object:
    why: str = ""  # it is not solid
    name: str = ""
    vertices: array[float] = field(default_factory=lambda: array("d"))
    faces: array[int] = field(default_factory=lambda: array("q"))
    components: list[_Reference] = field(default_factory=list)
    has_mesh: bool = False
    has_beams: bool = False
    notes: list[str] = field(default_factory=list)  # on what it lacks

    def add(self, tag: str, attributes: dict[str, str], scale: float) -> None:
        """Add a vertex or a triangle, or record a mesh or beams."""
        if tag == "vertex":
            x, y, z = attributes["x"], attributes["y"], attributes["z"]
            self.vertices.extend((float(x) * scale, float(y) * scale, float(z) * scale))
        elif tag == "triangle":
            a, b, c = attributes["v1"], attributes["v2"], attributes["v3"]
            self.faces.extend((int(a), int(b), int(c)))
        else:
            self.has_mesh, self.has_beams = True, tag == "beamlattice"


@dataclass(frozen=True)
class BuildItem:
    """Equal items of the build of a package.

    Attributes:
        name: Name of the object, or "".
        numbers: Positions of these items among the solid items, counted from 1.
        unit: Unit of the package, a key of `mesh.UNITS`.
    """

    name: str
    numbers: tuple[int, ...]
    unit: str


def build_items(data: bytes) -> list[BuildItem]:
    """Return the solid items of a 3MF package's build; items at different positions may be equal.

    Raises:
        MeshError: See :func:`read_3mf`.
    """
    package, kinds = _read(data), dict[tuple[str, bytes], list[int]]()
    for number, item in enumerate(package.items, 1):
        turned = item.matrix[:3, :3].round(9) + 0.0
        kinds.setdefault((item.name, turned.tobytes()), []).append(number)
    objects, unit = package.objects, package.unit
    return [BuildItem(objects[name].name, tuple(each), unit) for (name, _), each in kinds.items()]


def read_3mf(data: bytes, number: int | None = None) -> Surface:
    """Read a 3MF package: the items of its build; each mesh is a separate body.

    Args:
        data: The package.
        number: Which solid item to read, counted from 1; None reads all of them.

    Raises:
        MeshError: The file is not a package, is damaged or too large, needs an unsupported
            extension, or has no such item.
    """
    package = _read(data, number)
    package.check_size()
    whole = merged(list(package.bodies()), package.unit)
    return replace(whole, warnings=tuple(package.warnings))


def _read(data: bytes, number: int | None = None) -> _Package:
    """Read the objects of a package, and the solid items of its build, or only one of these."""
    if not data.startswith(b"PK"):
        raise MeshError("no ZIP archive, which a 3MF package is; check the file's suffix")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(entry.file_size for entry in archive.infolist())
            limits.check_bytes("unpacks to", unpacked)
            package = _Package(archive)
    except MeshError:
        raise
    except DAMAGED as error:
        raise damaged(f"cannot be parsed as 3MF ({error})") from error
    package.check_references()
    if number is not None:
        package.choose(number)
    package.leave_out()
    return package


class _Package:
    """The root model file of a package, and the model files to which it refers.

    Attributes:
        unit: Key of `mesh.UNITS`: the unit of the root. Lengths of other files are converted to
            this unit.
        objects: Objects by name: ``object ID of FILE``.
        items: The build of the root.
        warnings: One sentence for each thing that was left out.
    """

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.unit = ""
        self.objects: dict[str, _Object] = {}
        self.items: list[_Reference] = []
        self.warnings: list[str] = []
        names = {_normal(name): name for name in archive.namelist()}
        waiting, read = [_root(archive, names)], set[str]()
        while waiting:
            file = waiting.pop()
            if file in read:
                continue
            if file not in names:
                raise damaged(f"has no model file {file!r}")
            components, build = self._read_model(file, archive.read(names[file]))
            if not read:  # the root; the builds of other files are ignored
                self.items, self.unit = build, self.unit or DEFAULT_UNIT
            waiting += dict.fromkeys(part.file for part in (*components, *self.items))
            read.add(file)
        root = _root(archive, names)
        for file in slicers.FILES:
            if file in names:
                self._mark(file, root, archive.read(names[file]))

    def _mark(self, file: str, root: str, data: bytes) -> None:
        """Name objects, and leave out their bodies that are not solid, as a slicer's file says."""
        settings, damage = slicers.read(data)
        self.warnings += [f"{file} {damage}"] if damage else []
        for number, marks in settings.items():
            place = _name(number, root)
            entry = self.objects.get(place)
            if entry is None:
                continue
            entry.name = entry.name or marks.name
            for part in entry.components:
                if kinds := marks.parts[part.name.split()[1]]:
                    part.why = part.why or _not_solid(kinds.pop(0))
            if marks.volumes:
                entry.faces = marks.without_volumes(entry.faces, f"{file}: {place}")
                entry.notes += [
                    f"{place}: triangles {first} to {last} ({kind}) are left out"
                    for (first, last), kind in marks.volumes.items()
                ]

    def _read_model(self, file: str, data: bytes) -> tuple[list[_Reference], list[_Reference]]:
        """Parse a model file; return its components and its build."""
        components: list[_Reference] = []
        build: list[_Reference] = []
        prefixes: dict[str, str] = {}
        place, current, scale = file, _Object(), 1.0  # place: for error messages
        marked: _Object | _Reference = current  # what metadata describe: an object or a build item
        try:
            for tag, attributes in limits.elements(data, prefixes, spaces=(*READ, LATTICE)):
                if tag in CONTENTS:
                    current.add(tag, attributes, scale)
                elif tag == "component":
                    components.append(_reference(file, attributes, scale))
                    current.components.append(components[-1])
                elif tag == "object":
                    place = _name(attributes["id"], file)
                    current = marked = self._new_object(place, attributes)
                elif tag == "item":
                    place = f"the build of {file}"
                    build.append(_reference(file, attributes, scale))
                    marked = build[-1]
                elif tag == "metadata":
                    marked.why = marked.why or _not_solid(slicers.cura_kind(attributes))
                elif tag == "model":
                    _check_extensions(attributes, prefixes)
                    unit = _unit(attributes.get("unit"), self.unit or DEFAULT_UNIT)
                    self.unit = self.unit or unit  # the unit of the root, which is read first
                    scale = UNITS[unit] / UNITS[self.unit]
        except MeshError:
            raise
        except (KeyError, ValueError, OverflowError) as error:
            raise damaged(f"{place}: missing or invalid value ({error})") from error
        return components, build

    def _new_object(self, place: str, attributes: dict[str, str]) -> _Object:
        if place in self.objects:
            raise damaged(f"{place} occurs twice")
        why = _not_solid(attributes.get("type", ""))
        return self.objects.setdefault(place, _Object(why, attributes.get("name", "")))

    def check_references(self) -> None:
        """Raise `MeshError` for missing references, and for a build without items."""
        inner = [part for entry in self.objects.values() for part in entry.components]
        for part in (*self.items, *inner):
            if part.name not in self.objects:
                raise damaged(f"refers to {part.name}, which does not exist")
        if not self.items:
            raise damaged("its build has no items")

    def choose(self, number: int) -> None:
        """Keep one solid item, and the items that are not solid, which warnings name."""
        hollow = self._hollow()
        out = [item for item in self.items if item.why or item.name in hollow]
        solid = [item for item in self.items if not (item.why or item.name in hollow)]
        if number > len(solid) > 0:
            raise MeshError(f"its build has {len(solid)} solid items, not {number}")
        self.items = out + solid[number - 1 : number]

    def leave_out(self) -> None:
        """Leave out items and components that are not solid, with a warning for each object.

        Raises:
            MeshError: The build contains no solid.
        """
        hollow, seen = self._hollow(), set[str]()
        waiting = [self.items]
        while waiting:
            references, solid = waiting.pop(), list[_Reference]()
            for part in references:
                entry = self.objects[part.name]
                if why := part.why or hollow.get(part.name):
                    self.warnings.append(f"{part.name} {why}: left out")
                else:
                    solid.append(part)
                if part.name in seen or part.why or entry.why:
                    continue
                seen.add(part.name)
                waiting.append(entry.components)
                self.warnings += entry.notes
                if entry.has_beams:
                    self.warnings.append(f"{part.name} has beams, which are not read: left out")
            references[:] = solid
        self.warnings = list(dict.fromkeys(self.warnings))
        if not self.items:
            raise MeshError(
                f"its build has nothing solid ({'; '.join(self.warnings)}); export it with a "
                f"printable object of type {SOLID[0]!r} that is not a modifier"
            )

    def _hollow(self) -> dict[str, str]:
        """Return why objects are not solid: their type, no triangles, or no solid component."""
        # From such objects up to those that are made of them.
        above, num_bodies = defaultdict[str, list[str]](list), dict[str, int]()
        for name, entry in self.objects.items():
            components = [part.name for part in entry.components if not part.why]
            num_bodies[name] = 0 if entry.why else len(components) + bool(entry.faces)
            for component in components:
                above[component].append(name)
        why, waiting = dict[str, str](), [name for name, count in num_bodies.items() if not count]
        while waiting:
            name = waiting.pop()
            entry = self.objects[name]
            empty = "has no solid component" if entry.components else "has no triangles"
            why[name] = entry.why or empty
            for user in above[name]:
                num_bodies[user] -= 1
                waiting += [user] * (num_bodies[user] == 0)
        return why

    def check_size(self) -> None:
        """Raise `MeshError` for circular references, and for too many or too large bodies."""
        parts = limits.Parts()
        parts.made_of[""] = [item.name for item in self.items]
        for name, entry in self.objects.items():
            parts.made_of[name] = [component.name for component in entry.components]
            if entry.has_mesh:
                vertices, triangles = len(entry.vertices) // 3, len(entry.faces) // 3
                parts.size[name] = limits.size_of(vertices, triangles)
        parts.check()

    def bodies(self) -> Iterator[Surface]:
        """Yield the meshes of the build in their order, transformed."""
        waiting = [(item, item.matrix) for item in reversed(self.items)]
        while waiting:
            reference, matrix = waiting.pop()
            entry = self.objects[reference.name]
            if entry.has_mesh:
                yield self._mesh(reference.name, entry).moved(matrix)
            waiting += [(part, matrix @ part.matrix) for part in reversed(entry.components)]

    def _mesh(self, name: str, entry: _Object) -> Surface:
        mesh = surface(np.frombuffer(entry.vertices), np.frombuffer(entry.faces, np.int64))
        last = len(mesh.vertices) - 1
        if len(mesh.faces) and not 0 <= mesh.faces.min() <= mesh.faces.max() <= last:
            raise damaged(f"{name}: a triangle refers to a vertex outside 0..{last}")
        return mesh


def _name(object_id: str, file: str) -> str:
    return f"object {object_id} of {file}"


def _reference(file: str, attributes: dict[str, str], scale: float) -> _Reference:
    """Return an item or a component; its transform has 12 numbers, for row vectors."""
    matrix = np.eye(4)
    if "transform" in attributes:
        numbers = [float(word) for word in attributes["transform"].split()]
        matrix[:3] = np.reshape(numbers, (4, 3)).T
        matrix[:3, 3] *= scale
    target = _normal(attributes["path"]) if "path" in attributes else file
    printable = attributes.get("printable") not in ("0", "false")  # written by slicers
    why = "" if printable else "is marked as not printable"
    return _Reference(_name(attributes["objectid"], target), target, matrix, why)


def _not_solid(kind: str) -> str:
    return "" if kind in SOLID else f"is of type {kind!r}, not a solid"


def _check_extensions(attributes: dict[str, str], prefixes: dict[str, str]) -> None:
    for prefix in attributes.get("requiredextensions", "").split():
        space = prefixes.get(prefix, prefix)
        if not any(mark in space for mark in SAME_SHAPE):
            raise unsupported(space)


def _unit(name: str | None, default: str) -> str:
    if name is not None and name not in UNIT_NAMES:
        raise MeshError(f"unknown 3MF unit {name!r}; use one of {', '.join(UNIT_NAMES)}")
    return default if name is None else UNIT_NAMES[name]


def _normal(name: str) -> str:
    """Return the name of a file in a package: without a leading slash, in lower case, unescaped."""
    return unquote(name).replace("\\", "/").strip("/").lower()


def _root(archive: zipfile.ZipFile, names: dict[str, str]) -> str:
    """Return the root model file: the one that the package names, else one with the usual name."""
    if (relations := names.get("_rels/.rels")) is not None:
        for tag, attributes in limits.elements(archive.read(relations)):
            if tag == "Relationship" and attributes.get("Type", "").endswith(MODEL_RELATION):
                return _normal(attributes.get("Target", ""))
    return next((name for name in names if USUAL_ROOT in name), USUAL_ROOT)
