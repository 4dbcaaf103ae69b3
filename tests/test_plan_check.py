"""`packing check`: correct plans hold; the first wrong claim of a broken one is named."""

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.mesh_files import write_obj
from tests.plan_files import checked, placed_box, refused, violation_of
from tests.test_plan import brackets_in, pack

import packing_env as pe
from agents.cli import main as cli
from packing_env.core import stability
from packing_env.items import shapes
from packing_env.kernels.boxes import PILE_RULES
from packing_env.kernels.stability_rules import MARGINS
from packing_env.plan import Packing, PlanError, load_plan, make_plan, packing_of, quaternion
from packing_env.plan.solids import find_source
from packing_env.reference import boxes
from packing_env.reference.claims import STABILITY_RULES
from packing_env.render.solids import placed_solid

Edit = Callable[[dict[str, Any], dict[str, Any]], object]
UNIT = 0.01
CUBOIDS = {"source": "cuboids", "extents": [[60, 50, 40], [90, 45, 30], [20, 20, 20]], "unit": "mm"}
BRACKETS = {"source": "shapes", "families": ["brackets"]}
"""A few shapes, for tasks with so many orientations that all shapes would take half a minute."""


@pytest.fixture(scope="module")
def plan() -> dict[str, Any]:
    """Return a plan of embedded shapes."""
    return make_plan(pack(resolution=32, num_items=12))


@pytest.fixture(scope="module")
def upper(plan: dict[str, Any]) -> int:
    """Return the index of an item that stands on others, with more items after it."""
    return next(i for i, item in enumerate(plan["items"][:-1]) if item["z"] > 0.02)


def lift(item: dict[str, Any], height: float) -> None:
    """Change the rest height, in both places that state it."""
    item["z"] = float(np.float32(item["z"] + height))
    item["translation"][2] += height


# ------------------------------------------------------------------ plans that hold


def check_rows(env: pe.PackingEnv, folder: Path, least: int = 2) -> None:
    """Check the plans of all rows, each with some items or more."""
    for row in range(env.batch_size.numel()):
        plan = make_plan(env, row)
        report = checked(plan, folder)
        assert report.holds, report.violation
        assert report.items == len(plan["items"]) >= least
        assert report.utilization == pytest.approx(plan["utilization"])
        assert report.height == pytest.approx(env.state["heightmap"][row].max().item())
        assert not report.not_checked


def test_a_mesh_beside_the_plan_comes_before_those_in_folders_above(tmp_path: Path) -> None:
    plan = tmp_path / "job" / "plan.json"
    for file in (tmp_path / "parts" / "cup.stl", tmp_path / "job" / "cup.stl"):
        file.parent.mkdir()
        file.touch()
    assert find_source("parts/cup.stl", plan) == str(plan.with_name("cup.stl"))
    assert find_source("x" * 300, plan) == "x" * 300  # longer than names of files may be


def test_a_mesh_far_above_the_plan_is_not_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = tmp_path / "project" / "runs" / "1" / "plan.json"
    plan.parent.mkdir(parents=True)
    for folder in (tmp_path, plan.parents[2]):
        (folder / "cup.stl").touch()
    assert find_source("cup.stl", plan) == "cup.stl"  # from a directory without the plan
    monkeypatch.chdir(plan.parents[2])
    assert find_source("cup.stl", plan) == "cup.stl"
    (plan.parents[1] / "mug.stl").touch()
    assert find_source("mug.stl", plan) == str(plan.parents[1] / "mug.stl")


