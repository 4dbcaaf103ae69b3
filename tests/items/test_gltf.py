"""Tests of GLB: axes, nodes, instances, accessors, extensions."""

import math
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.mesh_files import (
    add_accessor,
    box_glb,
    corners_of,
    glb_of,
    write_box_3mf,
    write_glb,
    write_urdf,
)

import packing_env as pe
from packing_env.items import Catalogue, MeshError, load_mesh
from packing_env.items.meshes.formats import gltf

SIDES = (0.03, 0.02, 0.01)  # x, y (up), z
TURNED = (0.03, 0.01, 0.02)
VOLUME = 6e-6
FLOAT, BYTE, SHORT, UNSIGNED = 5126, 5120, 5122, 5123
INSTANCING = "EXT_mesh_gpu_instancing"


def write(path: Path, glb: tuple[dict[str, Any], bytes]) -> Path:
    path.write_bytes(glb_of(*glb))
    return path


def check(path: Path, volume: float, extents: Any, components: int = 1) -> None:
    mesh = load_mesh(path)
    assert mesh.watertight
    assert mesh.volume == pytest.approx(volume, rel=1e-5)
    assert mesh.extents.tolist() == pytest.approx(list(extents), rel=1e-4)
    assert len(mesh.warnings) == (components > 1)
    if components > 1:
        assert mesh.warnings[0].startswith(f"{components} separate components")


def test_y_is_up_and_lengths_are_metres(tmp_path: Path) -> None:
    path = write_glb(tmp_path / "a.glb", SIDES)
    mesh = load_mesh(path)
    assert mesh.vertices.amin(0).tolist() == [0.0, -0.01, 0.0]
    assert mesh.vertices.amax(0).tolist() == [0.03, 0.0, 0.02]
    assert load_mesh(path, "mm").extents.tolist() == pytest.approx([1e-3 * s for s in TURNED])
    options: Any = {"cell": 0.005, "container": (0.1, 0.1, 0.1), "use_cache": False}
    found = Catalogue.from_meshes([path], **options)
    assert found.sources[0]["unit"] == "m"
    assert found.extent[0].tolist() == pytest.approx(TURNED)


def test_a_written_packing_is_read_as_it_stands(tmp_path: Path) -> None:
    part = pe.planner.Part(sides=(30, 30, 10), unit="mm", faces=("+z",))
    pe.planner.save(pe.pack(part, "50x40x30mm", 0.05), tmp_path)
    check(tmp_path / "packed.glb", 9e-6, (0.03, 0.03, 0.01))


def test_nodes_of_the_scene_are_moved_and_others_left_out(tmp_path: Path) -> None:
    half = 0.5**0.5
    nodes = [
        {"children": [1, 2], "translation": [0, 1, 0]},
        {"mesh": 0, "scale": [2, 1, 1]},
        {"mesh": 0, "rotation": [0, half, 0, half], "translation": [1, 0, 0]},
        {"mesh": 0, "translation": [9, 9, 9]},
    ]
    path = write_glb(tmp_path / "a.glb", SIDES, nodes=nodes)
    check(path, 3 * VOLUME, [1.01, 0.04, 0.02], 2)
    low = load_mesh(path).vertices.amin(0)
    assert low.tolist() == pytest.approx([0.0, -0.01, 1.0])


def test_a_mirrored_node_is_turned_outward(tmp_path: Path) -> None:
    mirror = np.diag([-1.0, 1, 1, 1]).ravel().tolist()
    check(
        write_glb(tmp_path / "a.glb", SIDES, nodes=[{"mesh": 0, "matrix": mirror}]), VOLUME, TURNED
    )


def instances(required: bool, **columns: tuple[int, str, bytes]) -> tuple[dict[str, Any], bytes]:
    """A box drawn twice by attributes of kind, type and values."""
    glb, attributes = box_glb(SIDES), {}
    for name, (kind, shape, values) in columns.items():
        attributes[name] = len(glb[0]["accessors"])
        glb = add_accessor(glb, values, kind, shape, 2)
    node = {"mesh": 0, "extensions": {INSTANCING: {"attributes": attributes}}}
    used = {"extensionsUsed": [INSTANCING]}
    used |= {"extensionsRequired": [INSTANCING]} if required else {}
    return {**glb[0], "nodes": [{**node, "translation": [0, 1, 0]}], **used}, glb[1]


