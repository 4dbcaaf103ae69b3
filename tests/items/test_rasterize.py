"""Height maps: references, a plain clipping program, exact edges, thin parts, turns, offsets."""

import json
import math
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from packing_env.items import Mesh, load_mesh, mesh_from_arrays, rasterize, rasterize_many
from packing_env.items import rotation_set as rotations_at
from packing_env.items.rasterize import CELL_MARGIN, rasterize_cuboid

EYE = torch.eye(3, dtype=torch.float64)
BOX = torch.tensor([[x, y, z] for x in (0.0, 1) for y in (0.0, 1) for z in (0.0, 1)]).double()
BOX_FACES = torch.tensor(
    [
        *([0, 1, 3], [0, 3, 2], [4, 6, 7], [4, 7, 5], [0, 4, 5], [0, 5, 1]),
        *([2, 3, 7], [2, 7, 6], [0, 2, 6], [0, 6, 4], [1, 5, 7], [1, 7, 3]),
    ]
)


def _box(dx: float, dy: float, dz: float, at=(0.0, 0.0, 0.0)) -> Mesh:
    corners = BOX * torch.tensor([dx, dy, dz]).double() + torch.tensor(at).double()
    return mesh_from_arrays(corners, BOX_FACES)


def _rotation(seed: int) -> torch.Tensor:
    """A random rotation."""
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))
    return q * torch.linalg.det(q)


def _clip(polygon: list, axis: int, bound: float, sign: float) -> list:
    """Sutherland and Hodgman: the part of a polygon with sign * coordinate <= sign * bound."""
    out = []
    for p, q in zip(polygon, polygon[1:] + polygon[:1], strict=True):
        inside_p, inside_q = sign * p[axis] <= sign * bound, sign * q[axis] <= sign * bound
        if inside_p:
            out.append(p)
        if inside_p != inside_q:
            t = (bound - p[axis]) / (q[axis] - p[axis])
            crossing = [a + t * (b - a) for a, b in zip(p, q, strict=True)]
            crossing[axis] = bound
            out.append(crossing)
    return out


def _plain_maps(points: torch.Tensor, faces: torch.Tensor, margin: float):
    """Top and bottom over the lowest point, by clipping triangles to unit cells in plain loops."""
    points = points - points.amin(0)
    size = torch.ceil(points.amax(0)[:2] - CELL_MARGIN).clamp(min=1).int().tolist()
    top = np.full(size, -np.inf)
    bottom = np.full(size, np.inf)
    for triangle in points[faces].tolist():
        for u in range(size[0]):
            for v in range(size[1]):
                polygon = triangle
                for axis, low in ((0, u), (1, v)):
                    polygon = _clip(polygon, axis, low + margin, -1.0)
                    polygon = _clip(polygon, axis, low + 1.0 - margin, 1.0)
                heights = [p[2] for p in polygon]
                top[u, v] = max([top[u, v], *heights])
                bottom[u, v] = min([bottom[u, v], *heights])
    return top, bottom


def _references(data_dir):
    index = json.loads((data_dir / "reference" / "index.json").read_text())
    manifest = json.loads((data_dir / "manifest.json").read_text())["meshes"]
    files = {entry["name"]: data_dir / entry["file"] for entry in manifest}
    assert len(index["files"]) >= 9
    for entry in index["files"]:
        yield np.load(data_dir / entry["file"]), load_mesh(files[entry["mesh"]]), index["cell_m"]


def test_reference_heightmaps_hold_within_the_conservative_bounds(data_dir):
    for arrays, mesh, cell in _references(data_dir):
        maps = rasterize(mesh, torch.from_numpy(arrays["R"]), cell)
        top, bottom = maps.top.numpy(), maps.bottom.numpy()
        assert top.shape == arrays["top_cell_inner"].shape
        inner, outer = ~np.isnan(arrays["top_cell_inner"]), ~np.isnan(arrays["top_cell_outer"])
        assert maps.footprint.numpy()[inner].all()
        assert not maps.footprint.numpy()[~outer].any()
        assert (arrays["top_cell_inner"] - 1e-5 <= top)[inner].all()
        assert (top <= arrays["top_cell_outer"] + 1e-5)[outer & maps.footprint.numpy()].all()
        assert (bottom <= arrays["bot_cell_inner"] + 1e-5)[inner].all()
        assert (arrays["bot_cell_outer"] - 1e-5 <= bottom)[outer].all()


