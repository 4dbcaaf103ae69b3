"""Meshes: the 43 awkward files, repairs, volumes, formats and URDF trees."""

import codecs
import json
import re
import struct

import numpy as np
import pytest
import torch
from tests.mesh_files import (
    CORNERS,
    FACES,
    QUADS,
    box_mesh,
    model_3mf,
    write_3mf,
    write_glb,
    write_obj,
    write_stl,
    write_urdf,
)

from packing_env.items import Mesh, MeshError, load_mesh, mesh_from_arrays
from packing_env.items.meshes.formats.readers import READERS
from packing_env.items.meshes.mesh import UNITS

CUBE = torch.tensor(CORNERS).double()
CUBE_FACES = torch.tensor(FACES)
SPHERE_VOLUME = 5.058806e-04

# What each row of EXPECTED.md means for us: words of the error, or of the warnings, or nothing.
REJECTED = {
    "01_empty.stl": "empty file",
    "02_empty.obj": "empty file",
    "03_comments_only.obj": "no geometry",
    "04_nan_vertex.obj": "non-finite vertex",
    "05_inf_vertex.obj": "non-finite vertex",
    "06_nan_binary.stl": "non-finite vertex",
    "07_zero_area_only.obj": "degenerate",
    "12_huge_units.stl": "beyond the limit",
    "14_tiny_units.obj": "too small",
    "15_single_triangle.obj": "flat",
    "16_flat_square.obj": "flat",
    "19_text_renamed.stl": "neither binary nor ASCII STL",
    "20_truncated_binary.stl": "size mismatch.*320 triangles",
    "21_lying_count.stl": "size mismatch.*4294967280 triangles",
    "23_truncated_ascii.stl": "cut off|truncated",
    "30_index_out_of_range.obj": "line 21: .*vertex 99 of 8",
    "31_index_zero.obj": "line 9: face index 0",
    "36_vertices_only.obj": "no faces",
    "37_wrong_suffix.obj": "binary content",
    "38_unknown_suffix.xyz": r"unsupported format.*\.stl, \.obj",
    "39_directory.stl": "is a directory",
    "41_does_not_exist.stl": "no such file",
}
WARNED = {
    "08_open_shell.stl": "not watertight",
    "09_open_bowl_single_wall.obj": "not watertight",
    "10_inverted_normals.obj": "inside out",
    "11_mixed_winding.obj": "winding was inconsistent",
    "13_millimetres.stl": "extent 100 m .*mm",
    "26_two_components.obj": "2 separate components",
    "27_overlapping_parts.obj": "parts overlap",
    "34_nonmanifold_edge.obj": "non-manifold",
    "35_far_from_origin.stl": "from its origin",
}
UNRELIABLE = {"08_open_shell.stl", "09_open_bowl_single_wall.obj", "34_nonmanifold_edge.obj"}
BY_CATALOGUE = {"24_bigger_than_box.stl", "43_needle.obj"}  # see test_catalogue.py
VOLUMES = {
    "10_inverted_normals.obj": SPHERE_VOLUME,
    "11_mixed_winding.obj": SPHERE_VOLUME,
    "17_duplicate_vertices.obj": 1.92e-4,
    "18_near_duplicate_vertices.obj": 1.92e-4,
    "22_binary_starting_with_solid.stl": SPHERE_VOLUME,
    "24_bigger_than_box.stl": 0.5 * 0.45 * 0.4,
    "26_two_components.obj": 1.28e-4,
    "27_overlapping_parts.obj": 7.68e-4,
    "28_inner_void.obj": 4.48e-4,
    "29_unreferenced_vertices.obj": 2.16e-4,
    "32_negative_indices.obj": 2.16e-4,
    "33_quads_slashes_crlf.obj": 2.16e-4,
    "42_thin_sheet.obj": 2e-6,
    "43_needle.obj": 1e-7,
}
EXTENTS = {
    "25_long_rod.stl": (0.44, 0.01, 0.01),
    "29_unreferenced_vertices.obj": (0.06, 0.06, 0.06),
    "35_far_from_origin.stl": (0.12, 0.1, 0.04),
}


