"""Files of others: they cannot hang, fill the memory, or act on a terminal or a spreadsheet."""

import csv
import json
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.mesh_files import (
    box_3mf,
    box_glb,
    glb_of,
    model_3mf,
    write_3mf,
    write_box_3mf,
    write_glb,
)
from tests.peak_memory import peak_bytes

from agents.cli import main as cli
from agents.loggers.logging import CSVLogger
from agents.training import checkpoint
from packing_env.generators import GeneratorError, SequenceFile
from packing_env.generators.cuboids.files import read_loads
from packing_env.items import Catalogue, CatalogueError, MeshError, load_mesh
from packing_env.items.meshes import limits
from packing_env.items.storage import StorageError, read
from packing_env.plan import PlanError, load_plan

CORNERS = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
FACES = [(0, 2, 1), (0, 1, 3), (1, 2, 3), (0, 3, 2)]
DEEP = "[" * 100_000
READERS = (
    (read_loads, GeneratorError),
    (load_plan, PlanError),
    (lambda path: SequenceFile(path)._read(), GeneratorError),
)


# ---------------------------------------------------------------------- what a file may be


@pytest.mark.timeout(60)  # reading a pipe would wait for ever
@pytest.mark.parametrize("target", ["pipe", "/dev/zero"])
def test_a_pipe_and_a_device_are_not_read(target: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name in ("a.stl", "a.json"):
        (tmp_path / name).symlink_to(target)
    with pytest.raises(MeshError, match=r"a.stl: cannot be read \(not a regular file\)"):
        load_mesh(tmp_path / "a.stl")
    for read_it, error in (*READERS, (Catalogue.load, CatalogueError)):
        with pytest.raises(error, match="not a regular file"):
            read_it(tmp_path / "a.json")


def test_large_files_are_not_read(tmp_path: Path) -> None:
    for name in ("large.stl", "large.json", "large.obj"):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2**33)  # holes: they take no disk
    with pytest.raises(MeshError, match="it has 8 GiB, but at most 256 MiB are read"):
        load_mesh(tmp_path / "large.stl")
    for read_it, error in READERS:
        with pytest.raises(error, match="it has 8 GiB, but at most 64 MiB are read"):
            read_it(tmp_path / "large.json")


def test_deeply_nested_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "deep.json"
    path.write_text(DEEP)
    for read_it, error in READERS:
        with pytest.raises(error, match="nested too deeply"):
            read_it(path)
    checkpoint.save(tmp_path, 1, {}, {})
    (checkpoint.find(tmp_path) / checkpoint.MANIFEST).write_text(DEEP)
    with pytest.raises(checkpoint.CheckpointError, match="nested too deeply"):
        checkpoint.load(tmp_path)
    catalogue = tmp_path / "deep.npz"
    np.savez(catalogue, meta=np.frombuffer(DEEP.encode(), np.uint8))
    with pytest.raises(StorageError, match="nested too deeply"):
        read(catalogue)
    assert cli.main(["bench", "compare", str(path), str(path)]) == 2


def test_a_compressed_archive_of_tensors_is_not_unpacked(tmp_path: Path) -> None:
    checkpoint.save(tmp_path, 1, {}, {})
    place = checkpoint.find(tmp_path)
    with zipfile.ZipFile(place / checkpoint.TENSORS) as archive:
        inside = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(place / checkpoint.TENSORS, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in inside.items():
            archive.writestr(name, data)
    manifest = json.loads((place / checkpoint.MANIFEST).read_text())
    manifest["files"][checkpoint.TENSORS] = checkpoint._fingerprint(place / checkpoint.TENSORS)
    (place / checkpoint.MANIFEST).write_text(json.dumps(manifest))
    with pytest.raises(checkpoint.CheckpointError, match=r"torch\.save does not compress"):
        checkpoint.load(tmp_path)


# ---------------------------------------------------------------------- what it may unfold to


def doubling(levels: int) -> str:
    """A part made of two parts, each made of two parts, ..."""
    return "".join(
        f'<object id="{i}" type="model"><components><component objectid="{i - 1}"/>'
        f'<component objectid="{i - 1}"/></components></object>'
        for i in range(2, levels + 2)
    )


def write_model(path: Path, parts: str, built: int) -> Path:
    """Write a 3MF of a box, object 1, and parts that are made of it."""
    model = model_3mf(box_3mf(1, (1, 1, 1)) + parts, f'<item objectid="{built}"/>')
    return write_3mf(path, {"3D/3dmodel.model": model})


@pytest.mark.parametrize("levels", [12, 4_000])
def test_a_3mf_file_that_unfolds_to_too_much_is_refused(levels: int, tmp_path: Path) -> None:
    with pytest.raises(MeshError, match="separate parts, but at most 1,024 are read"):
        load_mesh(write_model(tmp_path / "bomb.3mf", doubling(levels), levels + 1))


def test_a_3mf_file_of_nested_parts_is_read(tmp_path: Path) -> None:
    mesh = load_mesh(write_model(tmp_path / "two.3mf", doubling(1), 2))
    assert len(mesh.faces) == 24


def test_parts_that_contain_each_other_are_refused(tmp_path: Path) -> None:
    loop = (
        '<object id="2" type="model"><components><component objectid="3"/></components></object>'
        '<object id="3" type="model"><components><component objectid="2"/></components></object>'
    )
    with pytest.raises(MeshError, match="its parts contain each other"):
        load_mesh(write_model(tmp_path / "loop.3mf", loop, 2))


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = write_model(tmp_path / "zeros.3mf", "", 1)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("zeros", "w", force_zip64=True) as file,
    ):
        for _ in range(300):
            file.write(bytes(2**20))
    assert path.stat().st_size < 2**22

    def refuse() -> None:
        with pytest.raises(MeshError, match="unpacks to 300 MiB, but at most 256 MiB are read"):
            load_mesh(path)

    peak = peak_bytes(refuse)
    assert peak is None or peak < 2**26