def _tetrahedra(coordinates):
    return st.lists(st.tuples(coordinates, coordinates, coordinates), min_size=4, max_size=4)


def _tetrahedron(corners) -> Mesh | None:
    points = torch.tensor(corners, dtype=torch.float64)
    volume = float(torch.linalg.det(points[1:] - points[0]))
    if not abs(volume) > 1e-3:
        return None
    faces = torch.tensor([[0, 2, 1], [0, 1, 3], [1, 2, 3], [2, 0, 3]])
    return mesh_from_arrays(points, faces if volume > 0 else faces.flip(1))


def _above_lowest(mesh: Mesh) -> tuple[np.ndarray, np.ndarray]:
    """Our maps in unit cells, above the lowest point of the solid."""
    maps = rasterize(mesh, EYE, 1.0)
    floor = float(maps.offset[2] + mesh.vertices[:, 2].min())
    return maps.top.double().numpy() - floor, maps.bottom.double().numpy() - floor


@settings(max_examples=150, deadline=None)
@given(corners=_tetrahedra(st.integers(0, 3000).map(lambda k: k / 997.0)))
def test_maps_equal_a_plain_clipping_program(corners):
    mesh = _tetrahedron(corners)
    if mesh is None:
        return
    plan = mesh.vertices[:, :2] - mesh.vertices[:, :2].amin(0)
    same_line = (plan[mesh.faces].amax(1) - plan[mesh.faces].amin(1)) < 1e-3
    if bool(same_line.any()):
        return  # walls along the grid: the next test
    for ours, plain in zip(
        _above_lowest(mesh), _plain_maps(mesh.vertices, mesh.faces, CELL_MARGIN), strict=True
    ):
        np.testing.assert_array_equal(np.isfinite(ours), np.isfinite(plain))
        np.testing.assert_allclose(ours, plain, atol=3e-7)


@settings(max_examples=150, deadline=None)
@given(corners=_tetrahedra(st.integers(0, 6).map(lambda k: k / 2.0)))
def test_maps_lie_between_open_and_closed_cells(corners):
    """Vertices and walls on grid lines: at least the open cells, at most the closed ones."""
    mesh = _tetrahedron(corners)
    if mesh is None:
        return
    top, bottom = _above_lowest(mesh)
    inner_top, inner_bottom = _plain_maps(mesh.vertices, mesh.faces, CELL_MARGIN)
    outer_top, outer_bottom = _plain_maps(mesh.vertices, mesh.faces, -CELL_MARGIN)
    np.testing.assert_array_equal(np.isfinite(top), np.isfinite(inner_top))
    assert (inner_top - 3e-7 <= top).all()
    assert (top <= outer_top + 3e-7).all()
    assert (outer_bottom - 3e-7 <= bottom).all()
    assert (bottom <= inner_bottom + 3e-7).all()
    near = np.isfinite(top)
    assert (top[near] <= inner_top[near] + 1e-4).all()
    assert (bottom[near] >= inner_bottom[near] - 1e-4).all()


@pytest.mark.parametrize("shift", [0.0, 0.1, -7.3, 1000.01])
@pytest.mark.parametrize("cell", [0.01, 0.004, 0.1, 1.0])
def test_a_cube_of_three_cells_covers_three_cells(cell, shift):
    maps = rasterize(_box(3 * cell, 3 * cell, 3 * cell, at=(shift,) * 3), EYE, cell)
    assert maps.size == (3, 3)
    assert torch.equal(maps.bottom, torch.zeros(3, 3))
    assert torch.allclose(maps.top, torch.full((3, 3), 3 * cell))


@pytest.mark.parametrize(
    ("extent", "cells"), [(3.0 + 0.9e-6, 3), (3.0 - 0.9e-6, 3), (3.0 + 3e-6, 4), (2.1, 3), (0.2, 1)]
)
def test_extents_are_snapped_within_a_millionth_of_a_cell(extent, cells):
    maps = rasterize(_box(extent, 1.0, 1.0), EYE, 1.0)
    assert maps.size == (cells, 1)
    assert bool(maps.footprint.all())