@pytest.mark.parametrize(
    "options",
    [
        {"resolution": 32, "num_items": 12},
        {"orientations": "pi/4", "scales": (0.8, 1.2), "items": BRACKETS},
        {"stability": "none", "contact_tol": 0.0},
        {"stability": "area_corners"},
        {"stability": "area_corners_code"},
        {"stability": "center_hull"},
        *(
            {"items": CUBOIDS, "stability": rule, "contact_tol": tolerance, "num_items": 16}
            for rule in ("none", "com_hull", "center_hull", "area_corners")
            for tolerance in (None, 0.0)
        ),
    ],
    ids=str,
)
def test_other_tasks(options: dict[str, Any], tmp_path: Path) -> None:
    check_rows(pack(**options), tmp_path)


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("irregular", {"resolution": 16, "num_items": 8}),
        ("sls_nesting", {"container": (0.2, 0.25, 0.1), "num_items": 10}),
        *(
            ("cuboid_continuous", {"num_envs": 2, "seed": 3, "stability": rule})
            for rule in ("none", "com_hull", "area_corners_code", *PILE_RULES)
        ),
    ],
)
def test_plans_of_the_presets_hold(task: str, options: dict[str, Any], tmp_path: Path) -> None:
    env = pe.make_env(task, **{"num_envs": 1, "pool_size": 4, **options})
    play(env)
    check_rows(env, tmp_path, least=6 if task == "cuboid_continuous" else 2)


