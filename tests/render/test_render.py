"""Pictures: the rasteriser against plain geometry, and files that other programs can open."""

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.test_plan import pack

import packing_env as pe
from packing_env import render
from packing_env.items import shapes
from packing_env.plan import Packing, packing_of
from packing_env.planner import Part
from packing_env.render.raster import rasterize
from packing_env.render.solids import columns, seen, triangles

SIZE = 64


@pytest.fixture(scope="module")
def packing() -> Packing:
    return packing_of(pack(num_items=5, scales=(0.8, 1.2)))


def without_solids(packing: Packing) -> Packing:
    items = (dataclasses.replace(item, source="mesh:gone") for item in packing.items)
    return dataclasses.replace(packing, items=tuple(items))


def volume(solid: np.ndarray) -> float:
    """Compute the volume by the divergence theorem; right only for a closed, outward surface."""
    return float(np.linalg.det(solid).sum() / 6)


def test_two_environments_have_a_window_each(monkeypatch: pytest.MonkeyPatch) -> None:
    from matplotlib import backends, pyplot

    monkeypatch.setattr(backends.backend_registry, "list_builtin", lambda _: ["agg"])
    monkeypatch.setattr(pyplot, "pause", lambda _: None)
    windows = [render.Window(), render.Window()]
    for window in windows:
        window.show(np.zeros((4, 4, 3), np.uint8))
    assert len(pyplot.get_fignums()) == 2
    for window in windows:
        window.close()
    assert not pyplot.get_fignums()


def test_sides_on_which_equal_boxes_touch_are_not_drawn() -> None:
    parts = [Part(sides=(40, 30, 10), unit="mm", quantity=3)]
    (stack,) = pe.pack(parts, "40x30x30mm", seconds=0.1).containers
    solids = [triangles(item, stack.cell) for item in stack.items]
    numbers = [mine.sum() for mine in seen(solids)]
    assert numbers == [10, 8, 10]  # a side is two triangles
    assert seen([solids[0], np.concatenate(solids[:2])])[0].all()  # only boxes hide each other
    lower = solids[0] * [1.0, 1.0, 0.5]  # in a plan that overlaps, the shared sides are outside
    assert all(each.all() for each in seen([solids[0], solids[0], lower]))
    assert not seen([])


def test_rasterize_finds_the_nearest_triangle() -> None:
    rng = np.random.default_rng(0)
    screen = rng.uniform((-5, -5, 0.5), (25, 20, 1.5), (12, 3, 3))
    number, near = rasterize(screen, (20, 16))
    rows, columns_ = np.mgrid[:16, :20] + 0.5
    expected = np.full((16, 20), -1)
    nearest = np.zeros((16, 20))
    for index, corners in enumerate(screen):
        system = np.vstack((corners[:, :2].T, np.ones(3)))
        points = np.stack((columns_, rows, np.ones_like(rows))).reshape(3, -1)
        share = np.linalg.solve(system, points).reshape(3, 16, 20)
        level = np.einsum("k,krc->rc", corners[:, 2], share)
        shows = (share > 0).all(0) & (level > nearest)
        expected[shows], nearest[shows] = index, level[shows]
    assert np.array_equal(number, expected)
    assert np.allclose(near, nearest, atol=1e-6)


def test_columns_are_a_closed_surface() -> None:
    rng = np.random.default_rng(0)
    bottom = rng.uniform(0, 0.05, (6, 5)).astype(np.float32)
    top = bottom + rng.uniform(0.001, 0.08, (6, 5)).astype(np.float32)
    hole = rng.random((6, 5)) < 0.3
    bottom[hole], top[hole] = np.inf, -np.inf
    expected = (top[~hole].astype(float) - bottom[~hole]).sum() * 0.01**2
    assert volume(columns(top, bottom, 0.01)) == pytest.approx(expected, rel=1e-6)


def test_solids_stand_in_their_columns(packing: Packing) -> None:
    library = {mesh.name: mesh for mesh in map(shapes.Shape.mesh, shapes.select())}
    drawn, coarse = packing.items, without_solids(packing).items
    for item, columns_ in zip(drawn, coarse, strict=True):
        solid, outer = triangles(item, packing.cell), triangles(columns_, packing.cell)
        mesh = library[item.name]
        assert np.allclose(solid, item.to_world(mesh.vertices.numpy()[mesh.faces.numpy()]))
        assert (solid.min((0, 1)) >= outer.min((0, 1)) - 1e-6).all()
        assert (solid.max((0, 1)) <= outer.max((0, 1)) + 1e-6).all()
        assert volume(solid) <= volume(outer) * (1 + 1e-6)


def test_grid_is_a_png(packing: Packing, tmp_path: Path) -> None:
    render.save_grid(
        tmp_path / "grid.png", [packing, packing.first(1), packing.first(2)], size=SIZE
    )
    with Image.open(tmp_path / "grid.png") as picture:
        assert picture.format == "PNG"
        assert min(picture.size) >= 2 * SIZE
    assert [p.name for p in tmp_path.iterdir()] == ["grid.png"]
    with pytest.raises(ValueError, match="packings is empty"):
        render.save_grid(tmp_path / "none.png", [])
    with pytest.raises(ValueError, match="1 titles for 2"):
        render.save_grid(tmp_path / "none.png", [packing, packing], titles=["one"])


def test_gif_has_a_frame_per_item(packing: Packing, tmp_path: Path) -> None:
    render.save_gif(tmp_path / "episode.gif", packing, size=SIZE)
    with Image.open(tmp_path / "episode.gif") as picture:
        assert picture.n_frames == len(packing.items) + 1
        assert picture.size == (SIZE, SIZE)


def test_a_foreign_loader_reads_the_glb(packing: Packing, tmp_path: Path) -> None:
    trimesh = pytest.importorskip("trimesh")
    render.save_glb(tmp_path / "packed.glb", packing)
    scene = trimesh.load(tmp_path / "packed.glb")
    names = set(scene.graph.nodes_geometry) - {"container"}
    assert len(names) == len(packing.items)
    shown = sum(len(scene.geometry[scene.graph[name][1]].faces) for name in names)
    assert shown == sum(len(triangles(item, packing.cell)) for item in packing.items)
    x, y, height = packing.container
    assert scene.extents == pytest.approx([x, height, y], abs=1e-6)  # y up


def test_html_escapes_titles_and_names(packing: Packing, tmp_path: Path) -> None:
    items = (dataclasses.replace(i, name="<b>&</script>") for i in packing.items)
    odd = dataclasses.replace(packing, items=tuple(items))
    render.save_html(tmp_path / "replay.html", odd, title="<Row> 1")
    page = (tmp_path / "replay.html").read_text(encoding="utf-8")
    assert "&lt;Row&gt; 1" in page
    assert page.count("</script>") == 1
    assert "default-src 'none'" in page  # the browser refuses every request
    assert not re.search(r"https?://|src=\"[^d]", page)


def test_failed_file_leaves_nothing(packing: Packing, tmp_path: Path) -> None:
    (tmp_path / "taken.png").mkdir()
    with pytest.raises(OSError, match="taken"):
        render.save_png(tmp_path / "taken.png", render.image(packing, SIZE))
    assert [p.name for p in tmp_path.iterdir()] == ["taken.png"]
