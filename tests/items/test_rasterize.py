"""Heightmaps: the reference, exact edges, thin parts, turns, offsets."""

import importlib
import json
import math
import pkgutil
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.mesh_files import CORNERS, FACES, box_mesh, tetrahedron

from packing_env import items
from packing_env.items import Mesh, load_mesh, mesh_from_arrays, rasterize, rasterize_many
from packing_env.items import rotation_set as rotations_at
from packing_env.reference import raster

EYE = torch.eye(3, dtype=torch.float64)


def _rotation(seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))
    return q * torch.linalg.det(q)


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


@settings(max_examples=100, deadline=None)
@given(
    st.one_of(
        _tetrahedra(st.integers(0, 3000).map(lambda k: k / 997.0)),
        _tetrahedra(st.integers(0, 6).map(lambda k: k / 2.0)),  # corners and walls on grid lines
    )
)
def test_maps_equal_the_reference(corners):
    mesh = _tetrahedron(corners)
    if mesh is None:
        return
    maps = rasterize(mesh, EYE, 1.0)
    points = (mesh.vertices - mesh.vertices.amin(0)).numpy()
    columns = raster.rasterize(points[mesh.faces.numpy()], 1.0)
    assert columns.corner == (0, 0)
    np.testing.assert_array_equal(maps.footprint.numpy(), columns.footprint)
    assert float(maps.offset[2]) == -float(mesh.vertices[:, 2].min())
    bottom = columns.bottom - columns.floor  # the lowest corner may be in no open cell
    for ours, reference in ((maps.top, columns.top), (maps.bottom, bottom)):
        np.testing.assert_allclose(ours.double().numpy(), reference, atol=3e-7)


@pytest.mark.parametrize(
    ("extent", "cells"), [(3.0 + 0.9e-6, 3), (3.0 - 0.9e-6, 3), (3.0 + 3e-6, 4), (2.1, 3), (0.2, 1)]
)
def test_extents_are_snapped_within_a_millionth_of_a_cell(extent, cells):
    maps = rasterize(box_mesh(extent, 1.0, 1.0), EYE, 1.0)
    assert maps.size == (cells, 1)
    assert bool(maps.footprint.all())


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("extent", [(0.001, 0.001, 0.1), (0.1, 0.1, 0.0002), (2e-6, 2e-6, 0.3)])
def test_needles_and_sheets_never_vanish(extent, seed):
    mesh = box_mesh(*extent, at=(0.0031, -0.0007, 0.1))
    for rotation in (EYE, _rotation(seed), rotations_at()[4 * seed]):
        maps = rasterize(mesh, rotation, 0.004)
        assert bool(maps.footprint.any())
        z = (rotation @ mesh.vertices.T)[2]
        height = float(z.max() - z.min())
        assert maps.peak == pytest.approx(height, abs=1e-6)
        columns = maps.footprint.any(1)  # connected: no hole along the needle
        assert bool(columns.all()) or bool(maps.footprint.any(0).all())


@pytest.mark.parametrize("outward", [True, False])
def test_a_fin_on_a_grid_line_is_kept(outward):
    """A wall without thickness at x = 2 on a slab: it belongs to the cell behind its face."""
    fin = [(2.0, 0.0, 1.0), (2.0, 4.0, 1.0), (2.0, 4.0, 3.0), (2.0, 0.0, 3.0)]
    faces = [(8, 9, 10), (8, 10, 11)]
    faces = faces if outward else [f[::-1] for f in faces]
    points = torch.cat([torch.tensor(CORNERS) * torch.tensor([4.0, 4.0, 1.0]), torch.tensor(fin)])
    mesh = mesh_from_arrays(points.double(), [*FACES, *faces])
    assert not mesh.watertight
    rows = rasterize(mesh, EYE, 1.0).top[:, 1].tolist()
    assert rows == ([1.0, 3.0, 1.0, 1.0] if outward else [1.0, 1.0, 3.0, 1.0])


def test_chunks_do_not_change_the_maps(monkeypatch):
    mesh, rotations = tetrahedron(), rotations_at("pi/4")[:40]
    whole = rasterize_many(mesh, rotations, 0.003)
    monkeypatch.setattr(sys.modules[rasterize.__module__], "CHUNK", 7)
    for a, b in zip(whole, rasterize_many(mesh, rotations, 0.003), strict=True):
        assert torch.equal(a.top, b.top)
        assert torch.equal(a.bottom, b.bottom)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_maps_on_the_gpu_equal_those_on_the_cpu():
    mesh, rotations = tetrahedron(), rotations_at("pi/4")
    there = rasterize_many(mesh, rotations, 0.003, device="cuda")
    for a, b in zip(rasterize_many(mesh, rotations, 0.003), there, strict=True):
        assert b.top.is_cuda
        assert torch.allclose(a.top, b.top.cpu(), atol=1e-7)
        assert torch.allclose(a.bottom, b.bottom.cpu(), atol=1e-7)
        assert math.isclose(a.column_volume, b.column_volume, rel_tol=1e-6)


def test_names_of_the_package_are_no_modules() -> None:
    # Importing a module sets an attribute of its package, whatever had that name before.
    for module in pkgutil.walk_packages(items.__path__, f"{items.__name__}."):
        importlib.import_module(module.name)
    assert not [name for name in items.__all__ if isinstance(getattr(items, name), ModuleType)]