def test_a_step_on_a_grid_line_stays_on_its_side():
    """An L: 2 x 1 cells of height 1, and a second storey on the first cell only."""
    plan = [(0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)]
    points = [(x, 0, z) for x, z in plan] + [(x, 1, z) for x, z in plan]
    caps = [(0, 1, 2), (0, 2, 3), (0, 3, 5), (3, 4, 5)]
    faces = [*caps, *(tuple(i + 6 for i in reversed(f)) for f in caps)]
    for i in range(6):
        j = (i + 1) % 6
        faces += [(j, i, i + 6), (j, i + 6, j + 6)]
    mesh = mesh_from_arrays(points, faces)
    assert (mesh.volume, mesh.warnings) == (pytest.approx(3.0), ())
    maps = rasterize(mesh, EYE, 1.0)
    assert maps.top.tolist() == [[2.0], [1.0]]
    assert maps.bottom.tolist() == [[0.0], [0.0]]
    upside_down = rasterize(mesh, rotations_at()[4], 1.0)
    assert upside_down.top.tolist() == [[2.0], [2.0]]
    assert upside_down.bottom.tolist() == [[0.0], [1.0]]


def test_a_wedge_takes_the_plane_at_the_far_edges_of_each_cell():
    points = [(0, 0, 0), (4, 0, 0), (4, 0, 2), (0, 2, 0), (4, 2, 0), (4, 2, 2)]
    faces = [(0, 1, 2), (3, 5, 4), (0, 3, 4), (0, 4, 1), (1, 4, 5), (1, 5, 2), (0, 2, 5), (0, 5, 3)]
    wedge = mesh_from_arrays(points, faces)
    assert wedge.volume == pytest.approx(8.0)
    maps = rasterize(wedge, EYE, 1.0)
    assert maps.top[:, 0].tolist() == pytest.approx([0.5, 1.0, 1.5, 2.0], abs=2e-6)
    turned_over = rasterize(wedge, rotations_at()[4], 1.0)  # the slope is below now
    assert turned_over.bottom[:, 0].tolist() == pytest.approx([1.5, 1.0, 0.5, 0.0], abs=2e-6)


def test_a_sphere_is_enclosed_and_tight():
    n = 64
    angle = np.linspace(0, np.pi, n + 1)
    ring = 2 * np.pi * np.arange(n) / n
    points = [(0.0, 0.0, 1.0)]
    for a in angle[1:-1]:
        points += [(np.sin(a) * np.cos(b), np.sin(a) * np.sin(b), np.cos(a)) for b in ring]
    points.append((0.0, 0.0, -1.0))
    faces = [(0, 1 + i, 1 + (i + 1) % n) for i in range(n)]
    for k in range(n - 2):
        low, high = 1 + k * n, 1 + (k + 1) * n
        for i in range(n):
            j = (i + 1) % n
            faces += [(low + i, high + i, high + j), (low + i, high + j, low + j)]
    last = len(points) - 1
    faces += [(last, last - n + (i + 1) % n, last - n + i) for i in range(n)]
    sphere = mesh_from_arrays(points, faces)
    maps = rasterize(sphere, EYE, 0.1)
    assert maps.size == (20, 20)
    edges = torch.arange(21) * 0.1 - 1.0
    nearest = torch.where((edges[:-1] < -1e-6), edges[1:].clamp(max=0.0), edges[:-1])
    distance = (nearest[:, None] ** 2 + nearest[None] ** 2).double()
    exact = 1.0 + (1.0 - distance).clamp(min=0.0).sqrt()
    inside = distance < 0.99
    assert bool(maps.footprint[inside].all())
    error = (maps.top.double() - exact)[inside]
    assert float(error.min()) > -0.01
    assert float(error.max()) < 1e-6
    assert torch.allclose(maps.bottom[inside], (2.0 - maps.top)[inside], atol=1e-5)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("extent", [(0.001, 0.001, 0.1), (0.1, 0.1, 0.0002), (2e-6, 2e-6, 0.3)])
