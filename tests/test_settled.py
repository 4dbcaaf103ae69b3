"""Settled plans: items touch what is below them, by exact solids, and `packing check` says so."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plan_files import checked, refused
from tests.test_plan import pack
from tests.test_plan_check import play

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
from packing_env.plan.solids import solid_of

Plan = dict[str, Any]


@pytest.fixture(scope="module")
def packing() -> Packing:
    """Return a packing of embedded shapes, not settled."""
    return packing_of(pack(resolution=32, num_items=12))


@pytest.fixture(scope="module")
def plan(packing: Packing) -> Plan:
    return make_plan(settle(packing))


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
    play(env)
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
    settled = settle(packing).items
    tops = [solid_of(i, Path()).vertices @ i.rotation[2] + i.translation[2] for i in settled]
    assert report.height == pytest.approx(max(each.max() for each in tops))
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