def test_files_of_meshes_beside_the_plan_or_in_a_folder_above(tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    parts = brackets_in(tmp_path / "old")
    items = {"source": "meshes", "paths": str(parts), "unit": "mm", "use_cache": False}
    plan = make_plan(pack(items=items, scales=(0.8, 1.2)))
    report = checked(plan, tmp_path)
    assert report.holds, report.violation
    for item in plan["items"]:
        item["source"] = Path(item["source"]).name
    assert checked(plan, parts).holds
    moved = parts.rename(tmp_path / "new")
    (moved / "out").mkdir()
    assert checked(plan, moved / "out").holds
    placed_solid(load_plan(moved / "out" / "plan.json").items[0], plan["cell"])  # can be drawn
    (moved / plan["items"][0]["source"]).unlink()
    with pytest.raises(PlanError, match=r"item 0 .* does not exist; put the mesh file in"):
        checked(plan, moved / "out")


@pytest.mark.parametrize(
    ("cell", "rule"),
    [(0.1, "com_hull"), (0.01, "none"), (0.3, "com_hull"), (0.07, "com_hull"), (0.07, "none")],
)
def test_cuboids_of_cells_that_are_no_float32(cell: float, rule: str, tmp_path: Path) -> None:
    """Sums of sides that round differently stand level all the same: 0.1 + 0.2 and 0.3."""
    env = pe.make_env(
        "cuboid_online",
        num_envs=2,
        seed=7,
        container=(6 * cell, 6 * cell, 12 * cell),
        cell=cell,
        num_items=40,
        stability=rule,
        generator={"name": "uniform_cuboids", "low": 1, "high": 3},
    )
    play(env)
    check_rows(env, tmp_path, least=4)
    plan = make_plan(env)
    plan["items"][-1]["support_ratio"] *= 0.9
    assert not checked(plan, tmp_path).holds


def test_a_few_whole_cuboids_of_a_task_of_others(tmp_path: Path) -> None:
    """The heights of the stack are sums, which the plan does not state."""
    extents = [[0.3, 0.3, 0.1], [0.3, 0.3, 0.6], [0.3, 0.3, 0.7], [0.25, 0.25, 0.75]]
    items = {"source": "cuboids", "extents": extents}
    size = {"container": (0.5, 0.5, 1.4), "cell": 0.1, "num_items": 8}
    loose = {"contact_tol": 0.0, "stability": "none", "orientations": "none"}
    env = pe.make_env("irregular", num_envs=32, seed=2, items=items, **loose, **size)
    play(env)
    for row in range(32):
        packing = packing_of(env, row)
        odd = [item.item_id == 3 for item in packing.items]
        report = checked(make_plan(packing.first(([*odd, True]).index(True))), tmp_path)
        assert report.holds, report.violation


def play(env: pe.PackingEnv) -> None:
    """Play random legal episodes."""
    generator = torch.Generator().manual_seed(0)
    td = env.reset()
    while not td["done"].all():
        draw = torch.rand(td["action_mask"].shape, generator=generator)
        td["action"] = torch.where(td["action_mask"], draw, -1.0).argmax(1)
        td = env.step(td)["next"]


def test_an_open_surface_is_reported(tmp_path: Path) -> None:
    """The solid's volume is not known exactly, and the checker reports that."""
    mesh = shapes.SHAPES["flange"].mesh()
    write_obj(tmp_path / "open.obj", replace(mesh, faces=mesh.faces[1:]))
    items = {"source": "meshes", "paths": str(tmp_path), "use_cache": False}
    report = checked(make_plan(pack(items=items)), tmp_path)
    assert report.holds, report.violation
    assert ["volume of open" in note for note in report.not_checked] == [True]


# ------------------------------------------------------------------ plans that do not hold


def turn(item: dict[str, Any], both: bool = True) -> None:
    """Rotate an item to another side about its own origin."""
    matrix = np.array([[1, 0, 0], [0, 0, -1], [0, 1, 0]]) @ item["rotation"]
    item["rotation"] = matrix.tolist()
    if both:
        item["quaternion"] = quaternion(matrix).tolist()


def mirror(item: dict[str, Any]) -> None:
    item["rotation"] = (np.diag([1, 1, -1]) @ item["rotation"]).tolist()


def shift(item: dict[str, Any], cells: int, cell: float) -> None:
    item["x"] += cells
    item["translation"][0] += cells * cell


BROKEN: dict[str, tuple[str, Edit]] = {
    "overlap": ("overlap", lambda plan, item: lift(item, -0.01)),
    "floating": ("floating", lambda plan, item: lift(item, 0.001)),
    "a little above": ("floating", lambda plan, item: lift(item, 1e-6)),
    "outside": ("outside", lambda plan, item: shift(item, 40, plan["cell"])),
    "half outside": ("outside", lambda plan, item: item["translation"].__setitem__(0, -0.005)),
    "below the floor": ("outside", lambda plan, item: lift(item, -0.3)),
    "wrong z": ("z", lambda plan, item: item.update(z=item["z"] + 0.01)),
    "wrong x": ("x, y", lambda plan, item: item.update(x=item["x"] + 1)),
    "wrong rotation": ("", lambda plan, item: turn(item)),
    "another quaternion": ("quaternion", lambda plan, item: turn(item, both=False)),
    "mirrored": ("rotation", lambda plan, item: mirror(item)),
    "wrong scale": ("", lambda plan, item: item.update(scale=1.25)),
    "wrong unit": ("", lambda plan, item: item.update(unit="cm")),
    "support ratio": ("support_ratio", lambda plan, item: item.update(support_ratio=0.999)),
    "volume": ("volume", lambda plan, item: item.update(volume=item["volume"] * 1.01)),
    "order": ("order", lambda plan, item: item.update(order=77)),
    "another shape": ("", lambda plan, item: item.update(source="shapes:torus")),
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_first_violation_is_named(
    name: str, plan: dict[str, Any], upper: int, tmp_path: Path
) -> None:
    claim, edit = BROKEN[name]
    broken = copy.deepcopy(plan)
    edit(broken, broken["items"][upper])
    report = checked(broken, tmp_path)
    found = report.violation
    assert found is not None
    assert found.item == broken["items"][upper]["order"]
    assert report.items == upper
    assert found.name == plan["items"][upper]["name"]
    assert claim in ("", found.claim), found
    assert found.name in str(found)
    if found.claim in ("overlap", "floating", "outside", "z", "x, y", "lid"):
        assert " m" in found.found


def test_the_first_of_two_violations_is_named(
    plan: dict[str, Any], upper: int, tmp_path: Path
) -> None:
    broken = copy.deepcopy(plan)
    broken["items"][0]["support_ratio"] = 1.5
    lift(broken["items"][upper], 0.01)
    broken["utilization"] = 0.99
    assert refused(broken, tmp_path) == (0, "support_ratio")


@pytest.mark.parametrize(
    ("claim", "change"),
    [
        ("utilization", {"utilization": 0.5}),
        ("num_items", {"num_items": 2}),
        ("cell", {"cell": 0.33}),
        ("container", {"container": [0.32, -0.32, 0.3]}),
        ("contact_tol", {"contact_tol": -0.01}),
        ("geometry", {"geometry": "spheres"}),
        ("unit", {"unit": 0.01}),
        ("cell", {"cell": 1e-5}),
        ("container", {"cell": 1e-300}),
        ("container", {"container": [0.32, 0.32, 1e300]}),
        ("stability", {"stability": "stacking_tree"}),
    ],
)
def test_claims_about_the_whole(
    claim: str, change: dict[str, Any], plan: dict[str, Any], tmp_path: Path
) -> None:
    assert refused(plan | change, tmp_path) == (None, claim)


def test_a_stricter_rule_or_tolerance_does_not_hold(plan: dict[str, Any], tmp_path: Path) -> None:
    for change in ({"stability": "area_corners"}, {"contact_tol": 0.0}):
        assert refused(plan | change, tmp_path)[1] in ("stability", "support_ratio")


def test_unknown_keys_are_refused(plan: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="unknown key 'constrains', did you mean constraints"):
        checked(plan | {"constrains": {}}, tmp_path)
    odd = copy.deepcopy(plan)
    odd["items"][2]["max_load"] = 1.0
    with pytest.raises(PlanError, match="item 2 has the unknown key 'max_load'"):
        checked(odd, tmp_path)


def test_the_rules_of_the_environment_are_known() -> None:
    maps = {
        name
        for name, judge in stability.RULES.items()
        if judge is not None and getattr(judge, "func", judge).__module__.startswith("packing_env.")
    }
    assert maps == set(STABILITY_RULES["maps"])
    of_environments = {"none", "stacking_tree", *maps} - set(MARGINS)
    assert of_environments == set(boxes.RULES)
    assert of_environments | set(MARGINS) == set(STABILITY_RULES["boxes"])  # orders have margins


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": "3"}, "x='3'"),
        ({"z": None}, "z=None"),
        ({"scale": 0}, "scale"),
        ({"rotation": [[1, 0], [0, 1]]}, "rotation"),
        ({"unit": "parsec"}, "parsec"),
        ({"source": "shapes:cube"}, "no embedded shape 'cube'"),
        ({"source": "mesh:part"}, "was made in memory"),
        ({"source": "cuboid"}, "without 'extent'"),
    ],
    ids=str,
)
def test_invalid_items(
    change: dict[str, Any], message: str, plan: dict[str, Any], tmp_path: Path
) -> None:
    broken = copy.deepcopy(plan)
    broken["items"][1] |= change
    with pytest.raises(PlanError, match=message):
        checked(broken, tmp_path)