def test_needles_and_sheets_never_vanish(extent, seed):
    mesh = _box(*extent, at=(0.0031, -0.0007, 0.1))
    for rotation in (EYE, _rotation(seed), rotations_at()[4 * seed]):
        maps = rasterize(mesh, rotation, 0.004)
        assert bool(maps.footprint.any())
        z = (rotation @ mesh.vertices.T)[2]
        height = float(z.max() - z.min())
        assert maps.peak == pytest.approx(height, abs=1e-6)
        columns = maps.footprint.any(1)  # connected: no hole along the needle
        assert bool(columns.all()) or bool(maps.footprint.any(0).all())


def test_a_solid_thinner_than_the_margin_keeps_its_height():
    maps = rasterize(_box(50.0, 5e-6, 2.0), EYE, 10.0)
    assert maps.size == (5, 1)
    assert torch.equal(maps.top, torch.full((5, 1), 2.0))


@pytest.mark.parametrize("outward", [True, False])
def test_a_fin_on_a_grid_line_is_kept(outward):
    """A wall without thickness at x = 2 on a slab: it belongs to the cell behind its face."""
    fin = [(2.0, 0.0, 1.0), (2.0, 4.0, 1.0), (2.0, 4.0, 3.0), (2.0, 0.0, 3.0)]
    faces = [(8, 9, 10), (8, 10, 11)]
    faces = faces if outward else [f[::-1] for f in faces]
    points = torch.cat([BOX * torch.tensor([4.0, 4.0, 1.0]), torch.tensor(fin)])
    mesh = mesh_from_arrays(points.double(), torch.cat([BOX_FACES, torch.tensor(faces)]))
    assert not mesh.watertight
    rows = rasterize(mesh, EYE, 1.0).top[:, 1].tolist()
    assert rows == ([1.0, 3.0, 1.0, 1.0] if outward else [1.0, 1.0, 3.0, 1.0])


def _irregular() -> Mesh:
    """A tetrahedron whose bounding box is 5 x 3 x 4 cells of 0.01."""
    points = [(0.0, 0.0, 0.013), (0.05, 0.01, 0.0), (0.02, 0.03, 0.04), (0.03, 0.0, 0.03)]
    return mesh_from_arrays(points, [(0, 2, 1), (0, 1, 3), (1, 2, 3), (2, 0, 3)])


def test_quarter_turns_of_the_solid_turn_the_maps():
    """Whole-cell extents: turning on the grid equals rasterising the turned solid."""
    mesh, rotations = _irregular(), rotations_at()
    assert mesh.volume_reliable
    for rotation, turned in zip(rotations, rasterize_many(mesh, rotations, 0.01), strict=True):
        alone = rasterize(mesh, rotation, 0.01)
        assert torch.equal(turned.rotation, rotation)
        assert turned.size == alone.size
        assert torch.allclose(turned.top, alone.top, atol=1e-7)
        assert torch.allclose(turned.bottom, alone.bottom, atol=1e-7)
        assert torch.allclose(turned.offset, alone.offset, atol=1e-7)
        assert torch.equal(turned.footprint, alone.footprint)


def test_mirrored_solids_have_mirrored_maps():
    mesh = _irregular()
    mirrored = mesh_from_arrays(mesh.vertices * torch.tensor([-1.0, 1.0, 1.0]), mesh.faces.flip(1))
    here, there = rasterize(mesh, EYE, 0.01), rasterize(mirrored, EYE, 0.01)
    assert torch.allclose(here.top.flip(0), there.top, atol=1e-7)
    assert torch.allclose(here.bottom.flip(0), there.bottom, atol=1e-7)


