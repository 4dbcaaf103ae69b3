"""Reader of URDF trees: one rigid surface at the zero configuration.

Units are metres and radians, frames as in the URDF specification (wiki.ros.org/urdf/XML).
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np

from packing_env import files
from packing_env.items.meshes import limits
from packing_env.items.meshes.formats import readers
from packing_env.items.meshes.mesh import UNITS
from packing_env.items.meshes.primitives import box, revolved
from packing_env.items.meshes.surface import Matrix, MeshError, Surface, merged
from packing_env.names import listed

CIRCLE_STEPS = 64
"""Number of facets around cylinders and spheres; a multiple of 4 keeps their extents."""
DEFINITIONS = ("xacro}property", "xacro}arg", "xacro}macro")
"""Ends of the names of elements that xacro leaves out of its output."""
READ = ("filename", "length", "radius", "rpy", "scale", "size", "xyz")
"""Attributes of geometry and origins that are read."""
MACRO = re.compile(r"\$(?:\{[^{}]*\}|\([^()]*\))")
"""Macros of xacro in attributes: `${expression}`, `$(arg NAME)`, `$(find PACKAGE)`."""
ARGUMENT = re.compile(r"\$\(arg ([^()\s]+)\)")


def read_tree(path: Path, data: bytes) -> Surface:
    """Read all geometry of a URDF file in the frame of its root link, one part per geometry.

    Raises:
        MeshError: The file is not XML or not a tree of links, has no geometry, or refers to a mesh
            that cannot be read.
    """
    try:
        robot = ElementTree.fromstring(data)
    except ElementTree.ParseError as error:
        raise MeshError(f"not valid XML ({error}); repair the file, or check its suffix") from error
    if macro := _first_macro(path, robot):
        values = "".join(f" {name}:=VALUE" for name in ARGUMENT.findall(macro))
        command = f"xacro {path.name}{values} > expanded.urdf"
        raise MeshError(f"has the macro {macro}; expand it first: {command}")
    # 1. Check the number of parts and the bytes of their files before any is read.
    limits.check_parts(sum(len(_elements(link)) for link in robot.findall("link")))
    referenced = sum(file.stat().st_size for file in _references(path, robot))
    limits.check_bytes("refers to meshes of", referenced)
    # 2. Read them; a small file may expand to a large one.
    pieces: list[Surface] = []
    warned: dict[str, dict[str, None]] = {}  # files by warning
    parts, size = 0, 0
    for link, pose in _link_poses(robot):
        for element in _elements(link):
            piece = _geometry(path, element)
            parts += int(piece.part.max(initial=0)) + 1
            size += limits.size_of(len(piece.vertices), len(piece.faces))
            limits.check_size(parts, size)
            pieces.append(piece.moved(pose @ _origin(element)))
            for warning in piece.warnings:
                warned.setdefault(warning, {})[_mesh_name(element)] = None
    if not pieces:
        raise MeshError("no visual or collision geometry in it; add some to a link")
    warnings = tuple(f"{listed([*names])}: {warning}" for warning, names in warned.items())
    return replace(merged(pieces, "m"), warnings=warnings)


def _first_macro(path: Path, robot: ElementTree.Element) -> str:
    """Return the first macro in the geometry of a tree, or ""; definitions are removed from it."""
    defined = [
        (above, child)
        for above in robot.iter()
        for child in above
        if child.tag.endswith(DEFINITIONS)
    ]
    for above, child in defined:
        above.remove(child)
    for element in robot.iter():
        if "xacro}" in element.tag:
            return f"xacro:{element.tag.partition('}')[2]}"
    posed = [each for link in robot.findall("link") for each in _elements(link)]
    used = [each.find(name) for each in posed for name in ("origin", "geometry/*")]
    used += [joint.find("origin") for joint in robot.findall("joint")]
    read = [(name, part.get(name, "")) for part in used if part is not None for name in READ]
    for name, text in read:
        if (macro := MACRO.search(text)) and not (name == "filename" and _find(path, text)):
            return macro[0]
    return ""


def referenced_files(path: Path) -> set[Path]:
    """Return the existing mesh files to which a URDF file refers (resolved paths)."""
    try:
        robot = ElementTree.fromstring(files.read_bytes(path, files.MAX_TEXT))
    except (ElementTree.ParseError, OSError):
        return set()  # `read_tree` reports the error
    return {file.resolve() for file in _references(path, robot)}


def _references(path: Path, robot: ElementTree.Element) -> list[Path]:
    """Return the existing mesh files to which a tree refers, with repetitions."""
    candidates = (_find(path, mesh.get("filename", "")) for mesh in robot.iter("mesh"))
    return [file for file in candidates if file is not None]


def _elements(link: ElementTree.Element) -> list[ElementTree.Element]:
    """Return the geometry of a link: visual, or collision if it has no visual geometry."""
    return link.findall("visual") or link.findall("collision")


def _link_poses(robot: ElementTree.Element) -> list[tuple[ElementTree.Element, Matrix]]:
    """Return each link with its pose in the root link's frame; all joints are at zero."""
    # 1. The parent of each link, and the link's pose in the parent.
    links: dict[str, ElementTree.Element] = {}
    for link in robot.findall("link"):
        if links.setdefault(link.get("name", ""), link) is not link:
            raise MeshError(f"has two links named {link.get('name', '')!r}; rename one of them")
    parent: dict[str, tuple[str, Matrix]] = {}
    for joint in robot.findall("joint"):
        ends = [joint.find("parent"), joint.find("child")]
        above, below = (("" if end is None else end.get("link", "")) for end in ends)
        if above not in links or below not in links or below in parent:
            raise MeshError(
                f"joint {joint.get('name')!r} must join two links that exist, and each link can "
                "have one parent"
            )
        parent[below] = (above, _origin(joint))
    # 2. Go up from each link to one with a known pose, or to the root.
    poses: dict[str, Matrix] = {}
    for name in links:
        chain, at = [], name
        while at not in poses and at in parent:
            chain.append(at)
            at = parent[at][0]
            if len(chain) > len(links):
                raise MeshError(f"the joints form a loop at link {name!r}, not a tree")
        pose = poses.setdefault(at, np.eye(4))
        for below in reversed(chain):
            pose = poses[below] = pose @ parent[below][1]
    if len(links) - len(parent) != 1:
        raise MeshError(f"needs exactly one root link, has {len(links) - len(parent)}")
    return [(link, poses[name]) for name, link in links.items()]


