"""Catalogues: contents, duplicates, scales, what never fits, files, the cache, cuboids."""

import io
import logging
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import trimesh
from tests.mesh_files import box_mesh, tetrahedron, write_obj, write_urdf

from packing_env.items import (
    Catalogue,
    CatalogueError,
    MeshError,
    inputs,
    load_mesh,
    rasterize_many,
    rotation_set,
)
from packing_env.items.inputs import item_names

GRID = {"cell": 0.01, "container": (0.32, 0.32, 0.30), "use_cache": False}


def _same(a: Catalogue, b: Catalogue) -> bool:
    tensors = all(torch.equal(value, b.tensors()[key]) for key, value in a.tensors().items())
    flags = torch.equal(a.never_feasible, b.never_feasible)
    return tensors and flags and a.names == b.names and a.sources == b.sources


def test_rows_hold_the_maps_of_the_rasteriser():
    mesh = tetrahedron()
    catalogue = Catalogue.from_meshes(mesh, **GRID)
    maps = rasterize_many(mesh, rotation_set(), 0.01)
    for r, m in enumerate(maps):
        u, v = m.size
        assert catalogue.size[0, r].tolist() == [u, v]
        assert torch.equal(catalogue.top[0, r, :u, :v], m.top)
        assert torch.equal(catalogue.bottom[0, r, :u, :v], m.bottom)
        assert torch.equal(catalogue.rotation[0, r], m.rotation)
        assert torch.equal(catalogue.offset[0, r], m.offset)
        assert float(catalogue.peak[0, r]) == m.peak
        com = (m.rotation @ mesh.com + m.offset)[:2] / 0.01
        assert torch.allclose(catalogue.com[0, r] / 64.0, com.float(), atol=0.5 / 64)
        assert bool((catalogue.com[0, r] >= 0).all())
    assert catalogue.volume.tolist() == [mesh.volume]
    assert catalogue.extent[0].tolist() == pytest.approx([0.05, 0.03, 0.04])


def test_repeated_orientations_are_dropped_and_the_rest_stands_in_front():
    meshes = [box_mesh(0.03, 0.03, 0.03), box_mesh(0.03, 0.03, 0.02), box_mesh(0.03, 0.02, 0.01)]
    catalogue = Catalogue.from_meshes([*meshes, tetrahedron()], **GRID)
    assert catalogue.orientation_mask.sum(1).tolist() == [1, 3, 6, 24]
    mask = catalogue.orientation_mask
    assert torch.equal(mask, mask.sort(dim=1, descending=True, stable=True).values)
    padding = ~mask
    assert bool(torch.isneginf(catalogue.top[padding]).all())
    assert bool(torch.isposinf(catalogue.bottom[padding]).all())
    assert bool(torch.isposinf(catalogue.peak[padding]).all())
    assert int(catalogue.size[padding].abs().sum()) == 0
    assert bool((catalogue.bottom.amin((2, 3))[mask] == 0).all())
    assert not bool(torch.isnan(catalogue.top).any())


def test_offset_takes_file_coordinates_into_the_maps(tmp_path):
    """p_map = rotation @ (scale * unit * p_file) + offset."""
    path = write_obj(tmp_path / "tetra.obj", tetrahedron(), factor=1000.0)
    catalogue = Catalogue.from_meshes(path, **GRID, unit="mm", scales=(1.25,))
    source = catalogue.sources[0]
    assert source == {"source": str(path), "unit": "mm", "scale": 1.25, "warnings": []}
    in_file = tetrahedron().vertices * 1000.0
    for r in range(24):
        points = 1.25 * 1e-3 * in_file @ catalogue.rotation[0, r].T + catalogue.offset[0, r]
        assert torch.allclose(points[:, 2].min(), torch.zeros(()).double(), atol=1e-6)
        assert torch.allclose(points[:, 2].max().float(), catalogue.peak[0, r], atol=1e-6)
        assert float(points[:, :2].min()) > -1e-9
        assert bool((points[:, :2].amax(0) / 0.01 <= catalogue.size[0, r] + 1e-6).all())


