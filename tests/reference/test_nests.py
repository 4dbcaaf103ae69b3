"""Nests: distances, crossings and ways out of solids equal exact arithmetic and `manifold3d`."""

import math
import os
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from packing_env.items import load_mesh
from packing_env.reference.checker import check
from packing_env.reference.claims import ItemClaim, PlanClaim
from packing_env.reference.solids import Solid, matrix, measure
from packing_env.reference.surfaces import Surface, are_near, cross, distances, is_inside, pairs

UNIT = 0.01
SIDE = 4.0
MIDDLE = np.full(3, SIDE / 2)
MESHES = Path(os.environ.get("PACKING_DATA", "")) / "meshes"
NAMES = (
    "mujoco_mug.obj",
    "trimesh_angle_block.stl",
    "ycb_011_banana.obj",
    "esicup_shapes_piece1.obj",
)


def turn(rng: np.random.Generator) -> np.ndarray:
    quaternion = rng.normal(size=4)
    return matrix(quaternion / np.linalg.norm(quaternion))


def block(low: Sequence[float], high: Sequence[float]) -> Solid:
    """Return a box between two corners, in units."""
    box = Solid.box(tuple(UNIT * (np.array(high) - low)))
    return Solid(box.vertices + UNIT * np.array(low), box.faces)


def placed(solid: Solid, rotation: Any = None, move: Any = MIDDLE, **claims: Any) -> ItemClaim:
    """Return a true claim about a solid in its place."""
    rotation = np.eye(3) if rotation is None else rotation
    low = (solid.vertices @ rotation.T + move).min(0)
    return ItemClaim(
        **{
            "order": 0,
            "name": "part",
            "solid": solid,
            "rotation": rotation,
            "translation": np.array(move),
            "corner": (round(low[0]), round(low[1])),
            "z": float(low[2]),
            "support_ratio": 0.0,
            "volume": measure(solid)[0],
            **claims,
        }
    )


def nest(*items: ItemClaim, **claims: Any) -> PlanClaim:
    items = tuple(replace(item, order=order) for order, item in enumerate(items))
    plan = PlanClaim((SIDE,) * 3, 1.0, "none", items, len(items), geometry="solids")
    return replace(plan, **claims)


def verdict(*items: ItemClaim, **constraints: float) -> tuple[int | None, str] | None:
    """Return the item and the claim of the first violation."""
    violation = check(nest(*items, constraints=constraints)).violation
    return violation and (violation.item, violation.claim)


@pytest.mark.parametrize("seed", range(4))
def test_boxes_on_a_lattice_equal_exact_arithmetic(seed: int) -> None:
    """The boxes often touch, share planes and edges, or are equal; all is turned as a whole."""
    rng = np.random.default_rng(seed)
    rotation = np.eye(3) if seed % 2 == 0 else turn(rng)
    for _ in range(60):
        low = rng.integers(0, 4, (2, 3))
        high = low + rng.integers(1, 4, (2, 3))
        first, second = (placed(block(*ends), rotation) for ends in zip(low, high, strict=True))
        shared = high.min(0) - low.max(0)
        distance = UNIT * math.sqrt((np.maximum(-shared, 0) ** 2).sum())
        apart = None if (shared <= 0).any() else (1, "interpenetration")
        assert verdict(first, second) == apart, (low, high)

        least = UNIT * math.sqrt(rng.integers(1, 4))
        near = None if distance >= least - 1e-12 else (1, "clearance")
        assert verdict(first, second, clearance=least, wall_clearance=0.0) == apart or near
        if apart is None and seed % 2 == 0:
            axis, sign = int(rng.integers(3)), int(rng.choice([-1, 1]))
            ahead = low[0, axis] >= high[1, axis] if sign > 0 else high[0, axis] <= low[1, axis]
            in_way = ahead and (np.delete(shared, axis) > 0).all()
            moved = replace(second, leaves="-+"[sign > 0] + "xyz"[axis])
            assert verdict(first, moved) == ((1, "leaves") if in_way else None), (low, high)


BARS = {
    "crossing bars": (block((-1, 0, 0), (2, 1, 1)), block((0, -1, 0), (1, 2, 1))),
    "a bar through a cube": (block((-1, 0, 0), (2, 1, 1)), block((0, 0, 0), (1, 1, 1))),
    "equal cubes": (block((0, 0, 0), (1, 1, 1)), block((0, 0, 0), (1, 1, 1))),
    "a cube in a corner of another": (block((0, 0, 0), (3, 3, 3)), block((0, 0, 0), (1, 1, 1))),
    "a cube around another": (block((1, 1, 1), (2, 2, 2)), block((0, 0, 0), (3, 3, 3))),
    "a cube below a face": (block((0, 0, 0), (3, 3, 3)), block((1, 1, 2), (2, 2, 3))),
}