def _numbers(element: ElementTree.Element, name: str, count: int, default: str = "") -> list[float]:
    text = element.get(name)
    try:
        numbers = [float(word) for word in (text or default).split()]
    except ValueError:
        numbers = []
    if len(numbers) != count or not np.isfinite(numbers).all():
        raise MeshError(
            f"<{element.tag} {name}=...>: expected {count} finite numbers, found {text!r}"
        )
    return numbers


def _lengths(shape: ElementTree.Element, name: str, count: int) -> list[float]:
    lengths = _numbers(shape, name, count)
    if min(lengths) <= 0:
        raise MeshError(f"<{shape.tag}> has no volume; use positive lengths")
    return lengths


def _origin(element: ElementTree.Element) -> Matrix:
    """Return the <origin xyz rpy> of an element: fixed-axis roll, pitch, yaw, then translation."""
    pose = np.eye(4)
    origin = element.find("origin")
    if origin is None:
        return pose
    roll, pitch, yaw = _numbers(origin, "rpy", 3, "0 0 0")
    (cr, cp, cy), (sr, sp, sy) = np.cos([roll, pitch, yaw]), np.sin([roll, pitch, yaw])
    pose[:3, :3] = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    pose[:3, 3] = _numbers(origin, "xyz", 3, "0 0 0")
    return pose


def _geometry(path: Path, element: ElementTree.Element) -> Surface:
    shape = element.find("geometry/*")
    if shape is None:
        raise MeshError(f"a <{element.tag}> without <geometry>; add one or remove it")
    if shape.tag == "mesh":
        return _mesh_file(path, shape)
    return _primitive(shape)


def _primitive(shape: ElementTree.Element) -> Surface:
    if shape.tag == "box":
        sides = _lengths(shape, "size", 3)
        solid = box(sides)
        return replace(solid, vertices=solid.vertices - np.array(sides) / 2)
    if shape.tag not in ("cylinder", "sphere"):
        raise MeshError(
            f"geometry <{shape.tag}> is not supported; use mesh, box, cylinder or sphere"
        )
    (radius,) = _lengths(shape, "radius", 1)
    if shape.tag == "cylinder":
        (length,) = _lengths(shape, "length", 1)
        ends = -length / 2, length / 2
        return revolved([0.0, radius, radius, 0.0], [ends[0], *ends, ends[1]], CIRCLE_STEPS)
    latitude = np.pi * ((2 * np.arange(CIRCLE_STEPS // 2) + 1) / CIRCLE_STEPS - 0.5)
    reach = radius / np.cos(np.pi / CIRCLE_STEPS)  # to the corners of a polygon around the circle
    heights, radii = reach * np.sin(latitude), reach * np.cos(latitude)
    return revolved([0.0, *radii, 0.0], [-radius, *heights, radius], CIRCLE_STEPS)


def _mesh_file(path: Path, shape: ElementTree.Element) -> Surface:
    """Read a mesh to which a URDF refers, in metres or its own unit, scaled or mirrored."""
    reference = shape.get("filename", "")
    file = _find(path, reference)
    if file is None:
        raise MeshError(
            f"refers to {reference!r}, which is not in the folders around it; copy the mesh there "
            "or correct the path"
        )
    piece = readers.read(file, readers.PART_READERS)
    scale = np.array(_numbers(shape, "scale", 3, "1 1 1"))
    metres = UNITS[piece.unit or "m"]
    return piece.moved(np.diag([*(metres * scale), 1.0]))


def _mesh_name(element: ElementTree.Element) -> str:
    mesh = element.find("geometry/mesh")
    reference = "" if mesh is None else mesh.get("filename", "")
    return reference.replace("\\", "/").rpartition("/")[2]


def _find(path: Path, reference: str) -> Path | None:
    """Find a file to which a URDF refers, for package:// in the folders above the URDF."""
    scheme, mark, rest = reference.replace("\\", "/").partition("://")
    name = rest if mark else scheme
    folder = path.resolve().parent
    candidates = [folder / name]
    if scheme in ("package", "model") and mark:
        tails = name, name.partition("/")[2]
        candidates = [base / tail for base in (folder, *folder.parents) for tail in tails]
    return next((file for file in candidates if file.is_file()), None)
