"""Reader of 3MF: the items of the build, with their components, at their poses.

A package holds one model file (3MF Core Specification 1.3) or several (Production Extension 1.1).
An id names an object within its model file only.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote
from xml.parsers import expat

import numpy as np
from jaxtyping import Float

from packing_env import files
from packing_env.items.meshes import limits
from packing_env.items.meshes.mesh import UNITS
from packing_env.items.meshes.surface import MeshError, Surface, merged, moved, surface
from packing_env.memory import human

UNIT_NAMES = {
    "micron": "um",
    "millimeter": "mm",
    "millimeters": "mm",
    "centimeter": "cm",
    "inch": "in",
    "foot": "ft",
    "meter": "m",
}
"""Key of `mesh.UNITS` for each unit name of 3MF."""
DEFAULT_UNIT = "mm"
READ = (
    "http://schemas.microsoft.com/3dmanufacturing/core/2015/02",
    "http://schemas.microsoft.com/3dmanufacturing/production/2015/06",
)
"""Namespaces of the elements and attributes that are read."""
SOLID = ("model", "solidsupport")
"""Types of the objects that are solid; those of type support, surface and other are left out."""
SAME_SHAPE = ("/core/", "/production/2015/", "/material/", "/trianglesets/")
"""Marks of the namespaces that a model may require: they are read here, or change no shape."""
MODEL_RELATION = "/3dmodel"
"""End of the type by which a package names its root model file."""
USUAL_ROOT = "3d/3dmodel.model"
DAMAGED = (
    zipfile.BadZipFile, zlib.error, struct.error, expat.ExpatError, EOFError, NotImplementedError,
    OSError, RuntimeError, ValueError,
)  # fmt: skip
"""Errors of `zipfile` and `expat` on a damaged file."""

Matrix = Float[np.ndarray, "4 4"]


@dataclass(frozen=True)
class _Reference:
    """A build item or a component: an object of a model file, moved."""

    file: str
    object_id: str
    matrix: Matrix

    @property
    def name(self) -> str:
        """The name of the object in the whole package."""
        return f"{self.file}#{self.object_id}"


@dataclass
class _Object:
    """An object: a mesh, or components."""

    type: str
    vertices: array[float] = field(default_factory=lambda: array("d"))
    faces: array[int] = field(default_factory=lambda: array("q"))
    components: list[_Reference] = field(default_factory=list)
    has_mesh: bool = False


def read_3mf(path: Path, data: bytes) -> Surface:
    """Read a 3MF package: all items of its build, each mesh a body of its own.

    Raises:
        MeshError: not a package, damaged, too large, or in need of an extension that is not read.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            _check_unpacked(path, archive)
            package = _Package(path, archive)
    except MeshError:
        raise
    except DAMAGED as error:
        raise MeshError(f"{path}: cannot be parsed as 3MF ({error}); export it again") from error
    package.leave_out()
    package.check()
    whole = merged(list(package.bodies()), package.unit)
    return replace(whole, warnings=tuple(package.warnings))