ACCEPTED = {
    "17_duplicate_vertices.obj",
    "18_near_duplicate_vertices.obj",
    "22_binary_starting_with_solid.stl",
    "25_long_rod.stl",
    "28_inner_void.obj",
    "29_unreferenced_vertices.obj",
    "32_negative_indices.obj",
    "33_quads_slashes_crlf.obj",
    "40 name with space.stl",
    "42_thin_sheet.obj",
}
ROWS = sorted({*REJECTED, *WARNED, *BY_CATALOGUE, *ACCEPTED})


def _check_loaded(mesh: Mesh, name: str) -> None:
    text = "; ".join(mesh.warnings)
    assert re.search(WARNED[name], text) if name in WARNED else not text
    assert mesh.volume_reliable == (name not in UNRELIABLE)
    assert mesh.watertight == (name not in UNRELIABLE)
    if name in VOLUMES:
        assert mesh.volume == pytest.approx(VOLUMES[name], rel=1e-6)
    if name in EXTENTS:
        assert mesh.extents.tolist() == pytest.approx(EXTENTS[name], abs=3e-4)


@pytest.mark.parametrize("name", ROWS)
def test_an_awkward_file_gets_what_its_row_says(data_dir, name):
    path = data_dir / "bad" / name
    if name not in REJECTED:
        _check_loaded(load_mesh(path), name)
        return
    with pytest.raises(MeshError, match=REJECTED[name]) as caught:
        load_mesh(path)
    assert str(path) in str(caught.value)


def test_strict_mode_turns_each_warning_into_an_error(data_dir):
    for name in WARNED:
        with pytest.raises(MeshError, match="strict"):
            load_mesh(data_dir / "bad" / name, strict=True)
    load_mesh(data_dir / "bad" / "17_duplicate_vertices.obj", strict=True)


def test_real_meshes_match_the_manifest(data_dir):
    entries = json.loads((data_dir / "manifest.json").read_text())["meshes"]
    for entry in entries:
        mesh = load_mesh(data_dir / entry["file"])
        assert mesh.watertight
        assert mesh.volume_reliable
        assert len(mesh.faces) == entry["n_faces"]
        assert mesh.volume == pytest.approx(entry["volume_m3"], rel=1e-5)
        assert mesh.com.tolist() == pytest.approx(entry["center_mass_m"], abs=2e-6)
        assert mesh.extents.tolist() == pytest.approx(entry["extents_m"], abs=2e-6)


@pytest.mark.parametrize(
    ("vertices", "faces", "message"),
    [
        (CUBE[:, :2], CUBE_FACES, "needs vertices"),
        (CUBE, CUBE_FACES + 1, "outside 0..7"),
        (CUBE, CUBE_FACES - 1, "outside 0..7"),
        (CUBE, CUBE_FACES[:0], "no faces"),
        (CUBE * torch.nan, CUBE_FACES, "non-finite"),
        (CUBE, CUBE_FACES[:, [0, 0, 1]], "degenerate"),
    ],
)
def test_bad_arrays_are_refused(vertices, faces, message):
    with pytest.raises(MeshError, match=message):
        mesh_from_arrays(vertices, faces)


def test_vertices_weld_across_grid_boundaries():
    generator = torch.Generator().manual_seed(0)
    soup = CUBE[CUBE_FACES].view(-1, 3)
    for _ in range(20):
        noise = torch.rand(soup.shape, generator=generator).double()
        shift = torch.rand(3, generator=generator).double()
        mesh = mesh_from_arrays(soup + shift + 5e-7 * noise, torch.arange(36).view(-1, 3))
        assert len(mesh.vertices) == 8
        assert mesh.watertight
        assert mesh.volume == pytest.approx(1.0, abs=1e-5)


def test_inverted_part_is_flipped_but_a_cavity_is_not():
    faces = torch.cat([CUBE_FACES, CUBE_FACES.flip(1) + 8])
    apart = mesh_from_arrays(torch.cat([CUBE, 0.5 * CUBE + 2.0]), faces)
    assert apart.volume == pytest.approx(1.125)
    assert any("inside out: the faces of 1 of 2 parts" in line for line in apart.warnings)
    cavity = mesh_from_arrays(torch.cat([CUBE, 0.5 * CUBE + 0.25]), faces)
    assert cavity.volume == pytest.approx(0.875)
    assert cavity.warnings == ()
    hidden = mesh_from_arrays(torch.cat([CUBE, 0.5 * CUBE + 0.25]), faces.flip(1))
    assert hidden.volume == pytest.approx(0.875)
    assert len(hidden.warnings) == 1