# ------------------------------------------------------------------ cuboids by hand


def by_hand(*cuboids: tuple[tuple[int, ...], tuple[int, ...], float], **changes: Any) -> dict:
    """Build a plan of cuboids from (lower corner, sides, support ratio) in steps of 1 cm."""
    items = tuple(
        placed_box(
            order,
            f"box {order}",
            UNIT * np.array(lower),
            UNIT * np.array(sides),
            unit="cm",
            extent=sides,
            cell=lower[:2],
            support_ratio=support,
        )
        for order, (lower, sides, support) in enumerate(cuboids)
    )
    return make_plan(Packing((0.1, 0.1, 0.1), UNIT, "com_hull", items, len(items))) | changes


BASE = ((0, 0, 0), (4, 4, 4), 1.0)
GEOMETRIES = pytest.mark.parametrize("geometry", ["maps", "boxes"])


@GEOMETRIES
@pytest.mark.parametrize(
    ("second", "claim", "found"),
    [
        (((0, 0, 4), (4, 4, 2), 1.0), None, ""),
        (((2, 0, 4), (4, 4, 2), 0.5), None, ""),
        (((3, 0, 4), (4, 4, 2), 0.25), "stability", "25.0% of it is supported"),
        (((2, 0, 4), (4, 4, 2), 0.6), "support_ratio", "0.500000"),
        (((2, 0, 3), (4, 4, 2), 0.5), "overlap", "0.0200000 x 0.0400000 x 0.0100000 m shared"),
        (((2, 0, 5), (4, 4, 2), 0.5), "floating", "0.0400000 m"),
        (((7, 0, 0), (4, 4, 2), 1.0), "outside", "0.0700000 .. 0.1100000 m"),
        (((0, -1, 0), (4, 1, 2), 1.0), "outside", "-0.0100000 .. 0.0000000 m"),
        (((0, 0, 4), (4, 4, 7), 1.0), "lid", "0.1100000 m"),
    ],
)
def test_two_cuboids(
    second: tuple, claim: str | None, found: str, geometry: str, tmp_path: Path
) -> None:
    plan = by_hand(BASE, second, geometry=geometry)
    if claim is None:
        assert checked(plan, tmp_path).holds
        return
    violation = violation_of(plan, tmp_path)
    assert (violation.item, violation.claim) == (1, claim)
    assert found.replace(" of it", "") in violation.found.replace(" of it", "")


