"""Plans: written, read, and refused if they are wrong; `test_plan_check.py` judges them."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.mesh_files import write_obj

import packing_env as pe
from packing_env.items import shapes
from packing_env.plan import PlanError, load_plan, make_plan, packing_of
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


def test_the_tops_of_items_make_the_heightmap(env: pe.PackingEnv) -> None:
    for row in range(2):
        packing = packing_of(env, row)
        heightmap = np.zeros_like(env.state["heightmap"][row].numpy())
        assert len(packing.items) > 2
        for item in packing.items:
            (x, y), (w, h) = item.cell, item.top.shape
            window = heightmap[x : x + w, y : y + h]
            np.maximum(window, np.float32(item.z) + item.top, out=window)
        assert np.array_equal(heightmap, env.state["heightmap"][row].numpy())


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