def test_an_item_that_fits_nowhere_is_kept_and_flagged(data_dir, caplog):
    """Row 24 of the awkward files: 0.5 x 0.45 x 0.4 m."""
    big = data_dir / "bad" / "24_bigger_than_box.stl"
    with caplog.at_level(logging.WARNING):
        catalogue = Catalogue.from_meshes([big, tetrahedron()], **GRID)
    assert catalogue.never_feasible.tolist() == [True, False]
    assert catalogue.peak[0].min() == torch.inf
    assert catalogue.extent[0].tolist() == pytest.approx([0.5, 0.45, 0.4])
    assert "1 of 2 items" in caplog.text
    assert "24_bigger_than_box" in caplog.text
    with pytest.raises(CatalogueError, match=r"none of the 1 items .*24_bigger_than_box"):
        Catalogue.from_meshes(big, **GRID)


def test_millimetres_read_as_metres_are_refused_with_a_hint(data_dir):
    """Row 13: a sphere of 100 mm, read as 100 m; nothing of that size is rasterised."""
    sphere = data_dir / "bad" / "13_millimetres.stl"
    with pytest.raises(CatalogueError, match=r"measures 100 m.*unit='mm'"):
        Catalogue.from_meshes(sphere, **{**GRID, "cell": 0.002})
    assert not Catalogue.from_meshes(sphere, **GRID, unit="mm").never_feasible.any()


def test_a_long_rod_fits_only_on_the_diagonal(data_dir):
    """Row 25: 0.44 m in a base of 0.32 m."""
    rod = data_dir / "bad" / "25_long_rod.stl"
    with pytest.raises(CatalogueError, match="in any orientation"):
        Catalogue.from_meshes(rod, **GRID)
    diagonal = Catalogue.from_meshes(rod, **GRID, orientations=np.pi / 4)
    yaws = diagonal.rotation[0][diagonal.peak[0] <= 0.3]
    assert len(yaws) > 0
    assert torch.allclose(yaws[:, :2, 0].abs(), torch.full((len(yaws), 2), 0.5**0.5).double())


def test_a_needle_is_kept_with_a_warning(data_dir):
    """Rows 42 and 43: thinner than a cell."""
    bad = data_dir / "bad"
    catalogue = Catalogue.from_meshes([bad / "43_needle.obj", bad / "42_thin_sheet.obj"], **GRID)
    assert any("thinner than a cell" in line for line in catalogue.sources[0]["warnings"])
    assert catalogue.sources[1]["warnings"] == []
    finite = torch.isfinite(catalogue.bottom).flatten(2).any(2)
    assert torch.equal(finite, catalogue.orientation_mask)
    assert float(catalogue.peak[1, 0]) == pytest.approx(2e-4)


def test_an_unreliable_volume_is_the_column_volume(data_dir):
    shell = data_dir / "bad" / "08_open_shell.stl"
    catalogue = Catalogue.from_meshes([shell, tetrahedron()], **GRID)
    assert catalogue.volume_reliable.tolist() == [False, True]
    columns = [m.column_volume for m in rasterize_many(load_mesh(shell), rotation_set(), 0.01)]
    assert float(catalogue.volume[0]) == pytest.approx(min(columns))


def test_embedded_shapes_all_fit_and_are_no_larger_than_their_columns():
    """So pyramidality cannot exceed one."""
    catalogue = Catalogue.from_shapes(**GRID)
    assert not catalogue.never_feasible.any()
    columns = torch.where(torch.isfinite(catalogue.bottom), catalogue.top - catalogue.bottom, 0.0)
    bound = columns.double().sum((2, 3)) * 0.01**2 * (1 + 1e-6)
    assert bool((catalogue.volume[:, None] <= bound)[catalogue.orientation_mask].all())
    assert catalogue.volume_reliable.all()
    assert catalogue.sources[0]["source"] == f"shapes:{catalogue.names[0]}"
    some = Catalogue.from_shapes(["household"], **GRID)
    assert set(some.names) < set(catalogue.names)
    with pytest.raises(ValueError, match="unknown shape families"):
        Catalogue.from_shapes(["furniture"], **GRID)