@GEOMETRIES
def test_items_cannot_be_pushed_in_from_the_side(geometry: str, tmp_path: Path) -> None:
    """A box under an overhang overlaps nothing, and could not be put there from above."""
    bridge = [((0, 0, 0), (3, 4, 4), 1.0), ((0, 0, 4), (6, 4, 2), 0.5), ((4, 0, 0), (2, 4, 2), 1.0)]
    plan = by_hand(*bridge, geometry=geometry)
    assert refused(plan, tmp_path) == (2, "path")
    plan["items"][1:] = [plan["items"][2] | {"order": 1}, plan["items"][1] | {"order": 2}]
    assert checked(plan, tmp_path).holds


def test_boxes_on_a_lattice(tmp_path: Path) -> None:
    plan = by_hand(BASE, geometry="boxes", unit=0.001)
    plan["items"][0]["x"] = 0
    assert checked(plan, tmp_path).holds
    for change, claim in (
        ({"translation": [0.0005, 0, 0]}, "geometry"),
        ({"translation": [0.001, 0, 0]}, "x, y"),
        ({"z": 0.001}, "z"),
        ({"volume": 1e-6}, "volume"),
        ({"rotation": [[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]], "quaternion": None}, "geometry"),
    ):
        broken = copy.deepcopy(plan)
        broken["items"][0] |= change
        assert refused(broken, tmp_path) == (0, claim)
    for change, claim in (
        ({"unit": 0.003}, "unit"),
        ({"unit": 1e-300}, "container"),
        ({"contact_tol": 0.001}, "contact_tol"),
        ({"stability": "gyroscope"}, "stability"),
    ):
        assert refused(plan | change, tmp_path) == (None, claim)


@GEOMETRIES
@pytest.mark.parametrize(
    ("change", "claim"),
    [
        ({"translation": [1e300, 0, 0]}, "outside"),
        ({"translation": [0, 0, 1e300]}, "outside"),
        ({"translation": [0, -1e7, 0]}, "outside"),
        ({"translation": [0, 0, 1e7]}, "lid"),
        ({"extent": [1e300, 4, 4]}, "outside"),
        ({"extent": [1e300, 4, 4], "scale": 1e300}, "outside"),
        ({"rotation": [[1e300, 0, 0], [0, 1, 0], [0, 0, 1]]}, "rotation"),
        ({"quaternion": [1e300, 0, 0, 0]}, "quaternion"),
        ({"z": 1e300}, "z"),
        ({"volume": 1e300}, "volume"),
    ],
    ids=str,
)
def test_extreme_numbers(change: dict[str, Any], claim: str, geometry: str, tmp_path: Path) -> None:
    plan = by_hand(BASE, geometry=geometry)
    plan["items"][0] |= change
    assert refused(plan, tmp_path) == (0, claim)
    assert len(str(checked(plan, tmp_path).violation)) < 200