def test_a_glb_file_that_unfolds_to_too_much_is_refused(tmp_path: Path) -> None:
    path, sides = tmp_path / "bomb.glb", (1, 1, 1)
    crowd = [{"children": list(range(1, 2_001))}, *[{"mesh": 0}] * 2_000]
    with pytest.raises(MeshError, match="2,000 separate parts"):
        load_mesh(write_glb(path, sides, nodes=crowd))
    document, data = box_glb(sides)
    del document["accessors"][0]["bufferView"]  # zeros, according to the format
    document["accessors"][0]["count"] = 10**9
    path.write_bytes(glb_of(document, data))
    with pytest.raises(MeshError, match="declares more values than the file holds"):
        load_mesh(path)


@pytest.fixture
def _small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SIZE", 1_000)


@pytest.mark.usefixtures("_small_limit")
def test_a_few_vertices_with_many_triangles_are_refused(tmp_path: Path) -> None:
    """Some kilobytes may draw the triangles of one part a thousand times."""
    model = model_3mf(box_3mf(1, (1, 1, 1)), 10 * '<item objectid="1"/>')
    triangle = '<triangle v1="0" v2="2" v3="1"/>'
    glb_file, model_file = tmp_path / "bomb.glb", tmp_path / "bomb.3mf"
    for times, too_many in ((5, False), (500, True)):
        meshes = [{"primitives": 2 * times * [{"attributes": {"POSITION": 0}, "indices": 1}]}]
        nodes = [{"children": [1, 2]}, *[{"mesh": 0}] * 2]
        write_glb(glb_file, (1, 1, 1), nodes=nodes, meshes=meshes)
        triangles = times * triangle + "</triangles>"
        unfolding = model.replace("</triangles>", triangles)
        write_3mf(model_file, {"3D/3dmodel.model": unfolding})
        for file in (glb_file, model_file):
            if too_many:
                with pytest.raises(MeshError, match="vertices or pairs of triangles"):
                    load_mesh(file)
            else:
                assert len(load_mesh(file).faces) >= 4


@pytest.mark.usefixtures("_small_limit")
def test_meshes_of_a_urdf_tree_that_unfold_to_too_much_are_refused(tmp_path: Path) -> None:
    write_box_3mf(tmp_path / "part.3mf", (1, 1, 1), "millimeter")
    (tmp_path / "tree.urdf").write_text(urdf(300, '<mesh filename="part.3mf"/>'))
    with pytest.raises(MeshError, match=r"tree\.urdf: expands to"):
        load_mesh(tmp_path / "tree.urdf")


def urdf(num_links: int, geometry: str, at: slice = slice(None)) -> str:
    links = [f'<link name="l{i}"/>' for i in range(num_links)]
    for i in range(num_links)[at]:
        links[i] = f'<link name="l{i}"><visual><geometry>{geometry}</geometry></visual></link>'
    joints = (
        f'<joint name="j{i}" type="fixed"><parent link="l{i - 1}"/><child link="l{i}"/>'
        '<origin xyz="0.002 0 0"/></joint>'
        for i in range(1, num_links)
    )
    return f'<robot name="r">{"".join(links)}{"".join(joints)}</robot>'