def test_folders_are_expanded_in_order(tmp_path):
    (tmp_path / "deep").mkdir()
    for name in ("b.obj", "a.OBJ", "deep/c.obj"):
        write_obj(tmp_path / name, tetrahedron())
    (tmp_path / "notes.txt").write_text("not a mesh")
    assert Catalogue.from_meshes(tmp_path, **GRID).names == ["a", "b", "c"]


def test_parts_of_a_urdf_tree_are_no_items_of_their_own(tmp_path):
    write_obj(tmp_path / "part.obj", tetrahedron())
    write_obj(tmp_path / "other.obj", tetrahedron())
    write_urdf(tmp_path / "tree.urdf", '<mesh filename="part.obj"/>')
    assert Catalogue.from_meshes(tmp_path, **GRID).names == ["other", "tree"]


def test_no_two_items_share_a_name(tmp_path):
    files = []
    for name in ("a/x/part.obj", "b/x/part.obj", "c/part.obj", "c/lid.obj", "c/d/pin.obj"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        files.append(write_obj(tmp_path / name, tetrahedron()))
    assert item_names(files) == ["a/x/part", "b/x/part", "c/part", "lid", "pin"]
    assert Catalogue.from_meshes(tmp_path, **GRID, scales=(0.5, 1.0)).names == [
        *("a/x/part", "a/x/part", "b/x/part", "b/x/part", "pin", "pin"),
        *("lid", "lid", "c/part", "c/part"),
    ]
    assert item_names([Path("pin.stl"), Path("pin.obj")]) == ["pin.stl", "pin.obj"]
    assert item_names([Path("pin.stl"), Path("../a/pin.stl")]) == ["pin", "a/pin"]
    assert item_names([Path("/pin.stl"), Path("/pin.stl")]) == ["pin", "pin#2"]
    boxes = [box_mesh(0.1, 0.1, length, name=name) for length, name in _LIKE_NAMED]
    assert Catalogue.from_meshes(boxes, **GRID).names == ["box", "box#3", "box#2", "box#4"]
    cuboids = Catalogue.from_cuboids([[0.1, 0.1, 0.1]] * 2, cell=0.01, container=(0.2, 0.2, 0.2))
    assert cuboids.names == ["0.1x0.1x0.1", "0.1x0.1x0.1#2"]
    with pytest.raises(CatalogueError, match="names has 1 entries for 2 cuboids"):
        Catalogue.from_cuboids([[1, 1, 1]] * 2, cell=1.0, container=(4, 4, 4), names=["one"])


_LIKE_NAMED = [(0.1, "box"), (0.2, "box"), (0.15, "box#2"), (0.05, "box")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"container": (0.32, 0.321, 0.3)}, "Y = 0.321 m is not a whole multiple"),
        ({"container": (0.32, 0.32)}, r"container=.* must be three lengths \(X, Y, H\)"),
        ({"cell": -0.01}, "cell=-0.01 must be"),
        ({"scales": ()}, r"scales="),
        ({"scales": (0.0,)}, r"scales\[0\]="),
        ({"orientations": "sideways"}, "unknown orientations 'sideways'"),
        ({"orientations": torch.eye(3)}, r"rotations \[R, 3, 3\]"),
    ],
)
def test_impossible_settings_are_named(changes, message):
    with pytest.raises(CatalogueError, match=message):
        Catalogue.from_meshes(tetrahedron(), **{**GRID, **changes})


def test_files_of_a_folder_that_are_not_read_are_named(tmp_path, caplog):
    inner = tmp_path / "inner"
    inner.mkdir()
    trimesh.creation.box((0.1, 0.1, 0.1)).export(inner / "box.stl")
    for name in ("._box.stl", ".DS_Store", "box.mtl", "inner/bracket.STEP", "order.csv", "old.zip"):
        (tmp_path / name).write_bytes(b"0")
    assert Catalogue.from_meshes(tmp_path, **GRID).names == ["box"]
    (line,) = (record.message for record in caplog.records if "not read" in record.message)
    listed, *remedies = line.split(": not read: ")[1].split("; ")
    assert listed == f"{Path('inner', 'bracket.STEP')}, old.zip, order.csv"
    assert len(remedies) == 3
    (inner / "box.stl").unlink()
    with pytest.raises(CatalogueError, match=r"no mesh files.*bracket\.STEP"):
        Catalogue.from_meshes(tmp_path, **GRID)