def test_rules_of_piles_test_the_whole_pile(tmp_path: Path) -> None:
    """A counterweight far out tips the box below the one it stands on."""
    pile = [
        ((0, 0, 0), (4, 4, 2), 1.0),
        ((2, 0, 2), (4, 4, 1), 0.5),
        ((4, 0, 3), (3, 4, 7), 2 / 3),
    ]
    lattice = {"geometry": "boxes"}
    assert checked(by_hand(*pile, stability="com_hull", **lattice), tmp_path).holds
    for rule, place in (("stacking_tree", lattice), ("equilibrium", lattice), ("equilibrium", {})):
        tied = by_hand(*pile, stability=rule, **place)
        assert refused(tied, tmp_path) == (1, "stability")
        firm = [((x, *yz), size, share) for (x, *yz), size, share in pile]
        firm[1] = ((1, 0, 2), (4, 4, 1), 0.75)
        firm[2] = ((3, 0, 3), (4, 4, 7), 0.5)
        assert refused(by_hand(*firm, stability=rule, **place), tmp_path) == (2, "stability")
    assert refused(by_hand(*pile, stability="stacking_tree"), tmp_path) == (None, "stability")


def test_a_cuboid_that_stands_askew(tmp_path: Path) -> None:
    """The checker rasterises it like any solid."""
    plan = by_hand(((2, 1, 0), (5, 5, 2), 1.0), stability="none")
    plan["items"][0] |= {"rotation": [[0.8, -0.6, 0], [0.6, 0.8, 0], [0, 0, 1]]}
    plan["items"][0] |= {"translation": [0.05, 0.01, 0], "quaternion": None}
    report = checked(plan, tmp_path)
    assert report.holds, report.violation


# ------------------------------------------------------------------ the command


@pytest.mark.usefixtures("elsewhere")
def test_the_command(plan: dict[str, Any], upper: int, capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.json").write_text(json.dumps(plan), encoding="utf-8")
    broken = copy.deepcopy(plan)
    lift(broken["items"][upper], 0.01)
    Path("bad.json").write_text(json.dumps(broken), encoding="utf-8")
    Path("cut.json").write_text(json.dumps(plan)[:1000], encoding="utf-8")
    who = f"item {upper} ({plan['items'][upper]['name']})"

    assert cli.main(["check", "good.json"]) == 0
    said = capsys.readouterr().out
    assert said.startswith(f"good.json: holds: {len(plan['items'])} items")
    assert said.split(";")[0].endswith("stable and supported as claimed")
    Path("total.json").write_text(json.dumps(plan | {"utilization": None}), encoding="utf-8")
    assert cli.main(["check", "total.json"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("total.json: NOT CHECKED: utilization")
    assert "as claimed" not in said
    assert cli.main(["check", "bad.json", "good.json"]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith(f"bad.json: REFUSED, {who}: floating: claimed at rest at z")
    assert said[1].startswith("good.json: holds")
    assert cli.main(["check", "good.json", "cut.json"]) == 2
    spoken = capsys.readouterr()
    assert "good.json: holds" in spoken.out
    assert spoken.err.startswith("packing: cut.json: cannot be read as a JSON plan")
    assert cli.main(["check", "--json", "good.json", "bad.json", "cut.json"]) == 2
    good, bad, cut = json.loads(capsys.readouterr().out)
    assert good["holds"]
    assert good["violation"] is None
    assert (bad["violation"]["item"], bad["violation"]["claim"]) == (upper, "floating")
    assert "cut.json" in cut["error"]