@pytest.mark.parametrize("required", [False, True])
def test_hidden_nodes_are_left_out_with_all_below_them(tmp_path: Path, required: bool) -> None:
    hidden = {"extensions": {"KHR_node_visibility": {"visible": False}}}
    visible = {"extensions": {"KHR_node_visibility": {"visible": True}}, "mesh": 0}
    used = {"extensionsRequired": ["KHR_node_visibility"]} if required else {}
    nodes = [{"mesh": 0}, {"children": [2], **hidden}, {**visible, "name": "spare"}]
    scenes = [{"nodes": [0, 1]}]
    path = write_glb(tmp_path / "a.glb", SIDES, nodes=nodes, scenes=scenes, **used)
    mesh = load_mesh(path)
    assert mesh.volume == pytest.approx(math.prod(SIDES))
    assert any("hidden nodes" in text and "'spare'" in text for text in mesh.warnings)
    write_glb(path, SIDES, nodes=nodes, scenes=[{"nodes": [1]}], **used)
    with pytest.raises(MeshError, match="hides all its meshes \\('spare'\\)"):
        load_mesh(path)


def test_many_hidden_nodes_give_one_short_warning(tmp_path: Path) -> None:
    hidden = {"extensions": {"KHR_node_visibility": {"visible": False}}, "mesh": 0}
    nodes = [{"mesh": 0}, *[{**hidden, "name": f"node{i}"} for i in range(199)]]
    scene = list(range(200))
    write_glb(tmp_path / "a.glb", SIDES, nodes=nodes, scenes=[{"nodes": scene}])
    (warning,) = load_mesh(tmp_path / "a.glb").warnings
    assert warning.endswith("'node0', 'node1', 'node2', 'node3' and 195 more")
    write_glb(tmp_path / "a.glb", SIDES, nodes=nodes, scenes=[{"nodes": scene[1:]}])
    with pytest.raises(MeshError, match="'node3' and 195 more"):
        load_mesh(tmp_path / "a.glb")


@pytest.mark.parametrize("stated", [None, [], {}, {"visible": None}, {"visible": True}])
def test_only_nodes_that_state_it_are_hidden(tmp_path: Path, stated: Any) -> None:
    nodes = [{"mesh": 0, "extensions": {"KHR_node_visibility": stated}}, {"extensions": stated}]
    write_glb(tmp_path / "a.glb", SIDES, nodes=nodes, scenes=[{"nodes": [0, 1]}])
    mesh = load_mesh(tmp_path / "a.glb")
    assert mesh.volume == pytest.approx(math.prod(SIDES))
    assert not mesh.warnings


@pytest.mark.parametrize("required", [False, True])
def test_instances_are_drawn(tmp_path: Path, required: bool) -> None:
    places = struct.pack("<6f", 0, 0, 0, 0.3, 0, 0)
    glb = instances(required, TRANSLATION=(FLOAT, "VEC3", places))
    check(write(tmp_path / "a.glb", glb), 2 * VOLUME, [0.33, 0.01, 0.02], 2)
    assert load_mesh(tmp_path / "a.glb").vertices[:, 2].min() == 1.0


def test_instances_are_turned_and_scaled(tmp_path: Path) -> None:
    turns = struct.pack("<8h", 0, 0, 0, 32767, 0, 23170, 0, 23170)  # normalized: 90 degrees about y
    places = struct.pack("<6f", 0, 0, 0, 0.5, 0, 0)
    glb = instances(
        True,
        TRANSLATION=(FLOAT, "VEC3", places),
        ROTATION=(SHORT, "VEC4", turns),
        SCALE=(FLOAT, "VEC3", struct.pack("<6f", 1, 1, 1, 2, 1, 1)),
    )
    glb[0]["accessors"][3]["normalized"] = True
    check(write(tmp_path / "a.glb", glb), 3 * VOLUME, [0.51, 0.07, 0.02], 2)


def test_instances_count_for_the_limits(tmp_path: Path) -> None:
    glb = instances(True, TRANSLATION=(FLOAT, "VEC3", bytes(24)))
    document, data = add_accessor((glb[0], glb[1]), bytes(12 * 1025), FLOAT, "VEC3", 1025)
    attributes = document["nodes"][0]["extensions"][INSTANCING]["attributes"]
    attributes["TRANSLATION"] = len(document["accessors"]) - 1
    with pytest.raises(MeshError, match="1,025 separate parts"):
        load_mesh(write(tmp_path / "a.glb", (document, data)))


@pytest.mark.parametrize(
    "name", ["KHR_draco_mesh_compression", "EXT_meshopt_compression", "VENDOR_made_up"]
)
def test_required_extensions_are_refused_by_name(tmp_path: Path, name: str) -> None:
    path = write_glb(tmp_path / "a.glb", SIDES, extensionsRequired=["KHR_materials_unlit", name])
    with pytest.raises(MeshError, match=name):
        load_mesh(path)