@pytest.mark.parametrize("name", BARS)
def test_solids_with_common_planes_interpenetrate(name: str) -> None:
    rotation = turn(np.random.default_rng(5))
    for clearance in (0.0, UNIT / 2):
        for turned in (np.eye(3), rotation):
            items = [placed(solid, turned) for solid in BARS[name]]
            assert verdict(*items, clearance=clearance) == (1, "interpenetration")
            assert verdict(*items[::-1], clearance=clearance) == (1, "interpenetration")


def split(solid: Solid) -> Solid:
    """Return a solid whose triangles are split into four."""
    corners = solid.vertices[solid.faces]
    a, b, c = np.moveaxis(corners, 1, 0)
    ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
    parts = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
    points = np.concatenate([np.stack(part, 1) for part in parts]).reshape(-1, 3)
    vertices, faces = np.unique(points.round(12), axis=0, return_inverse=True)
    return Solid(vertices, faces.reshape(-1, 3))


def test_fine_triangles_change_no_verdict() -> None:
    rng = np.random.default_rng(10)
    for _ in range(30):
        low = 2 * rng.integers(0, 4, (2, 3))
        high = low + 2 * rng.integers(1, 4, (2, 3))
        solids = [block(*ends) for ends in zip(low, high, strict=True)]
        for direction in ("+x", "-z"):
            plain = [placed(solid, leaves=direction) for solid in solids]
            fine = [placed(split(split(solid)), leaves=direction) for solid in solids]
            assert verdict(*plain[:1], *fine[1:]) == verdict(*plain) == verdict(*fine)


# ------------------------------------------------------------------ meshes


@pytest.fixture(scope="module")
def meshes() -> list[Solid]:
    if not MESHES.is_dir():
        pytest.skip("no folder of test meshes")
    loaded = [load_mesh(MESHES / name, "m") for name in NAMES]
    return [Solid(mesh.vertices.numpy(), mesh.faces.numpy()) for mesh in loaded]


def test_distances_of_meshes_equal_manifold(meshes: list[Solid]) -> None:
    manifold3d = pytest.importorskip("manifold3d")

    def exact(points: np.ndarray, faces: np.ndarray) -> Any:
        return manifold3d.Manifold(manifold3d.Mesh64(points, faces.astype(np.uint64)))

    rng = np.random.default_rng(0)
    crossing = 0
    for number in range(20):
        one, two = (meshes[i] for i in rng.integers(len(meshes), size=2))
        first = one.vertices @ turn(rng).T
        second = two.vertices @ turn(rng).T + rng.uniform(-0.06, 0.06, 3)
        reach = 0.01
        least = exact(first, one.faces).min_gap(exact(second, two.faces), reach)
        surfaces = Surface(first[one.faces]), Surface(second[two.faces])
        found, crosses = reach, False
        for i, j in pairs(*surfaces, np.full(3, reach), np.full(3, reach)):
            near = surfaces[0].triangles[i], surfaces[1].triangles[j]
            apart = distances(*near)
            assert (apart[~are_near(*near, reach / 2)] > reach / 2).all()
            found = min(found, float(apart.min()))
            crosses |= bool(cross(*near, 1e-9).any())
        crosses |= bool(is_inside(first[:1], surfaces[1].triangles)[0])
        crosses |= bool(is_inside(second[:1], surfaces[0].triangles)[0])
        assert (least == 0.0) == crosses, number
        assert crosses or found == pytest.approx(least, abs=1e-12)
        crossing += crosses
    assert 0 < crossing < 20


@pytest.mark.parametrize("further", [-1e-5, -2e-9, 0.0, 1e-5])
def test_a_hundredth_of_a_millimetre_is_measured(meshes: list[Solid], further: float) -> None:
    """A mug faces its mirror image; the nearest points are its farthest point and the image's."""
    mug = meshes[0]
    image = Solid(mug.vertices * [-1, 1, 1], mug.faces[:, ::-1])
    gap = 2 * float(mug.vertices[:, 0].max()) + 0.002 + further
    items = placed(mug), placed(image, move=MIDDLE + np.array([gap, 0, 0]))
    violation = check(nest(*items, constraints={"clearance": 0.002})).violation
    if further >= 0.0:
        assert violation is None
        return
    assert violation is not None
    assert (violation.item, violation.claim) == (1, "clearance")
    assert f"{-1e6 * further:.4g} micrometres" in violation.found
    assert "item 0 (part)" in violation.found


def test_memory_does_not_grow_with_all_pairs_of_blocks() -> None:
    """The table of all pairs of blocks would take 37 MiB for each axis."""
    corners = np.random.default_rng(0).uniform(0.0, 1.0, (200_000, 1, 3))
    surface = Surface(corners + 1e-4 * np.eye(3))
    tracemalloc.start()
    next(pairs(surface, surface, np.zeros(3), np.zeros(3)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 * 2**20