def test_a_urdf_tree_of_too_many_parts_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "chain.urdf"
    path.write_text(urdf(2_000, '<box size="0.001 0.001 0.001"/>'))
    with pytest.raises(MeshError, match="2,000 separate parts"):
        load_mesh(path)
    path.write_text(urdf(2_000, '<box size="0.1 0.1 0.1"/>', slice(0, None, 1_999)))
    mesh = load_mesh(path)  # 2,000 links that only carry
    assert mesh.extents[0] == pytest.approx(0.1 + 1_999 * 0.002)


def test_a_urdf_tree_does_not_refer_to_too_much(tmp_path: Path) -> None:
    with (tmp_path / "part.stl").open("wb") as file:
        file.truncate(2**20)
    (tmp_path / "tree.urdf").write_text(urdf(300, '<mesh filename="part.stl"/>'))
    with pytest.raises(MeshError, match="refers to meshes of 300 MiB, but at most 256 MiB"):
        load_mesh(tmp_path / "tree.urdf")


def test_a_collada_file_that_unfolds_to_too_much_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("trimesh")
    nodes = "".join(
        f'<node id="n{i}"><instance_node url="#n{i - 1}"/><instance_node url="#n{i - 1}"/></node>'
        for i in range(1, 41)
    )
    (tmp_path / "part.dae").write_text(
        '<COLLADA xmlns="http://www.collada.org/2005/11/COLLADASchema" version="1.4.1">'
        '<library_geometries><geometry id="g"><mesh/></geometry></library_geometries>'
        f'<library_nodes><node id="n0"><instance_geometry url="#g"/></node>{nodes}</library_nodes>'
        '<library_visual_scenes><visual_scene id="s"><node><instance_node url="#n40"/></node>'
        '</visual_scene></library_visual_scenes><scene><instance_visual_scene url="#s"/></scene>'
        "</COLLADA>"
    )
    (tmp_path / "tree.urdf").write_text(urdf(1, '<mesh filename="part.dae"/>'))
    with pytest.raises(MeshError, match="1,099,511,627,776 separate parts"):
        load_mesh(tmp_path / "tree.urdf")


# ---------------------------------------------------------------------- what its text may do

ESCAPE = "\x1b[2J\x1b]0;owned\x07\u202e"


def test_names_of_files_do_not_act_on_a_terminal(tmp_path: Path, capsys: Any) -> None:
    for number in range(2):
        with (tmp_path / f"{ESCAPE}{number}[bold].off").open("w") as file:
            file.write(f"OFF\n4 {4 - number} 0\n")
            file.writelines(f"{x / 10} {y / 10} {z / 10}\n" for x, y, z in CORNERS)
            file.writelines(f"3 {a} {b} {c}\n" for a, b, c in FACES[number:])
    assert cli.main(["items", "items=meshes", f"items.paths=[{tmp_path}]"]) == 0
    shown = capsys.readouterr()
    assert r"\x1b[2J" in shown.out + shown.err
    assert "[bold]" in shown.out
    assert not {"\x1b", "\x07", "\u202e"} & {*shown.out, *shown.err}
    assert cli.main(["check", str(tmp_path / f"{ESCAPE}.json")]) == 2
    assert cli.main(["eval", f"checkpoint={tmp_path}/'{ESCAPE}'"]) == 2
    shown = capsys.readouterr()
    assert not {"\x1b", "\x07", "\u202e"} & {*shown.out, *shown.err}


def test_no_cell_of_a_table_is_a_formula(tmp_path: Path) -> None:
    """A spreadsheet runs what begins with = + - @; numbers stay numbers."""
    path = tmp_path / "metrics.csv"
    path.write_text("frames,note,=1+1\n1,=HYPERLINK(0),-2.5\n2,@SUM(1),-inf\n3,+a,+1e3\n4,-b,nan\n")
    logger = CSVLogger(tmp_path)
    logger.resume(4)
    logger.log(5, {"=cmd()": -1.5})
    with path.open() as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["frames", "note", "'=1+1", "'=cmd()"]
    assert [row[1] for row in rows[1:]] == ["'=HYPERLINK(0)", "'@SUM(1)", "'+a", "'-b", ""]
    assert [row[2] for row in rows[1:]] == ["-2.5", "-inf", "+1e3", "nan", ""]
    assert rows[-1] == ["5", "", "", "-1.5"]