def test_compressed_vertices_without_others_are_refused_by_name(tmp_path: Path) -> None:
    document, data = box_glb(SIDES)
    del document["accessors"][0]["bufferView"]
    document["meshes"][0]["primitives"][0]["extensions"] = {"KHR_draco_mesh_compression": {}}
    with pytest.raises(MeshError, match="KHR_draco_mesh_compression"):
        load_mesh(write(tmp_path / "a.glb", (document, data)))


@pytest.mark.parametrize("kind", [BYTE, SHORT])
def test_quantized_vertices(tmp_path: Path, kind: int) -> None:
    """Corners at +-1 of normalized integers, and the sides as the scale of the node."""
    most, form = {BYTE: (127, "<24b"), SHORT: (32767, "<24h")}[kind]
    signs = [most * (2 * c - 1) for x in (0, 1) for y in (0, 1) for z in (0, 1) for c in (x, y, z)]
    document, data = add_accessor(box_glb(SIDES), struct.pack(form, *signs), kind, "VEC3", 8)
    document["accessors"][2]["normalized"] = True
    document["meshes"][0]["primitives"][0]["attributes"]["POSITION"] = 2
    document["nodes"] = [{"mesh": 0, "scale": [side / 2 for side in SIDES]}]
    document["extensionsRequired"] = ["KHR_mesh_quantization"]
    check(write(tmp_path / "a.glb", (document, data)), VOLUME, TURNED)


def test_sparse_and_interleaved_vertices(tmp_path: Path) -> None:
    document, data = box_glb(SIDES)
    corners = np.frombuffer(data[:96], "<f4").reshape(8, 3)
    wide = np.zeros((8, 5), "<f4")
    wide[:, 1:4] = corners
    wide[6] = 99.0
    glb = add_accessor((document, data), wide.tobytes(), FLOAT, "VEC3", 8)
    glb[0]["bufferViews"][2]["byteStride"] = 20
    glb[0]["accessors"][2]["byteOffset"] = 4
    glb = add_accessor(glb, struct.pack("<H", 6), UNSIGNED, "SCALAR", 1)
    glb = add_accessor(glb, corners[6].tobytes(), FLOAT, "VEC3", 1)
    glb[0]["accessors"][2]["sparse"] = {
        "count": 1,
        "indices": {"bufferView": 3, "componentType": UNSIGNED},
        "values": {"bufferView": 4},
    }
    glb[0]["meshes"][0]["primitives"][0]["attributes"]["POSITION"] = 2
    check(write(tmp_path / "a.glb", glb), VOLUME, TURNED)


def test_strips_fans_and_primitives_of_one_solid(tmp_path: Path) -> None:
    """A box: four sides as a strip, its two other faces as fans; with a line that is no surface."""
    strip, bottom, top = [2, 3, 6, 7, 4, 5, 0, 1, 2, 3], [0, 2, 6, 4], [1, 5, 7, 3]
    glb = box_glb(SIDES)
    primitives = []
    for mode, corners in ((5, strip), (6, bottom), (6, top), (1, [0, 7])):
        primitives.append({"attributes": {"POSITION": 0}, "mode": mode})
        primitives[-1]["indices"] = len(glb[0]["accessors"])
        values = struct.pack(f"<{len(corners)}H", *corners)
        glb = add_accessor(glb, values, UNSIGNED, "SCALAR", len(corners))
    glb[0]["meshes"] = [{"primitives": primitives}]
    check(write(tmp_path / "a.glb", glb), VOLUME, TURNED)


@pytest.mark.parametrize(("of_mesh", "of_node"), [(None, None), (1.0, None), (0.0, 1.0)])
def test_morph_targets_count_with_their_weights(
    tmp_path: Path, of_mesh: float | None, of_node: float | None
) -> None:
    longer = struct.pack("<24f", *(x for corner in corners_of((0.03, 0, 0)) for x in corner))
    document, data = add_accessor(box_glb(SIDES), longer, FLOAT, "VEC3", 8)
    mesh, node = document["meshes"][0], document["nodes"][0]
    mesh["primitives"][0]["targets"] = [{"NORMAL": 2}, {"POSITION": 2}]
    mesh |= {} if of_mesh is None else {"weights": [0.5, of_mesh]}
    node |= {} if of_node is None else {"weights": [0.5, of_node]}
    times = 1 if of_mesh is None else 2
    sides = (times * TURNED[0], *TURNED[1:])
    check(write(tmp_path / "a.glb", (document, data)), times * VOLUME, sides)