def test_nothing_to_load_is_an_error(tmp_path):
    with pytest.raises(CatalogueError, match="no items given"):
        Catalogue.from_meshes([], **GRID)
    with pytest.raises(CatalogueError, match=r"no mesh files in it; supported are \.stl"):
        Catalogue.from_meshes(tmp_path, **GRID)
    with pytest.raises(MeshError, match=r"nowhere\.obj: no such file"):
        Catalogue.from_meshes(tmp_path / "nowhere.obj", **GRID)
    with pytest.raises(CatalogueError, match="no cuboids"):
        Catalogue.from_cuboids([], cell=1.0, container=(10, 10, 10))


# ------------------------------------------------------------------------------------ rows, devices


def test_select_takes_rows_in_order():
    catalogue = Catalogue.from_meshes([box_mesh(0.1, 0.1, 0.1), tetrahedron()], **GRID)
    picked = catalogue.select([1, 0, 1])
    assert picked.names == ["tetra", "box", "tetra"]
    assert [s["source"] for s in picked.sources] == ["mesh:tetra", "mesh:box", "mesh:tetra"]
    assert torch.equal(picked.top[0], catalogue.top[1])
    assert torch.equal(picked.select(torch.tensor([1])).volume, catalogue.volume[:1])
    assert _same(catalogue.to("cpu"), catalogue)


# ------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(
    "catalogue",
    [
        Catalogue.from_meshes([box_mesh(0.03, 0.02, 0.01), tetrahedron()], **GRID),
        Catalogue.from_cuboids(
            [(0.123, 0.2, 0.45), (0.5, 0.5, 0.1)],
            cell=0.001,
            container=(1.0, 1.0, 1.0),
            orientations="cuboid",
            maps=False,
        ),
    ],
    ids=["meshes", "cuboids without maps"],
)
def test_a_saved_catalogue_loads_bit_for_bit(catalogue, tmp_path):
    catalogue.save(tmp_path / "items.catalogue")
    again = Catalogue.load(tmp_path / "items.catalogue")
    assert _same(catalogue, again)
    for name, value in catalogue.tensors().items():
        assert value.dtype == again.tensors()[name].dtype, name
    assert torch.equal(catalogue.volume_reliable, again.volume_reliable)
    assert (again.cell, again.container) == (catalogue.cell, catalogue.container)
    assert torch.equal(again.select([1]).to("cpu").cuboid[0], catalogue.cuboid[1])
    assert [file.name for file in tmp_path.iterdir()] == ["items.catalogue"]


def test_a_missing_or_newer_file_is_refused(tmp_path, monkeypatch):
    with pytest.raises(CatalogueError, match="nowhere"):
        Catalogue.load(tmp_path / "nowhere")
    monkeypatch.setattr("packing_env.items.catalogue.FORMAT", 999)
    Catalogue.from_meshes(tetrahedron(), **GRID).save(tmp_path / "new")
    monkeypatch.undo()
    with pytest.raises(CatalogueError, match="another version"):
        Catalogue.load(tmp_path / "new")


def test_a_failed_save_keeps_the_previous_file(tmp_path, monkeypatch):
    path = tmp_path / "items.catalogue"
    catalogue = Catalogue.from_meshes(tetrahedron(), **GRID)
    catalogue.save(path)
    before = path.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(OSError, match="No space left"):
        catalogue.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["items.catalogue"]


# ------------------------------------------------------------------------------------ the cache


@pytest.fixture
def builds(monkeypatch):
    """Record the names of the meshes that are rasterised."""
    names = []
    original = rasterize_many

    def counted(mesh, *args, **kwargs):
        names.append(mesh.name)
        return original(mesh, *args, **kwargs)

    monkeypatch.setattr("packing_env.items.rows.rasterize_many", counted)
    return names


CACHED = {key: value for key, value in GRID.items() if key != "use_cache"}


