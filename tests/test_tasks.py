"""`make_env`: what it refuses, before any item is built, and how items and generators are named."""

import math
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.mesh_files import box_mesh, write_obj

from packing_env.generators import GENERATORS, GeneratorError, Uniform
from packing_env.items import Catalogue
from packing_env.tasks import PRESETS, build_generator, make_env
from packing_env.types import NOOP_PENALTY, PackingParams, ParameterError

BAD_VALUES: dict[str, list[Any]] = {
    "resolution": [0, 8.5, "8"],
    "container": [0.32, "big", (0.32, "wide", 0.3), (0.32, math.inf, 0.3), (0.3, 0.3)],
    "cell": ["small", -0.01, 0, 0.03],
    "pool_size": [0, 16.0, True],
    "grid_step": [1.5, True, 99],
    "num_items": [6.0],
    "num_visible": [2.5, 99],
    "num_candidates": ["many"],
    "preview": [0.5, -1],
    "max_steps": [2.5, 0],
    "contact_tol": [math.nan, "loose", -1.0],
    "observation": ["heightmap", ["depth"]],
    "item_order": ["by_price", 3],
    "candidate_fallback": ["yes"],
    "num_envs": [True, 4.0, "4", (), (2, 0), 2**33],
    "reward": ["utilization", {"fun": 1.0}, {}],
    "reward.utilization": [math.nan, math.inf, "much", True],
    "seed": [-1, 2**63, 1.0],
    "pool_seed": [-1],
    "row_offset": [-1, 2**32],
    "candidate_generator": ["ems", ["lowest_z"]],
    "action_mode": ["telepathy"],
    "stability": ["wind", ["none"]],
    "stability_metric": ["wind"],
    "surest": ["com_hull_10", ["wind"]],
    "illegal_action": ["pray"],
    "autoreset": ["never"],
    "draw": ["lots"],
    "device": ["abacus"],
    "skip_infeasible": ["no"],
    "split": ["eval"],
    "scales": [(), 1.0, (1.0, 0.0), (-1.0,), ("half",)],
    "generator": [5, "dice", {"name": ["uniform"]}],
    "generator.size": [3],
    "generator.path": [None, 5],
    "generator.scale": ["big"],
    "generator.instances": [None, 5, [1, 2], ["mug"], [[0], [1.5]], [["mug"]]],
    "items.source": ["clouds", None],
    "items.family": [["cups"]],
    "items.cell": [0.1],
    "items.families": [["hats"], "cups", []],
    "items.paths": [None, [], [True]],
    "items.extents": [None, [[1, 2]], "abc"],
    "items.holdout": ["some", 1.0],
    "constraints": ["heavy", {"weigth_limit": 1.0}],
    "constraints.balance": [0.6, "half"],
    "constraints.preplaced": [[(0, 0, 0, 1, 1)], [(0, 0, 0, 1, 1, 0)]],
    "handling": [3],
}
"""Values that are no values of an option, by its name."""
COMPANIONS: dict[str, dict[str, Any]] = {
    "generator.size": {"name": "uniform"},
    "generator.path": {"name": "sequence_file"},
    "generator.scale": {"name": "sequence_file", "path": "a.csv"},
    "generator.instances": {"name": "fixed_pool"},
    "items.paths": {"source": "meshes"},
    "items.extents": {"source": "cuboids"},
    "items.source": {},
}
"""What stands beside an entry; by default the source of the embedded shapes."""