@pytest.mark.parametrize("interval", ["pi/2", "pi/4"])
def test_points_of_the_solid_lie_between_the_maps(interval):
    """rotation @ p + offset, for points all over the surface, in all orientations."""
    cell = 0.007  # no extent is a multiple of it
    mesh = _irregular()
    weights = torch.rand(400, 3, generator=torch.Generator().manual_seed(1)).double()
    weights /= weights.sum(1, keepdim=True)
    surface = torch.einsum("wk,fkx->wfx", weights, mesh.vertices[mesh.faces]).reshape(-1, 3)
    surface = torch.cat([surface, mesh.vertices])
    rotations = rotations_at(interval)
    for rotation, maps in zip(rotations, rasterize_many(mesh, rotations, cell), strict=True):
        assert torch.allclose(maps.rotation, rotation, atol=1e-12)
        points = surface @ maps.rotation.T + maps.offset
        grid = points[:, :2] / cell
        share = grid - grid.floor()
        clear = ((share > 1e-5) & (share < 1 - 1e-5)).all(1)
        u, v = grid[clear].long().unbind(1)
        z = points[clear, 2]
        assert int(u.min()) >= 0
        assert bool((maps.bottom[u, v] <= z + 1e-7).all())
        assert bool((z <= maps.top[u, v] + 1e-7).all())
        assert float(maps.bottom.min()) == 0.0
        assert bool((maps.top[maps.footprint] >= maps.bottom[maps.footprint]).all())
        assert bool(torch.isneginf(maps.top[~maps.footprint]).all())
        assert maps.column_volume >= mesh.volume


def test_no_cell_is_covered_without_need():
    """A cell is in the footprint only if the solid's plan reaches into it."""
    mesh = _irregular()
    maps = rasterize(mesh, EYE, 0.002)
    fine = rasterize(mesh, EYE, 0.0005)
    u, v = maps.size
    coarse = torch.zeros(u, v, dtype=torch.bool)
    for i, j in fine.footprint.nonzero().tolist():
        coarse[i // 4, j // 4] = True
    assert torch.equal(coarse, maps.footprint)


def test_a_box_without_a_mesh_equals_the_mesh():
    rotations = rotations_at()
    for extent in [
        (0.03, 0.02, 0.01),
        (0.031, 0.0222, 0.0004),
        (0.5, 0.1, 0.07),
        (1 / 3, 0.2, 0.1),
    ]:
        direct = rasterize_cuboid(torch.tensor(extent).double(), rotations, 0.01)
        for box, mesh in zip(direct, rasterize_many(_box(*extent), rotations, 0.01), strict=True):
            assert torch.equal(box.top, mesh.top)
            assert torch.equal(box.bottom, mesh.bottom)
            assert torch.equal(box.offset, mesh.offset)
            assert torch.equal(box.rotation, mesh.rotation)


def test_chunks_do_not_change_the_maps(monkeypatch):
    mesh, rotations = _irregular(), rotations_at("pi/4")[:40]
    whole = rasterize_many(mesh, rotations, 0.003)
    monkeypatch.setattr(sys.modules[rasterize.__module__], "CHUNK", 7)
    for a, b in zip(whole, rasterize_many(mesh, rotations, 0.003), strict=True):
        assert torch.equal(a.top, b.top)
        assert torch.equal(a.bottom, b.bottom)


def test_invalid_cells_and_huge_windows_raise():
    with pytest.raises(ValueError, match="cell must be positive"):
        rasterize(_irregular(), EYE, 0.0)
    with pytest.raises(ValueError, match="check the unit"):
        rasterize(_box(100.0, 100.0, 1.0), EYE, 0.001)


def test_inputs_are_not_changed():
    mesh, rotation = _irregular(), _rotation(3)
    before = mesh.vertices.clone(), rotation.clone()
    rasterize(mesh, rotation, 0.01)
    assert torch.equal(mesh.vertices, before[0])
    assert torch.equal(rotation, before[1])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_maps_on_the_gpu_equal_those_on_the_cpu():
    mesh, rotations = _irregular(), rotations_at("pi/4")
    there = rasterize_many(mesh, rotations, 0.003, device="cuda")
    for a, b in zip(rasterize_many(mesh, rotations, 0.003), there, strict=True):
        assert b.top.is_cuda
        assert torch.allclose(a.top, b.top.cpu(), atol=1e-7)
        assert torch.allclose(a.bottom, b.bottom.cpu(), atol=1e-7)
        assert math.isclose(a.column_volume, b.column_volume, rel_tol=1e-6)