def _check_unpacked(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise `MeshError` if the files of an archive are larger than is read."""
    size = sum(entry.file_size for entry in archive.infolist())
    if size > files.MAX_BYTES:
        raise MeshError(
            f"{path}: unpacks to {human(size)}, and at most {human(files.MAX_BYTES)} are read; "
            "export it with fewer triangles"
        )


class _Model:
    """One model file.

    Attributes:
        unit: Key of `mesh.UNITS`, or None where the file states no unit.
        objects: Its objects by their ids.
        items: Its build.
    """

    def __init__(self, path: Path, file: str, data: bytes) -> None:
        self.path, self.file = path, file
        self.unit: str | None = None
        self.objects: dict[str, _Object] = {}
        self.items: list[_Reference] = []
        self._prefixes: dict[str, str] = {}
        self._place, self._current = file, _Object(SOLID[0])
        readers = {
            "model": self._read_model,
            "object": self._read_object,
            "mesh": self._read_mesh,
            "vertex": self._read_vertex,
            "triangle": self._read_triangle,
            "component": self._read_component,
            "item": self._read_item,
        }
        try:
            for tag, attributes in limits.elements(data, self._prefixes, spaces=READ):
                if (reader := readers.get(tag)) is not None:
                    reader(attributes)
        except MeshError:
            raise
        except (KeyError, ValueError, OverflowError) as error:
            raise MeshError(
                f"{path}: {self._place}: missing or invalid value ({error}); export it again"
            ) from error

    def convert(self, factor: float) -> None:
        """Multiply all lengths of the objects by a factor."""
        for each in self.objects.values():
            each.vertices = array("d", [length * factor for length in each.vertices])
            for component in each.components:
                component.matrix[:3, 3] *= factor

    def _read_model(self, attributes: dict[str, str]) -> None:
        """Read the unit; refuse extensions that may change the shape."""
        for prefix in attributes.get("requiredextensions", "").split():
            space = self._prefixes.get(prefix, prefix)
            if not any(mark in space for mark in SAME_SHAPE):
                raise MeshError(
                    f"{self.path}: needs the 3MF extension {space!r}, which is not supported; "
                    "export it without"
                )
        if (unit := attributes.get("unit")) is not None:
            if unit not in UNIT_NAMES:
                raise MeshError(
                    f"{self.path}: unknown 3MF unit {unit!r}; use one of {', '.join(UNIT_NAMES)}"
                )
            self.unit = UNIT_NAMES[unit]

    def _read_object(self, attributes: dict[str, str]) -> None:
        number = attributes["id"]
        self._place = f"object {number} of {self.file}"
        if number in self.objects:
            raise MeshError(f"{self.path}: there are two of {self._place}; export it again")
        self._current = self.objects[number] = _Object(attributes.get("type", SOLID[0]))

    def _read_mesh(self, attributes: dict[str, str]) -> None:
        self._current.has_mesh = True

    def _read_vertex(self, attributes: dict[str, str]) -> None:
        x, y, z = attributes["x"], attributes["y"], attributes["z"]
        self._current.vertices.extend((float(x), float(y), float(z)))

    def _read_triangle(self, attributes: dict[str, str]) -> None:
        a, b, c = attributes["v1"], attributes["v2"], attributes["v3"]
        self._current.faces.extend((int(a), int(b), int(c)))

    def _read_component(self, attributes: dict[str, str]) -> None:
        self._current.components.append(self._reference(attributes))

    def _read_item(self, attributes: dict[str, str]) -> None:
        self._place = f"the build of {self.file}"
        self.items.append(self._reference(attributes))

    def _reference(self, attributes: dict[str, str]) -> _Reference:
        """Return an item or a component; its transform has 12 numbers, for row vectors."""
        matrix = np.eye(4)
        if "transform" in attributes:
            numbers = [float(word) for word in attributes["transform"].split()]
            matrix[:3] = np.reshape(numbers, (4, 3)).T
        file = _normal(attributes["path"]) if "path" in attributes else self.file
        return _Reference(file, attributes["objectid"], matrix)


class _Package:
    """The root model file of a package, and the model files that it refers to.

    Attributes:
        unit: Key of `mesh.UNITS`: that of the root. Lengths of other files are converted to it.
        warnings: What was left out, one sentence each.
    """

    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self.path = path
        names = {_normal(name): name for name in archive.namelist()}
        root = _root(archive, names)
        self.unit = DEFAULT_UNIT
        self.items: list[_Reference] = []
        self.models: dict[str, _Model] = {}
        self.warnings: list[str] = []
        waiting = [root]
        while waiting:
            file = waiting.pop()
            if file in self.models:
                continue
            if file not in names:
                raise MeshError(f"{path}: has no model file {file!r}; export it again")
            model = self.models[file] = _Model(path, file, archive.read(names[file]))
            references = [part for each in model.objects.values() for part in each.components]
            if file == root:  # the builds of other files do not count
                self.unit = model.unit or DEFAULT_UNIT
                self.items = model.items
                references += model.items
            elif model.unit not in (None, self.unit):
                model.convert(UNITS[model.unit] / UNITS[self.unit])
            waiting += dict.fromkeys(reference.file for reference in references)

    def leave_out(self) -> None:
        """Leave out the items and components that are not solid, each object with a warning.

        Raises:
            MeshError: the build has no items, or none that is solid; a reference is to nothing.
        """
        if not self.items:
            raise MeshError(f"{self.path}: its build has no items; export it again")
        types: dict[str, str] = {}
        waiting = [self.items]
        while waiting:
            references = waiting.pop()
            for reference in references:
                if (name := self._existing(reference)) not in types:
                    each = self.models[reference.file].objects[reference.object_id]
                    types[name] = each.type
                    waiting += [each.components] * (each.type in SOLID)
            references[:] = [part for part in references if types[part.name] in SOLID]
        self.warnings = [
            f"object {name.rpartition('#')[2]} of {name.rpartition('#')[0]} is of type {kind!r}, "
            "not a solid: left out"
            for name, kind in types.items()
            if kind not in SOLID
        ]
        if not self.items:
            raise MeshError(
                f"{self.path}: its build has nothing solid ({'; '.join(self.warnings)}); export it "
                f"with objects of type {SOLID[0]!r}"
            )

    def check(self) -> None:
        """Raise `MeshError` for references to nothing, circles, and too many or large bodies."""
        parts = limits.Parts()
        parts.made_of[""] = [item.name for item in self.items]
        for file, model in self.models.items():
            for number, each in model.objects.items():
                name = f"{file}#{number}"
                parts.made_of[name] = [self._existing(part) for part in each.components]
                if each.has_mesh:
                    vertices, triangles = len(each.vertices) // 3, len(each.faces) // 3
                    parts.size[name] = limits.size_of(vertices, triangles)
        parts.check(self.path)

    def _existing(self, reference: _Reference) -> str:
        """Return the name of an object; raise if it does not exist."""
        if reference.object_id not in self.models[reference.file].objects:
            raise MeshError(
                f"{self.path}: refers to object {reference.object_id} of {reference.file}, which "
                "does not exist; export it again"
            )
        return reference.name

    def bodies(self) -> Iterator[Surface]:
        """Yield the meshes of the build in their order, moved."""
        waiting = [(item, np.eye(4)) for item in reversed(self.items)]
        while waiting:
            reference, above = waiting.pop()
            matrix = above @ reference.matrix
            each = self.models[reference.file].objects[reference.object_id]
            if each.has_mesh:
                yield moved(self._mesh(reference, each), matrix)
            waiting += [(part, matrix) for part in reversed(each.components)]

    def _mesh(self, reference: _Reference, each: _Object) -> Surface:
        """Return the mesh of an object; raise where a triangle has a vertex that does not exist."""
        mesh = surface(np.frombuffer(each.vertices), np.frombuffer(each.faces, np.int64))
        if len(mesh.faces) and not 0 <= mesh.faces.min() <= mesh.faces.max() < len(mesh.vertices):
            raise MeshError(
                f"{self.path}: object {reference.object_id} of {reference.file}: a triangle refers "
                f"to a vertex outside 0..{len(mesh.vertices) - 1}; export it again"
            )
        return mesh


def _normal(name: str) -> str:
    """Return the name of a file in a package: without a first slash, in lower case, unescaped."""
    return unquote(name).replace("\\", "/").strip("/").lower()


def _root(archive: zipfile.ZipFile, names: dict[str, str]) -> str:
    """Return the root model file: the one that the package names, or that has the usual name."""
    if (relations := names.get("_rels/.rels")) is not None:
        for tag, attributes in limits.elements(archive.read(relations)):
            if tag == "Relationship" and attributes.get("Type", "").endswith(MODEL_RELATION):
                return _normal(attributes.get("Target", ""))
    return next((name for name in names if USUAL_ROOT in name), USUAL_ROOT)
