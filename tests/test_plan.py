"""Plans: each solid, moved by its plan, fits the environment's heightmaps."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.mesh_files import write_obj

import packing_env as pe
from packing_env.items import load_mesh, shapes
from packing_env.plan import Packing, PlanError, load_plan, make_plan, packing_of
from packing_env.plan import save_plan as write_plan

TINY = {"resolution": 16, "num_items": 8, "pool_size": 8}


def pack(**options: object) -> pe.PackingEnv:
    """Return an environment of two rows after episodes of lowest placements."""
    env = pe.make_env("irregular_com_hull", num_envs=2, seed=1, **TINY | options)
    td = env.reset()
    while not td["done"].all():
        rest = td["observation", "drop_height"].flatten(1)
        td["action"] = torch.where(td["action_mask"], rest, 2.0).argmin(1)
        td = env.step(td)["next"]
    return env


def brackets_in(folder: Path) -> Path:
    """Write two of the embedded shapes to files in millimetres, away from the origin."""
    for mesh in [shape.mesh() for shape in shapes.select(["brackets"])[:2]]:
        moved = replace(mesh, vertices=mesh.vertices + 0.007)
        write_obj(folder / f"{mesh.name}.obj", moved, 1000)
    return folder


@pytest.fixture(scope="module")
def env() -> pe.PackingEnv:
    return pack()


def test_an_empty_container_has_its_own_unit(env: pe.PackingEnv) -> None:
    empty = replace(packing_of(env), items=(), container_unit="in")
    assert empty.shown_unit == "in"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return brackets_in(tmp_path_factory.mktemp("parts"))


def surface(triangles: np.ndarray, count: int) -> np.ndarray:
    """Return random points of a solid's surface, and its vertices."""
    rng = np.random.default_rng(0)
    share = rng.dirichlet((1, 1, 1), (len(triangles), count))
    return np.concatenate((triangles.reshape(-1, 3), (share @ triangles).reshape(-1, 3)))


def heightmaps(packing: Packing) -> list[np.ndarray]:
    """The heightmaps before the first item and after each."""
    grid = np.round(np.array(packing.container[:2]) / packing.cell).astype(int)
    maps = [np.zeros(grid, np.float32)]
    for item in packing.items:
        (x, y), (w, h) = item.cell, item.top.shape
        after = maps[-1].copy()
        window = after[x : x + w, y : y + h]
        np.maximum(window, np.float32(item.z) + item.top, out=window)
        maps.append(after)
    return maps


def check(packing: Packing, solids: dict[str, np.ndarray]) -> None:
    """Check that solids are in the container, between the heightmaps before and after."""
    cell, extent, maps = packing.cell, np.asarray(packing.container), heightmaps(packing)
    for item, before, after in zip(packing.items, maps[:-1], maps[1:], strict=True):
        points = item.to_world(surface(solids[item.source], 20))
        assert (points > -1e-7).all()
        assert (points < extent + 2e-6).all()
        assert points[:, 2].min() == pytest.approx(item.z, abs=1e-6)
        place = points[:, :2] / cell
        inner = (np.abs(place - np.round(place)) > 1e-5).all(1)
        x, y = np.floor(place[inner]).astype(int).T
        height = points[inner, 2]
        assert (height >= before[x, y] - 1e-6).all()
        assert (height <= after[x, y] + 1e-6).all()


def test_embedded_shapes_stand_where_the_plan_says(env: pe.PackingEnv) -> None:
    solids = {
        f"shapes:{m.name}": m.vertices.numpy()[m.faces.numpy()]
        for m in map(shapes.Shape.mesh, shapes.select())
    }
    for row in range(2):
        packing = packing_of(env, row)
        assert len(packing.items) > 2
        check(packing, solids)
        assert np.array_equal(heightmaps(packing)[-1], env.state["heightmap"][row].numpy())


def test_files_in_millimetres_at_a_scale(parts: Path) -> None:
    items = {"source": "meshes", "paths": str(parts), "unit": "mm", "use_cache": False}
    packing = packing_of(pack(items=items, scales=(0.8, 1.2), orientations="pi/4"))
    solids = {}
    for file in parts.iterdir():
        mesh = load_mesh(file, "mm")
        solids[str(file)] = 1000 * mesh.vertices.numpy()[mesh.faces.numpy()]
    assert {item.unit for item in packing.items} == {"mm"}
    assert {item.scale for item in packing.items} <= {0.8, 1.2}
    check(packing, solids)


def test_cuboids() -> None:
    items = {"source": "cuboids", "extents": [[60, 50, 40], [90, 45, 30]], "unit": "mm"}
    packing = packing_of(pack(items=items))
    for item in packing.items:
        lower, upper = np.sort(item.to_world(np.array([[0, 0, 0], item.extent])), axis=0)
        assert (lower > -1e-7).all()
        assert np.prod(upper - lower) == pytest.approx(item.volume)


def test_plan_survives_json(env: pe.PackingEnv, tmp_path: Path) -> None:
    plan = write_plan(tmp_path / "plan.json", env, 1)
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8")) == plan
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
    again = load_plan(tmp_path / "plan.json")
    assert make_plan(again) == plan
    text = (tmp_path / "plan.json").read_text(encoding="utf-8").replace("\n", "\r\n")
    (tmp_path / "edited.json").write_bytes(text.encode("utf-8-sig"))  # by an editor on Windows
    assert make_plan(load_plan(tmp_path / "edited.json")) == plan
    assert plan["stability"] == "com_hull"
    assert plan["contact_tol"] == pytest.approx(0.02)
    assert plan["utilization"] == pytest.approx(packing_of(env, 1).utilization)
    for item in plan["items"]:
        assert np.float32(item["z"]) == item["z"]
        assert np.linalg.det(item["rotation"]) == pytest.approx(1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "recipe"}, "not a packing plan"),
        ({"version": 99}, "version 99"),
        ({"cell": None}, "invalid value"),
        ({"cell": float("nan")}, "invalid value"),
        ({"items": ["mug"]}, "invalid value"),
        ({"num_items": 2.5}, "num_items=2.5"),
        ({"items": [{"unit": "m"}]}, "lacks the key 'order' of item 0"),
        ({"items": [{"unit": "parsec"}]}, "item 0: .*parsec"),
        ({"items": {}}, "items must be a list"),
    ],
    ids=str,
)
def test_bad_plans_are_rejected(
    env: pe.PackingEnv, tmp_path: Path, change: dict, message: str
) -> None:
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(make_plan(env) | change), encoding="utf-8")
    with pytest.raises(PlanError, match=message) as caught:
        load_plan(path)
    assert "plan.json" in str(caught.value)


def test_nothing_is_left_of_a_plan_that_cannot_be_written(
    env: pe.PackingEnv, tmp_path: Path
) -> None:
    (tmp_path / "taken").mkdir()
    with pytest.raises(OSError, match="taken"):
        write_plan(tmp_path / "taken", env)
    assert [p.name for p in tmp_path.iterdir()] == ["taken"]