def test_the_cache_follows_content_and_settings(tmp_path, builds):
    path = write_obj(tmp_path / "tetra.obj", tetrahedron())
    options = {**CACHED, "cache_dir": tmp_path / "cache"}
    first, second = (Catalogue.from_meshes(path, **options) for _ in range(2))
    assert builds == ["tetra"]
    assert _same(first, second)
    variants = [
        {"cell": 0.02},
        {"container": (0.32, 0.32, 0.2)},
        {"orientations": "yaw"},
        {"scales": (0.5,)},
        {"unit": "cm"},
        {"strict": True},
    ]
    for number, change in enumerate(variants, 2):
        Catalogue.from_meshes(path, **{**options, **change})
        assert len(builds) == number, change
    write_obj(path, tetrahedron(), factor=1.01)
    Catalogue.from_meshes(path, **options)
    assert len(builds) == len(variants) + 2


@pytest.mark.parametrize("part", ["rasterize.py", "meshes/readers.py", "shapes.py"])
def test_the_cache_follows_the_source_of_each_folder(part, tmp_path, monkeypatch):
    """A copy of the package with one changed file has another digest."""
    copy = shutil.copytree(Path(inputs.__file__).parent, tmp_path / "items")
    monkeypatch.setattr(inputs, "_PACKAGE", copy)
    digest = inputs.code_digest.__wrapped__
    assert digest() == inputs.code_digest()
    with (copy / part).open("a") as file:
        file.write("# changed\n")
    assert digest() != inputs.code_digest()


def test_the_cache_follows_the_parts_of_a_urdf_tree(tmp_path, builds):
    part = write_obj(tmp_path / "part.obj", tetrahedron())
    tree = write_urdf(tmp_path / "tree.urdf", '<mesh filename="part.obj"/>')
    options = {**CACHED, "cache_dir": tmp_path / "cache"}
    small = Catalogue.from_meshes(tree, **options)
    write_obj(part, tetrahedron(), factor=2.0)
    large = Catalogue.from_meshes(tree, **options)
    assert len(builds) == 2
    assert float(large.volume[0]) == pytest.approx(8 * float(small.volume[0]))