@pytest.mark.parametrize(
    ("key", "value"),
    [(key, value) for key, values in BAD_VALUES.items() for value in values],
    ids=lambda v: str(v)[:48],
)
def test_a_bad_value_is_refused_by_name_before_anything_is_built(
    key: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def built(*args: Any, **options: Any) -> None:
        raise AssertionError("items were built")

    for build in ("from_shapes", "from_meshes", "from_cuboids"):
        monkeypatch.setattr(Catalogue, build, built)
    section, _, entry = key.partition(".")
    shapes = {"source": "shapes"} if section == "items" else {}
    beside = COMPANIONS.get(key, shapes)
    given = {section: {**beside, entry: value}} if entry else {key: value}
    if value is None:
        given = {section: beside}
    with pytest.raises((ParameterError, GeneratorError)) as refused:
        make_env("irregular", **given)
    assert section in str(refused.value)
    assert entry in str(refused.value)


# ------------------------------------------------------------------------------ the no-op's penalty


def test_the_penalty_of_noops_is_a_default_that_goes_with_them() -> None:
    params = PackingParams(container=(1, 1, 1), cell=0.5)
    noop = params.evolve(illegal_action="noop")
    assert noop.reward == {"utilization": 1.0, "illegal": NOOP_PENALTY}
    for same in (noop, pickle.loads(pickle.dumps(noop)), noop.evolve(num_items=3)):
        assert same.evolve(illegal_action="terminate").reward == params.reward
        assert same.evolve(num_visible=2).reward == noop.reward


# ------------------------------------------------------------------------------ names of items


@pytest.fixture
def two_parts(tmp_path: Path) -> Path:
    """Two different items of one file name."""
    for folder, size in (("a", 0.04), ("b", 0.08)):
        (tmp_path / folder).mkdir()
        write_obj(tmp_path / folder / "part.obj", box_mesh(size, size, size))
    return tmp_path


def small(folder: Path, **options: Any) -> Any:
    items = {
        "source": "meshes",
        "paths": str(folder),
        "use_cache": False,
        **options.pop("items", {}),
    }
    return make_env("irregular", resolution=8, num_items=3, pool_size=400, items=items, **options)


def test_items_of_one_file_name_are_two_items(two_parts: Path) -> None:
    env = small(two_parts, scales=(0.5, 1.0))
    assert env.catalogue.names == ["a/part"] * 2 + ["b/part"] * 2
    drawn = env.instances.item_id.flatten().bincount(minlength=4) / env.instances.item_id.numel()
    assert torch.allclose(drawn, torch.tensor(0.25), atol=0.08)
    one = {
        split: small(two_parts, split=split, items={"holdout": 0.5}) for split in ("train", "test")
    }
    assert one["train"].catalogue.names == ["a/part"]
    assert one["test"].catalogue.names == ["b/part"]


def test_sequences_tell_items_of_one_file_name_apart(two_parts: Path, tmp_path: Path) -> None:
    file = tmp_path / "orders.csv"
    generator = {"name": "sequence_file", "path": str(file)}
    file.write_text("b/part,a/part\n", encoding="utf-8")
    env = small(two_parts, generator=generator)
    assert env.instances.item_id[0, :2].tolist() == [1, 0]
    file.write_text("part\n", encoding="utf-8")
    with pytest.raises(GeneratorError, match=r"'part', which is ambiguous; .*a/part, b/part"):
        small(two_parts, generator=generator)


def test_parts_that_are_all_smaller_than_a_cell_name_the_unit(tmp_path):
    write_obj(tmp_path / "box.obj", box_mesh(60, 40, 30))
    items = {"source": "meshes", "paths": [str(tmp_path)], "unit": "um"}
    with pytest.raises(ParameterError, match=r"every part is smaller than a cell.*items\.unit"):
        make_env("irregular", items=items)


def test_warnings_of_meshes_are_logged(tmp_path, caplog):
    mesh = box_mesh(60, 40, 30)
    write_obj(tmp_path / "box.obj", replace(mesh, faces=mesh.faces[2:]))  # one side missing
    items = {"source": "meshes", "paths": [str(tmp_path)], "unit": "mm"}
    make_env("irregular", items=items, pool_size=4)
    assert "box: not watertight" in caplog.text


@pytest.mark.parametrize("task", ["sls_nesting", "irregular_paper"])
def test_parts_of_a_users_own_keep_their_size(task, tmp_path):
    part = write_obj(tmp_path / "box.obj", box_mesh(0.06, 0.04, 0.03))
    small = {"cell": 0.01, "grid_step": 1, "num_items": 2, "num_visible": 1, "pool_size": 2}
    cuboids = {"source": "cuboids", "extents": [[0.06, 0.04, 0.03]]}
    for items in ([str(part)], {"source": "meshes", "paths": [str(tmp_path)]}, cuboids):
        found = make_env(task, items=items, **small).catalogue
        assert len(found) == 1
        assert found.volume.item() == pytest.approx(0.06 * 0.04 * 0.03)
        scaled = make_env(task, items=items, scales=[0.5, 1.0], **small).catalogue
        assert [source["scale"] for source in scaled.sources] == [0.5, 1.0]
    shapes = {"source": "shapes", "families": ["brackets"]}
    embedded = make_env(task, items=shapes, **small).catalogue.sources
    assert {source["scale"] for source in embedded} == set(PRESETS[task].scales)


def test_another_rule_without_surest_is_meant_alone() -> None:
    """A preset's preference belongs to its own rule."""
    small = {"resolution": 8, "num_items": 3, "pool_size": 2}
    assert make_env("irregular", **small).params.surest == ("com_hull_10", "com_hull_20")
    alone = make_env("irregular", **small, stability="com_hull_10")
    assert (alone.params.stability, alone.params.surest) == ("com_hull_10", ())
    same = make_env("irregular", **small, stability="com_hull_strict", surest=None)
    assert same.params.surest == ("com_hull_10", "com_hull_20")
    both = make_env("irregular", **small, stability="com_hull", surest=["com_hull_20"])
    assert both.params.surest == ("com_hull_20",)


@pytest.mark.parametrize("registered", [Uniform(), lambda: Uniform()])
def test_a_registered_generator_is_a_class(registered: object, monkeypatch) -> None:
    monkeypatch.setitem(GENERATORS, "mine", registered)
    with pytest.raises(GeneratorError, match=r"'mine'.*subclass"):
        build_generator("mine")