@pytest.mark.parametrize("lacks", ["", "shares", "WEIGHTS_0", "JOINTS_0", "skeleton"])
@pytest.mark.parametrize("shift", [0.0, 0.02])
def test_a_skeleton_moves_vertices_and_replaces_the_pose_of_their_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shift: float, lacks: str
) -> None:
    """Joints in a scene of 1/100; the second one, moved by `shift`, has the corners at large x."""
    monkeypatch.setattr(gltf, "BLOCK", 3)
    inverse = np.diag([100.0, 100.0, 100.0, 1.0]).astype("<f4").tobytes()
    joints = struct.pack("<32B", *(j for x in (0, 1) for _ in range(4) for j in (x, 0, 0, 0)))
    weights = struct.pack(
        "<32B", *(w for _ in range(8) for w in (255 * (lacks != "shares"), 0, 0, 0))
    )
    glb = add_accessor(box_glb(SIDES), inverse * 2, FLOAT, "MAT4", 2)
    glb = add_accessor(glb, joints, 5121, "VEC4", 8)
    document, data = add_accessor(glb, weights, 5121, "VEC4", 8)
    document["accessors"][4]["normalized"] = True
    document["meshes"][0]["primitives"][0]["attributes"] |= {"JOINTS_0": 3, "WEIGHTS_0": 4}
    document["skins"] = [{"joints": [1, 2], "inverseBindMatrices": 2}]
    document["nodes"] = [
        {"children": [1, 2], "scale": [0.01] * 3},
        {"children": [3]},
        {"translation": [100 * shift, 0, 0]},
        {"mesh": 0, "skin": 0, "translation": [9, 9, 9]},
    ]
    low = [0, -0.01, 0]
    if lacks == "skeleton":  # in the scene
        document["nodes"][1] = {}
        document["scenes"] = [{"nodes": [3]}]
    elif lacks.endswith("_0"):  # the pose of the node counts
        del document["nodes"][0]["scale"]
        del document["meshes"][0]["primitives"][0]["attributes"][lacks]
        shift, low = 0.0, [9, -9.01, 9]
    sides = (TURNED[0] + shift, *TURNED[1:])
    path = write(tmp_path / "a.glb", (document, data))
    check(path, VOLUME * sides[0] / TURNED[0], sides)
    assert load_mesh(path).vertices.amin(0).tolist() == pytest.approx(low)


def test_zeros_after_the_json_and_bytes_after_the_end(tmp_path: Path) -> None:
    document, data = box_glb(SIDES)
    whole = glb_of({**document, "asset": {"version": "2.0", "generator": "x" * 60}}, data)
    end = 20 + struct.unpack_from("<I", whole, 12)[0]
    text = whole[20:end].replace(b"x" * 57, b"").ljust(end - 20, b"\0")
    path = tmp_path / "a.glb"
    path.write_bytes(whole[:20] + text + whole[end:])
    check(path, VOLUME, TURNED)
    path.write_bytes(whole + b"\r\n-- end of the message")
    (warning,) = load_mesh(path).warnings
    assert warning.startswith("23 bytes")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bufferViews": [{"buffer": 1, "byteLength": 96}] * 2, "buffers": [{}, {}]}, "buffer 1"),
        ({"nodes": [{"mesh": 3}]}, r"meshes\[3\]"),
        ({"nodes": [{"mesh": -1}]}, r"meshes\[-1\]"),
        ({"nodes": [{"children": [1, 1]}, {"mesh": 0}]}, "node 1 has several parents"),
        ({"nodes": [{"children": [0], "mesh": 0}]}, "node 0 has several parents"),
        ({"buffers": [{"byteLength": 168, "uri": "box.bin"}]}, "box.bin"),
        ({"nodes": [{"mesh": 0, "scale": [1, 2]}]}, "cannot be parsed as GLB"),
    ],
)
def test_broken_documents_are_named(tmp_path: Path, changes: Any, message: str) -> None:
    with pytest.raises(MeshError, match=message) as caught:
        load_mesh(write_glb(tmp_path / "a.glb", SIDES, **changes))
    assert "a.glb" in str(caught.value)


def test_a_urdf_tree_takes_the_lengths_and_axes_of_its_files(tmp_path: Path) -> None:
    write_glb(tmp_path / "a.glb", SIDES)
    write_box_3mf(tmp_path / "a.3mf", (30, 20, 10), "millimeter")
    check(write_urdf(tmp_path / "g.urdf", '<mesh filename="a.glb"/>'), VOLUME, TURNED)
    check(write_urdf(tmp_path / "m.urdf", '<mesh filename="a.3mf"/>'), VOLUME, SIDES)