def _damages(whole: bytes) -> dict[str, bytes]:
    """Return files that are cut, or have a flipped bit, another header or compressed arrays."""
    found = {f"cut at {cut}": whole[:cut] for cut in (0, 7, 60, len(whole) // 2, len(whole) - 1)}
    top = whole.index(b"top.npy") + 200
    found["flipped"] = whole[:top] + bytes([whole[top] ^ 1]) + whole[top + 1 :]
    flags = whole.rindex(b"PK\x01\x02") + 8  # of the last entry of the directory
    found["encrypted"] = whole[:flags] + bytes([whole[flags] | 1]) + whole[flags + 1 :]
    found["a pickle"] = pickle.dumps({"top": [1.0]})
    with np.load(io.BytesIO(whole)) as arrays:
        tensors = dict(arrays)
    meta = tensors["meta"].tobytes()
    packed = [
        tensors | {"meta": np.frombuffer(meta.replace(*change, 1), np.uint8)}
        for change in ((b'"format": ', b'"former": '), (b'"key": ', b'"kez": '), (b"{", b"{{"))
    ]
    packed += [{name: tensors[name] for name in tensors if name != "volume"}]
    packed += [{"meta": tensors["meta"]}, tensors | {"top": np.array([None])}]
    for number, changed in enumerate(packed):
        for pack in (np.savez, np.savez_compressed):
            stream = io.BytesIO()
            pack(stream, **changed)
            found[f"change {number} {pack.__name__}"] = stream.getvalue()
    return found


def test_a_damaged_file_is_refused_and_built_again(tmp_path, builds, caplog):
    options = {**CACHED, "cache_dir": tmp_path}
    first = Catalogue.from_meshes(tetrahedron(), **options)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    for number, (damage, data) in enumerate(_damages(whole).items(), 2):
        file.write_bytes(data)
        with pytest.raises(CatalogueError, match=file.name):
            Catalogue.load(file, key=file.stem)
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            again = Catalogue.from_meshes(tetrahedron(), **options)
        assert "building the catalogue again" in caplog.text, damage
        assert len(builds) == number, damage
        assert _same(first, again), damage
        assert file.read_bytes() == whole, damage
    assert _same(first, Catalogue.from_meshes(tetrahedron(), **options))
    assert len(builds) == number


def test_a_whole_file_of_other_items_is_not_taken_for_these(tmp_path, builds, caplog):
    options = {**CACHED, "cache_dir": tmp_path}
    made, files = [], []
    for mesh in (tetrahedron(), box_mesh(0.1, 0.1, 0.1)):
        made.append(Catalogue.from_meshes(mesh, **options))
        files += sorted(set(tmp_path.iterdir()) - set(files))
    one, other = (file.read_bytes() for file in files)
    files[0].write_bytes(other)
    files[1].write_bytes(one)
    with caplog.at_level(logging.WARNING):
        assert _same(made[0], Catalogue.from_meshes(tetrahedron(), **options))
    assert "the catalogue of other items or settings" in caplog.text
    assert len(builds) == 3
    assert Catalogue.load(files[1]).names == made[0].names  # without a key anything is read


def test_an_unwritable_cache_costs_one_log_line(tmp_path, caplog):
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    with caplog.at_level(logging.WARNING):
        catalogue = Catalogue.from_meshes(tetrahedron(), **CACHED, cache_dir=blocked / "cache")
    assert len(catalogue) == 1
    said = [r.message[:27] for r in caplog.records if r.name.startswith("packing_env")]
    assert said == ["the catalogue is not cached"]


def test_the_default_cache_is_in_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    Catalogue.from_meshes(tetrahedron(), **CACHED)
    assert len(list((tmp_path / "packing_env").glob("*.catalogue"))) == 1
    shutil.rmtree(tmp_path / "packing_env")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    Catalogue.from_meshes(tetrahedron(), **CACHED)
    assert len(list((tmp_path / ".cache" / "packing_env").glob("*.catalogue"))) == 1


# ------------------------------------------------------------------------------------ cuboids


@pytest.mark.parametrize("orientations", ["pi/2", "cuboid", "yaw", "none"])
def test_cuboids_equal_their_meshes(orientations):
    extents = [(0.03, 0.02, 0.01), (0.1, 0.1, 0.1), (0.031, 0.02, 0.3), (0.4, 0.05, 0.05)]
    extents += [(0.031, 0.0222, 0.0004), (0.331, 0.2, 0.1), (0.101, 0.109, 0.05)]
    options = {**CACHED, "orientations": orientations}
    direct = Catalogue.from_cuboids(extents, **options, scales=(1.0, 0.5))
    meshes = [box_mesh(*extent) for extent in extents]
    by_mesh = Catalogue.from_meshes(meshes, **options, scales=(1.0, 0.5), use_cache=False)
    for key, value in by_mesh.tensors().items():
        close = torch.allclose if key in ("volume", "extent") else torch.equal
        assert close(direct.tensors()[key], value), key
    assert torch.equal(direct.never_feasible, by_mesh.never_feasible)
    assert [s["scale"] for s in direct.sources] == [1.0, 0.5] * len(extents)
    assert direct.names[:2] == ["0.03x0.02x0.01"] * 2


@pytest.mark.parametrize(
    ("extents", "options", "message"),
    [
        ([(1, 2)], {}, r"must be \[M, 3\]"),
        ([(1, 2, 3), (1, 0, 1)], {}, "cuboid 1 has extents"),
        ([(1, 2, float("nan"))], {}, "cuboid 0 has extents"),
        ([(1, 2, 3)], {"orientations": "pi/4"}, "axis-aligned"),
        ([(1, 2, 3)], {"unit": "furlong"}, "unit='furlong' is unknown"),
        ([(100, 100, 100)], {}, "none of the 1 items"),
    ],
)
def test_bad_cuboids_are_named(extents, options, message):
    with pytest.raises(CatalogueError, match=message):
        Catalogue.from_cuboids(extents, cell=1.0, container=(10, 10, 10), **options)