def _soup(*cubes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cubes whose triangles share no vertices, as in an STL file."""
    corners = torch.cat([cube[CUBE_FACES].view(-1, 3) for cube in cubes])
    return corners, torch.arange(len(corners)).view(-1, 3)


def test_solids_that_touch_at_an_edge_keep_a_reliable_volume():
    neighbour = CUBE + torch.tensor([1.0, 1.0, 0.0])
    mesh = mesh_from_arrays(*_soup(CUBE, neighbour))
    assert (mesh.volume, mesh.volume_reliable, mesh.watertight) == (pytest.approx(2.0), True, True)
    assert any("non-manifold" in line for line in mesh.warnings)
    indexed = torch.cat([CUBE, neighbour]), torch.cat([CUBE_FACES, CUBE_FACES + 8])
    apart = mesh_from_arrays(*indexed)  # closed as it stands, so it is not welded
    assert apart.volume == pytest.approx(2.0)
    assert apart.warnings == ("2 separate components, kept as one rigid item",)


def test_solids_that_share_a_wall_keep_a_reliable_volume():
    mesh = mesh_from_arrays(*_soup(CUBE, CUBE + torch.tensor([1.0, 0.0, 0.0])))
    assert (mesh.volume, mesh.volume_reliable) == (pytest.approx(2.0), True)


def test_units_scale_the_file_and_bad_ones_are_named(tmp_path):
    path = write_obj(tmp_path / "cube.obj", box_mesh(1, 1, 1))
    for unit, factor in UNITS.items():
        if factor >= 1e-5:
            mesh = load_mesh(path, unit=unit)
            assert mesh.volume == pytest.approx(factor**3)
            assert mesh.source.unit == unit
    with pytest.raises(MeshError, match="unknown unit 'furlong'; use one of m, cm"):
        load_mesh(path, unit="furlong")


@pytest.mark.parametrize("suffix", ["stl", "ply", "glb"])
def test_single_precision_stands_for_its_shortest_decimal(tmp_path, suffix):
    """Otherwise a box of 30 cells of 1 cm would cover 31 cells."""
    trimesh = pytest.importorskip("trimesh")
    path = tmp_path / f"box.{suffix}"
    trimesh.Trimesh(CUBE.numpy() * [0.3, 0.1, 0.07], CUBE_FACES.numpy()).export(path)
    sides = [0.3, 0.07, 0.1] if suffix == "glb" else [0.3, 0.1, 0.07]  # glTF has +Y up
    assert load_mesh(path).extents.tolist() == sides
    again = mesh_from_arrays((CUBE * 0.3).float(), CUBE_FACES)
    assert again.extents.tolist() == [0.3, 0.3, 0.3]


@pytest.mark.parametrize("suffix", ["obj", "off", "ply"])
def test_concave_polygons_are_not_fanned(tmp_path, suffix):
    """An L-shaped prism whose caps are single hexagons; cut off, it is refused by name."""
    # A fan from the first point, (1, 2), would leave the L.
    plan = [(1, 2), (0, 2), (0, 0), (2, 0), (2, 1), (1, 1)]
    points = [(*p, 0) for p in plan] + [(*p, 1) for p in plan]
    polygons = [tuple(range(5, -1, -1)), tuple(range(6, 12))]
    polygons += [(i, (i + 1) % 6, (i + 1) % 6 + 6, i + 6) for i in range(6)]
    if suffix == "obj":
        lines = [f"v {x} {y} {z}" for x, y, z in points]
        lines += ["f " + " ".join(str(i + 1) for i in p) for p in polygons]
    else:
        lines = ["OFF", "12 8 0"]
        if suffix == "ply":
            lines = ["ply", "format ascii 1.0", "element vertex 12"]
            lines += [f"property float {axis}" for axis in "xyz"]
            lines += ["element face 8", "property list uchar int vertex_indices", "end_header"]
        lines += [f"{x} {y} {z}" for x, y, z in points]
        lines += [" ".join(map(str, (len(p), *p))) for p in polygons]
    path = tmp_path / f"l.{suffix}"
    path.write_text("\n".join(lines) + "\n")
    mesh = load_mesh(path)
    assert mesh.volume == pytest.approx(3.0)
    corners = mesh.vertices[mesh.faces]
    areas = torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    assert areas.norm(dim=1).sum() / 2 == pytest.approx(2 * 3.0 + 8.0)
    if suffix != "obj":
        path.write_text("\n".join(lines[:-2]) + "\n")
        with pytest.raises(MeshError, match=path.name):
            load_mesh(path)


@pytest.mark.parametrize("suffix", ["ply", "glb", "3mf", "off", "urdf"])
def test_garbage_of_each_format_is_refused(tmp_path, suffix):
    path = tmp_path / f"garbage.{suffix}"
    path.write_bytes(bytes(range(256)) * 4)
    with pytest.raises(MeshError, match="garbage"):
        load_mesh(path)


@pytest.mark.parametrize("tail", [1, 2, 50, 80, 100])
def test_bytes_after_the_facets_of_an_stl_are_ignored_with_a_warning(tmp_path, tail):
    """A multiple of 50 bytes is refused: these may be facets that the header does not count."""
    path = tmp_path / "tail.stl"
    write_stl(path, (1, 1, 1))
    path.write_bytes(path.read_bytes() + bytes(tail))
    if tail % 50:
        mesh = load_mesh(path)
        assert mesh.volume == pytest.approx(1.0)
        assert any(f"{tail} bytes" in warning for warning in mesh.warnings)
    with pytest.raises(MeshError, match=f"{tail} bytes" if tail % 50 else "size mismatch"):
        load_mesh(path, strict=True)


def ply(order, polygons, strips):
    """A cube with colours, and polygons with a flag and coordinates of textures."""
    form = {"<": "binary_little_endian", ">": "binary_big_endian", "": "ascii"}[order]
    lines = ["ply", f"format {form} 1.0", "comment by a scanner", "element vertex 8"]
    lines += [*(f"property float {axis}" for axis in "xyz"), "property uchar red"]
    lines += [f"element face {len(polygons)}", "property uchar flag"]
    lines += ["property list uchar int vertex_indices", "property list uchar float texcoord"]
    if strips:
        lines += ["element tristrips 1", "property list int int vertex_indices"]

    def row(form: str, *values: float) -> bytes:
        if not order:
            return (" ".join(map(str, values)) + "\n").encode()
        return struct.pack(order + form, *values)

    data = b"".join(row("3fB", *corner, 7) for corner in CORNERS)
    for ids in polygons:
        n = len(ids)
        data += row(f"BB{n}iB{2 * n}f", 1, n, *ids, 2 * n, *[0.5] * (2 * n))
    if strips:
        data += row(f"i{len(strips)}i", len(strips), *strips)
    return "\n".join([*lines, "end_header\n"]).encode() + data


LINES = {
    "stl": "solid a\n"
    + "".join(
        "facet normal 0 0 0\nouter loop\n"
        + "".join("vertex {} {} {}\n".format(*CORNERS[i]) for i in face)
        + "endloop\nendfacet\n"
        for face in FACES
    )
    + "endsolid a\n",
    "obj": "".join(
        ["v {} {} {}\n".format(*corner) for corner in CORNERS]
        + ["f {} {} {}\n".format(*(i + 1 for i in face)) for face in FACES]
    ),
    "off": "\n".join(
        [f"OFF\n8 {len(FACES)} 0", *("{} {} {}".format(*corner) for corner in CORNERS)]
        + ["3 {} {} {}".format(*face) for face in FACES]
    ),
}
"""A cube as text of each format."""
FOLDED = LINES["obj"].replace("v ", "v \\\n ").replace("f ", "f \\\n ")
HEADER = b"""ply
format ascii 1.0
element vertex 8
property float x
property float y
property float z
element face 6
property list uchar int vertex_indices
end_header
"""
DATA = "".join("{} {} {}\n".format(*corner) for corner in CORNERS).encode()
DATA += "".join("4 {} {} {} {}\n".format(*quad) for quad in QUADS).encode()
VARIANTS = {
    **{f"{s} with a mark, {e}": (s, LINES[s].encode(e))
       for s in LINES for e in ("utf-8-sig", "utf-16")},
    "stl with returns": ("stl", LINES["stl"].replace("\n", "\r").encode()),
    "stl with an end of file": ("stl", LINES["stl"].encode() + b"\x1a"),
    "stl with a facet in each line": (
        "stl", LINES["stl"].replace("\n", " ").replace("a f", "a\nf").replace("endf", "endf\n")
        .replace("endf\nacet", "endfacet\n").encode(),
    ),
    **{f"ply with {end!r} after its header": (
        "ply", ply("<", QUADS, ()).replace(b"end_header\n", b"end_header" + end))
       for end in (b"\r\n", b" \n")},
    "ply with returns": ("ply", ply("", QUADS, ()).replace(b"\n", b"\r")),
    "ply with values that it does not declare": (
        "ply", HEADER + DATA.replace(b"\n", b" 0 9 0  # comment\n")),
    "ply with a value in each line": ("ply", HEADER + DATA.replace(b" ", b"\n")),
    "ply of all lengths": (
        "ply", HEADER.replace(b"ascii", b"binary_big_endian").replace(b"float z", b"float16 z")
        .replace(b"float", b"float64", 1).replace(b" int ", b" uint64 ")
        + b"".join(struct.pack(">dfe", *corner) for corner in CORNERS)
        + b"".join(struct.pack(">B4Q", 4, *quad) for quad in QUADS)),
    "ply that names the end of its header in a comment": (
        "ply", HEADER.replace(b"element", b"comment before end_header\nelement", 1) + DATA),
    "ply with a mark": ("ply", codecs.BOM_UTF8 + ply("", QUADS, ())),
    "stl without ends of facets": ("stl", LINES["stl"].replace("endfacet\n", "").encode()),
    "stl with a facet in its first line": ("stl", LINES["stl"].replace("solid a\n", "solid a ", 1)
        .replace("\n", " ", 6).encode()),
    "stl in one line": ("stl", LINES["stl"].replace("\n", " ").encode()),
    "stl of a solid with the name of a word": (
        "stl", LINES["stl"].replace("solid a", "solid facet vertex").encode()),
    "stl of patches": ("stl", LINES["stl"].replace("facet n", "solid b\nfacet n").replace(
        "endfacet", "endfacet\nendsolid b").encode()),
    "obj with obsolete faces": ("obj", LINES["obj"].replace("f ", "fo ", 7).encode()),
    "obj with a polygon without area": ("obj", LINES["obj"].encode()
        + b"v 0.1 0.1 0.1\nv 0.3 0.3 0.3\nv 0.6 0.6 0.6\nv 0.7 0.7 0.7\nf 9 10 11 12\n"),
    "stl with zeros": ("stl", LINES["stl"].encode() + bytes(16)),
    "obj with backslashes": (
        "obj", f"# C:\\parts\\\nmtllib C:\\parts\\\n{FOLDED}".replace("\n", "\r\n").encode(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("variant", VARIANTS)
def test_text_as_programs_write_it(tmp_path, variant):
    suffix, data = VARIANTS[variant]
    (tmp_path / f"cube.{suffix}").write_bytes(data)
    assert load_mesh(tmp_path / f"cube.{suffix}").volume == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("suffix", "more", "warning"),
    [
        ("obj", "surf 0 1 0 1 1 2 3 4\nsurf 0 1 0 1 1 2 3 4\n", "'surf' in line 21"),
        ("obj", "call lid.obj\n", "'call' in line 21"),
        ("stl", LINES["stl"], "1 of 2 solids"),
        ("off", "\n3 0 1 2\n3 2 3 0", "2 lines after the last of its 12 faces"),
    ],
)
def test_what_is_not_read_is_named(tmp_path, suffix, more, warning):
    path = tmp_path / f"cube.{suffix}"
    path.write_text(LINES[suffix] + more)
    mesh = load_mesh(path)
    assert mesh.volume == pytest.approx(1.0)
    (line,) = mesh.warnings
    assert line.startswith(warning)


CUT_OFF = FOLDED + "f 1 2 \\"


@pytest.mark.parametrize(
    ("suffix", "text", "message"),
    [
        (
            "stl",
            (LINES["stl"] + LINES["stl"].replace("solid a", "solid b")).replace("\n", " "),
            "line 1: a solid begins in the line of 'endsolid'",
        ),
        (
            "stl",
            LINES["stl"].replace("endloop\nendfacet\nfacet normal 0 0 0\nouter loop\n", "", 1),
            "line 11: .*three vertices",
        ),
        ("obj", CUT_OFF, f"line {len(CUT_OFF.splitlines())}.*face"),
        *(
            ("off", f"{header}\n4 1 0\n", message)
            for header, message in (
                ("4OFF", "4OFF has points"),
                ("COFF BINARY", "binary OFF"),
                ("# by hand\n\nOFF BINARY", "binary OFF"),
                ("CnOFF", "CnOFF has points"),
                ("nOFF", "nOFF has points"),
            )
        ),
    ],
)
def test_text_that_is_no_mesh_is_refused_by_its_line_or_kind(tmp_path, suffix, text, message):
    (tmp_path / f"a.{suffix}").write_text(text)
    with pytest.raises(MeshError, match=rf"a\.{suffix}.*{message}"):
        load_mesh(tmp_path / f"a.{suffix}")


def test_solids_of_an_stl_that_touch_stay_apart(tmp_path):
    second = LINES["stl"].replace("vertex 0", "vertex 2")  # on the other side of x = 1
    path = tmp_path / "two.stl"
    path.write_text(LINES["stl"] + second)
    mesh = load_mesh(path)
    assert mesh.volume == pytest.approx(2.0)
    assert mesh.volume_reliable
    assert mesh.extents.tolist() == [2.0, 1.0, 1.0]


def test_of_a_double_sided_surface_one_side_is_kept():
    mesh = mesh_from_arrays(CUBE, torch.cat([CUBE_FACES.flip(1), CUBE_FACES]))
    assert mesh.volume == pytest.approx(1.0)
    assert mesh.volume_reliable
    assert mesh.warnings[0].startswith("double-sided")


SCHEMES = ("package", "model")
URDF = """<robot name="r">
  <link name="base"><visual><origin xyz="0 0 0.1"/><geometry><box size="0.4 0.2 0.2"/></geometry>
  </visual><collision><geometry><box size="9 9 9"/></geometry></collision></link>
  <link name="arm"><collision><origin rpy="0 1.5707963267948966 0"/>
    <geometry><cylinder radius="0.05" length="0.3"/></geometry></collision></link>
  <link name="tip"><visual><geometry><mesh filename="{mesh}" scale="0.001 -0.001 0.001"/>
    </geometry></visual></link>
  <joint name="j1" type="revolute"><parent link="base"/><child link="arm"/>
    <origin xyz="0.5 0 0.1"/></joint>
  <joint name="j2" type="fixed"><parent link="arm"/><child link="tip"/>
    <origin xyz="0.5 0 0" rpy="0 0 1.5707963267948966"/></joint>
</robot>"""


XACRO = """<robot xmlns:xacro="http://ros.org/wiki/xacro">
<xacro:property name="w" value="${2 * pi}"/><xacro:macro name="wheel"><link name="${w}"/>
<xacro:inner/></xacro:macro><link name="a"><visual><geometry><box size="1 1 1"/></geometry></visual>
</link></robot>"""


def test_definitions_of_macros_without_use_are_ignored(tmp_path):
    (tmp_path / "r.urdf").write_text(XACRO)
    assert load_mesh(tmp_path / "r.urdf").volume == pytest.approx(1.0)


@pytest.mark.parametrize(
    "unused",
    [
        '<gazebo><plugin filename="${{lib}}.so"/></gazebo>',
        '<ros2_control name="$(var x)"/>',
        '<material name="${{color}}"><texture filename="$(find pkg)/a.png"/></material>',
        '<link name="${{last}}"/><joint><parent link="tip"/><child link="${{last}}"/></joint>',
    ],
)
def test_only_macros_of_geometry_need_xacro(tmp_path, unused):
    write_stl(tmp_path / "par$(1).stl", (1000, 1000, 1000))
    text = URDF.replace("</robot>", f"{unused}</robot>").format(mesh="par$(1).stl")
    (tmp_path / "r.urdf").write_text(text)
    assert load_mesh(tmp_path / "r.urdf").volume > 1.0


@pytest.mark.parametrize(
    "reference",
    ["../meshes/tip.stl", r"..\meshes\tip.stl", *(f"{s}://robot/meshes/tip.stl" for s in SCHEMES)],
)
def test_urdf_tree_is_merged_at_zero(tmp_path, reference):
    (tmp_path / "robot" / "meshes").mkdir(parents=True)
    (tmp_path / "robot" / "urdf").mkdir()
    write_stl(tmp_path / "robot" / "meshes" / "tip.stl", (100, 100, 100))
    path = tmp_path / "robot" / "urdf" / "r.urdf"
    path.write_text(URDF.format(mesh=reference))
    mesh = load_mesh(path, unit="mm")
    assert mesh.source.unit == "m"  # a URDF states its unit
    prism = 64 * np.tan(np.pi / 64) * 0.05**2 * 0.3
    assert mesh.volume == pytest.approx(0.4 * 0.2 * 0.2 + prism + 1e-3, rel=1e-6)
    assert mesh.vertices.amin(0).tolist() == pytest.approx([-0.2, -0.1, 0.0])
    # the tip is mirrored in y, then turned by +90 degrees about z: x in [1, 1.1], y in [0, 0.1]
    assert mesh.vertices.amax(0).tolist() == pytest.approx([1.1, 0.1, 0.2])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("<robot>", "not valid XML"),
        ("<robot><link name='a'/></robot>", "no visual or collision geometry"),
        (URDF.format(mesh="package://nowhere/tip.stl"), "refers to 'package://nowhere/tip.stl'"),
        (URDF.replace('link="base"', 'link="typo"'), "joint 'j1'"),
        (URDF.replace('parent link="base"', 'parent link="tip"'), "loop"),
        (URDF.replace("cylinder", "capsule"), "capsule"),
        (URDF.replace('link name="arm"', 'link name="tip"'), "two links named 'tip'"),
        (XACRO.replace("<link", "<xacro:wheel/><link", 2), "xacro r.urdf"),
        (XACRO.replace("1 1 1", "1 1 ${w}"), r"has the macro \${w}; expand it first: xacro r.urdf"),
        (URDF.replace('radius="0.05"', 'radius="$(arg r)"'), r"\$\(arg r\).*xacro r.urdf r:=VALUE"),
        (URDF.replace("{mesh}", "$(find robot)/a.stl"), r"has the macro \$\(find robot\)"),
        (URDF.replace('radius="0.05"', 'radius="x"'), "radius=...>: expected 1 finite"),
    ],
)
def test_broken_urdf_trees_are_named(tmp_path, text, message):
    path = tmp_path / "r.urdf"
    path.write_text(text)
    with pytest.raises(MeshError, match=message) as caught:
        load_mesh(path)
    assert "r.urdf" in str(caught.value)


DAE = """<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1"><asset>{unit}
<up_axis>{up}</up_axis></asset><library_geometries><geometry id="g"><mesh><source id="p">
<float_array id="pa" count="12">0 0 0 1 0 0 0 1 0 0 0 1</float_array><technique_common>
<accessor source="#pa" count="4" stride="3"><param name="X" type="float"/>
<param name="Y" type="float"/><param name="Z" type="float"/></accessor></technique_common></source>
<vertices id="v"><input semantic="POSITION" source="#p"/></vertices><triangles count="4">
<input semantic="VERTEX" source="#v" offset="0"/><p>0 2 1 0 1 3 1 2 3 0 3 2</p></triangles></mesh>
</geometry></library_geometries><library_visual_scenes><visual_scene id="s"><node id="n">
<instance_geometry url="#g"/></node></visual_scene></library_visual_scenes>
<scene><instance_visual_scene url="#s"/></scene></COLLADA>"""


@pytest.mark.parametrize(
    ("unit", "side"),
    [("", 1.0), ('<unit name="centimeter" meter="0.01"/>', 0.01), ('<unit name="m"/>', 1.0)],
)
@pytest.mark.parametrize("up", ["Z_UP", "Y_UP"])
def test_collada_files_of_a_urdf_tree_keep_their_unit_and_axes(tmp_path, unit, side, up):
    pytest.importorskip("collada")
    (tmp_path / "tip.dae").write_text(DAE.format(unit=unit, up=up))
    mesh = load_mesh(write_urdf(tmp_path / "r.urdf", '<mesh filename="tip.dae" scale="1 1 2"/>'))
    assert mesh.extents.tolist() == pytest.approx([side, side, 2 * side])
    assert any("tip.dae: up_axis Y_UP" in text for text in mesh.warnings) == (up == "Y_UP")


def test_a_urdf_tree_has_one_warning_on_all_its_collada_files(tmp_path):
    pytest.importorskip("collada")
    for name in ("a", "b: 1"):
        (tmp_path / f"{name}.dae").write_text(DAE.format(unit="", up="Y_UP"))
    both = (
        '<mesh filename="a.dae"/></geometry></visual><visual><geometry><mesh filename="b: 1.dae"/>'
    )
    mesh = load_mesh(write_urdf(tmp_path / "r.urdf", both))
    assert [text for text in mesh.warnings if text.startswith("a.dae, b: 1.dae: up_axis")]
    assert sum("up_axis" in text for text in mesh.warnings) == 1


def test_a_collada_file_with_an_empty_unit_is_refused(tmp_path):
    pytest.importorskip("collada")
    (tmp_path / "a.dae").write_text(DAE.format(unit='<unit meter=""/>', up="Z_UP"))
    with pytest.raises(MeshError, match="not a COLLADA file"):
        load_mesh(write_urdf(tmp_path / "r.urdf", '<mesh filename="a.dae"/>'))


@pytest.mark.parametrize("suffix", sorted({*READERS, ".urdf"}))
@pytest.mark.parametrize("written", ["a.3mf", "a.glb", "a.ply", "a.stl"])
def test_a_wrong_suffix_is_suggested(written, suffix, tmp_path):
    file = tmp_path / "a.stl"
    write_3mf(tmp_path / "a.3mf", {"3D/3dmodel.model": model_3mf("")})
    write_glb(tmp_path / "a.glb", (1, 1, 1))
    (tmp_path / "a.ply").write_bytes(ply("<", QUADS, []))
    write_stl(file, (1, 1, 1))
    if (tmp_path / written).suffix != suffix:
        file = (tmp_path / written).rename(tmp_path / f"b{suffix}")
        with pytest.raises(MeshError, match=r"check (the file's|its) suffix"):
            load_mesh(file)


@pytest.mark.parametrize(
    ("header", "more"),
    [
        *((name, "0 0 1") for name in ("NOFF", "noff", "cnoff", "Cnoff", "# BINARY file\nNOFF")),
        *((name, "0 0 1 1 1 0 0 1") for name in ("STCNOFF", "stcnoff")),
    ],
)
def test_off_with_normals_and_colours_of_vertices(header, more, tmp_path):
    lines = [header, f"8 {len(FACES)} 0", *("{} {} {} {}".format(*c, more) for c in CORNERS)]
    lines += ["3 {} {} {}".format(*face) for face in FACES]
    (tmp_path / "a.off").write_text("\n".join(lines))
    assert load_mesh(tmp_path / "a.off").volume == pytest.approx(1.0)


MIXED = [QUADS[0], *FACES[2:4], (0, 1, 5, 4)[::-1], *QUADS[3:]]
STRIPS = [i for face in FACES[6:] for i in (*face, -1)]


@pytest.mark.parametrize("order", ["", "<", ">"])
@pytest.mark.parametrize(
    ("polygons", "strips"),
    [(FACES, ()), (QUADS, ()), (MIXED, ()), (MIXED[::-1], ()), (QUADS[:3], STRIPS)],
)
def test_ply_with_polygons_of_several_sizes(tmp_path, order, polygons, strips):
    path = tmp_path / "a.ply"
    path.write_bytes(ply(order, polygons, strips))
    mesh = load_mesh(path)
    assert mesh.volume == pytest.approx(1.0)
    assert not mesh.warnings
    path.write_bytes(ply(order, polygons, strips) + b"3 0 1 2 6")
    assert "more data" in load_mesh(path).warnings[0]
    path.write_bytes(ply(order, polygons, strips)[:-9])
    with pytest.raises(MeshError, match=r"a.ply.*ends too early"):
        load_mesh(path)


def test_a_mesh_whose_details_are_too_small_is_refused_with_its_unit(tmp_path):
    around = [(np.cos(a), np.sin(a)) for a in np.linspace(0, 2 * np.pi, 200, endpoint=False)]
    vertices = [(x, y, z) for z in (0.0, 0.01) for x, y in around] + [(0, 0, 0), (0, 0, 0.01)]
    faces = []
    for i in range(200):
        j = (i + 1) % 200
        faces += [(400, j, i), (401, 200 + i, 200 + j), (i, j, 200 + j), (i, 200 + j, 200 + i)]
    soup = np.array(vertices)[np.array(faces)].reshape(-1, 3)  # without shared vertices, as in STL
    ids = np.arange(len(soup)).reshape(-1, 3)
    assert mesh_from_arrays(soup * 1e-2, ids).watertight
    with pytest.raises(MeshError, match=r"extent 5e-05 m is too small.*check the unit"):
        mesh_from_arrays(soup * 2.5e-5, ids)
