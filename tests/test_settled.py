"""Settled plans: items touch what is below them, by exact solids, and `packing check` says so."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plan_files import checked, refused
from tests.test_plan import pack

import packing_env as pe
from packing_env.physics import read_settings, simulate
from packing_env.plan import (
    Packing,
    load_plan,
    make_plan,
    packing_of,
    save_plan,
    settle,
)
from packing_env.plan.drop import CONTACT, Ground
from packing_env.plan.solids import solid_of
from packing_env.reference.solids import Solid

NARROW = 4e-8
UP = np.array([0.0, 0.0, 1.0])
Plan = dict[str, Any]


@pytest.fixture(scope="module")
def packing() -> Packing:
    """Return a packing of embedded shapes, not settled."""
    return packing_of(pack(resolution=32, num_items=12))


@pytest.fixture(scope="module")
def plan(packing: Packing) -> Plan:
    return make_plan(settle(packing))


def box(x: float, y: float, z: float, dx: float, dy: float, dz: float) -> np.ndarray:
    solid = Solid.box((dx, dy, dz))
    return (solid.vertices + np.array([x, y, z]))[solid.faces]


def ground(*solids: np.ndarray) -> Ground:
    found = Ground((1.0, 1.0, 1.0), [])
    for solid in solids:
        found.put(solid)
    return found


# ------------------------------------------------------------------ the distance


def test_a_box_falls_on_the_highest_box_that_it_covers() -> None:
    below = ground(box(0, 0, 0, 0.2, 0.2, 0.1), box(0.3, 0, 0, 0.2, 0.2, 0.15))
    drop = below.drop(box(0.1, 0, 0.4, 0.3, 0.2, 0.1), NARROW)
    assert drop.distance == pytest.approx(0.25, abs=1e-15)
    assert sorted(drop.contacts[:, 0].round(12).tolist()) == [0.3, 0.3, 0.4, 0.4]


def test_distances_are_those_along_many_lines() -> None:
    """Random bowls on a hill: no line is shorter than the distance, and one nearly is."""
    rng = np.random.default_rng(0)
    for trial in range(5):
        hill, bowl = (cap(rng, -1.0), cap(rng, 1.0) + UP)
        drop = ground(hill).drop(bowl, NARROW)
        x, y = rng.uniform(0, 1, (2, 3000))
        over, under = (above(solid, x, y) for solid in (bowl, hill))
        gaps = over - np.maximum(under, 0.0)
        assert drop.distance <= gaps.min() + 1e-12, trial
        assert drop.distance >= gaps.min() - 0.02
        for corner in drop.contacts:
            at = corner[:1], corner[1:2]
            gap = above(bowl, *at) - np.maximum(above(hill, *at), 0.0)
            assert gap[0] - drop.distance <= CONTACT + 1e-9


def cap(rng: np.random.Generator, sign: float) -> np.ndarray:
    """Return a surface over the unit square: random heights on a grid of 6 x 6."""
    side = np.linspace(0, 1, 6)
    x, y = np.meshgrid(side, side, indexing="ij")
    z = sign * ((x - 0.5) ** 2 + (y - 0.5) ** 2) + 0.2 * rng.uniform(size=x.shape)
    points = np.stack((x, y, z + (0.3 if sign < 0 else 0)), -1)
    a, b, c, d = (
        points[i : i + 5, j : j + 5].reshape(-1, 3) for i, j in ((0, 0), (1, 0), (1, 1), (0, 1))
    )
    return np.concatenate((np.stack((a, b, c), 1), np.stack((a, c, d), 1)))


def above(solid: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the heights of a surface over points, by barycentric coordinates."""
    a, b, c = np.moveaxis(solid[:, :, :, None], 1, 0)
    total = (b[:, 0] - a[:, 0]) * (c[:, 1] - a[:, 1]) - (b[:, 1] - a[:, 1]) * (c[:, 0] - a[:, 0])
    v = ((x - a[:, 0]) * (c[:, 1] - a[:, 1]) - (y - a[:, 1]) * (c[:, 0] - a[:, 0])) / total
    w = ((b[:, 0] - a[:, 0]) * (y - a[:, 1]) - (b[:, 1] - a[:, 1]) * (x - a[:, 0])) / total
    z = a[:, 2] + v * (b[:, 2] - a[:, 2]) + w * (c[:, 2] - a[:, 2])
    return np.where((v >= -1e-9) & (w >= -1e-9) & (v + w <= 1 + 1e-9), z, -np.inf).max(0)


# ------------------------------------------------------------------ packings


def test_items_sink_and_touch(packing: Packing) -> None:
    settled = settle(packing)
    falls = [item.z_grid - item.z for item in settled.items]
    assert max(falls) > 1e-3
    assert min(falls) >= 0.0
    for before, after, fall in zip(packing.items, settled.items, falls, strict=True):
        assert after.z_grid == before.z
        assert abs(after.gap) <= 1e-6
        assert np.allclose(before.translation - after.translation, (0, 0, fall), atol=1e-15)
        assert len(after.contacts) >= 1
    assert {item.balanced for item in settled.items} == {True, False}
    assert settle(settled) is settled


def test_solids_touch_and_do_not_enter_each_other_exactly(packing: Packing) -> None:
    manifold3d = pytest.importorskip("manifold3d")
    settled = settle(packing)
    solids = []
    for item in settled.items:
        solid = solid_of(item, Path())
        points = solid.vertices @ item.rotation.T + item.translation
        mesh = manifold3d.Mesh64(points, solid.faces.astype(np.uint64))
        solids.append(manifold3d.Manifold(mesh))
    floor = manifold3d.Manifold.cube((1, 1, 1)).translate((-0.2, -0.2, -1))
    for order, solid in enumerate(solids):
        lower = solid.translate((0, 0, -5e-6))
        below = [floor, *solids[:order]]
        for piece in (p for other in below for p in (solid ^ other).decompose()):
            low, high = np.reshape(piece.bounding_box(), (2, 3))
            assert (high - low).min() < 1e-6
        assert sum((lower ^ other).volume() for other in below) > 0.0


def test_cuboids_of_whole_cells_stay_as_they_are() -> None:
    env = pe.make_env("cuboid_online", num_envs=1, seed=0, pool_size=4)
    td = env.reset()
    for _ in range(6):
        td["action"] = td["action_mask"].int().argmax(1)
        td = env.step(td)["next"]
    packing = packing_of(env)
    assert settle(packing) is packing


# ------------------------------------------------------------------ plans


def test_a_settled_plan_survives_json_and_holds(
    packing: Packing, plan: Plan, tmp_path: Path
) -> None:
    assert save_plan(tmp_path / "plan.json", packing) == plan
    assert make_plan(load_plan(tmp_path / "plan.json")) == plan
    assert save_plan(tmp_path / "grid.json", packing, settled=False) == make_plan(packing)
    report = checked(plan, tmp_path)
    assert report.holds, report.violation
    assert report.settled == report.items == len(plan["items"])
    assert report.balanced == sum(item["balanced"] for item in plan["items"])
    assert checked(make_plan(packing), tmp_path).settled == 0


def lift(item: Plan, height: float) -> None:
    """Change the settled place of an item."""
    item["z"] += height
    item["translation"][2] += height
    for point in item["contacts"]:
        point[2] += height


def spread(item: Plan) -> None:
    item["contacts"][0][0] += 0.002


BROKEN: dict[str, tuple[str, Callable[[Plan], object]]] = {
    "lowered": ("interpenetration", lambda item: lift(item, -1e-5)),
    "lifted": ("floating", lambda item: lift(item, 5e-6)),
    "above the grid": ("z", lambda item: lift(item, 0.05)),
    "another height on the grid": ("floating", lambda item: item.update(z_grid=item["z"] + 0.01)),
    "another gap": ("gap", lambda item: item.update(gap=1e-4)),
    "a contact in the air": ("contacts", spread),
    "a contact left out": ("contacts", lambda item: item["contacts"].pop()),
    "no contacts": ("contacts", lambda item: item.update(contacts=[])),
    "balance": ("balanced", lambda item: item.update(balanced=not item["balanced"])),
    "without a gap": ("settled", lambda item: item.pop("gap")),
    "without a height on the grid": ("overlap", lambda item: item.pop("z_grid")),
    "without a balance": ("balanced", lambda item: item.pop("balanced")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_wrong_claim_is_named(name: str, plan: Plan, tmp_path: Path) -> None:
    claim, edit = BROKEN[name]
    broken = copy.deepcopy(plan)
    upper = next(
        i
        for i, item in enumerate(broken["items"])
        if item["z"] > 0.02 and item["z_grid"] > item["z"] + 1e-4
    )
    edit(broken["items"][upper])
    assert refused(broken, tmp_path) == (upper, claim)


def test_the_simulation_starts_from_the_settled_place(packing: Packing) -> None:
    pytest.importorskip("mujoco")
    pytest.importorskip("manifold3d")
    settled = settle(packing).first(2)
    report = simulate(settled, read_settings(True))
    assert all(item.z_grid is None for item in report.settled.items)
    assert max(item.shift for item in report.items) < 1e-3
