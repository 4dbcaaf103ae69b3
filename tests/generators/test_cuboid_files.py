"""Files of cuboids: published instances are replayed exactly, bad files name the place."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.generators.test_cuboid_generators import CUBE, catalogue_of

from packing_env.generators import CuboidSequences
from packing_env.generators.base import Request
from packing_env.generators.cuboids.files import read_loads
from packing_env.generators.sequence_file import SequenceError
from packing_env.types import PackingParams

BR = (5.87, 2.33, 2.20)
"""The container of Bischoff and Ratcliff, metres."""
CENTIMETRES = PackingParams(
    container=BR,
    cell=0.01,
    geometry="boxes",
    num_items=1200,
    action_mode="candidate",
    observation=("heightmap",),
)


def write(folder: Path, content: Any, name: str = "sequences") -> Path:
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


def replayed(source: CuboidSequences, params: PackingParams) -> list[list[tuple[float, ...]]]:
    """Return the sides of each item of each instance of the pool, metres."""
    cuboids = source.cuboids(Request.of(params))
    catalogue = catalogue_of(cuboids, params, "cuboid")
    made = source.sample(Request.of(params), catalogue)
    return [
        [tuple(round(side, 9) for side in cuboids.extents[row].tolist()) for row in rows[:count]]
        for rows, count in zip(made.item_id.tolist(), made.num_items.tolist(), strict=True)
    ]


# ---------------------------------------------------------------------- the public files


@pytest.fixture
def files(data_dir: Path) -> Path:
    return data_dir / "cuboids"


def test_every_public_file_loads(files: Path) -> None:
    found = {path.name: read_loads(path) for path in sorted(files.glob("*.json"))}
    assert {name: len(loads) for name, loads in found.items()} == {
        "bed_bpp_orders.json": 3,
        "br_container_loading.json": 88,
        "egeblad_knapsack.json": 29,
        "ln_imm.json": 27,
        "mrv_truck_items.json": 5,
        "ortec_demand.json": 12,
    }
    millimetres = PackingParams(
        container=(20.0, 20.0, 20.0),
        cell=0.1,
        geometry="boxes",
        unit=0.001,
        num_items=1200,
        action_mode="candidate",
        observation=("heightmap",),
    )
    for name, loads in found.items():
        source = CuboidSequences(files / name, own_container=False, limit=1200)
        sequences = replayed(source, millimetres)
        assert [len(s) for s in sequences] == [min(load.num_items, 1200) for load in loads]


def test_container_loading_instances_are_those_of_the_file(files: Path) -> None:
    path = files / "br_container_loading.json"
    raw = json.loads(path.read_text())["instances"]
    source = CuboidSequences(path)
    cuboids = source.cuboids(Request.of(CENTIMETRES))
    assert source.container(source.loads(), 0.01) == pytest.approx(BR)
    kinds = {(*t["dims"], *t["vertical_ok"]) for one in raw for t in one["types"]}
    assert len(cuboids.extents) == len(kinds) == 360
    assert cuboids.upright is not None
    assert cuboids.names is not None
    sides = (cuboids.extents * 100).round().long()
    rows = {(*s, *map(int, u)): i for i, (s, u) in enumerate(
        zip(sides.tolist(), cuboids.upright.tolist(), strict=True))}  # fmt: skip
    assert set(rows) == kinds
    assert cuboids.names[0] == "108x76x30"
    catalogue = catalogue_of(cuboids, CENTIMETRES, "cuboid")
    request = Request.of(CENTIMETRES.evolve(num_items=1200), 0, "train", 8)
    made = source.sample(request, catalogue)
    assert made.num_items.tolist() == [one["n_items"] for one in raw]
    for ids, count, one in zip(made.item_id, made.num_items, raw, strict=True):
        types = [rows[*t["dims"], *t["vertical_ok"]] for t in one["types"]]
        assert ids[: int(count)].tolist() == [types[k] for k in one["online_order"]]
        volume = int(sides[ids[: int(count)]].prod(1).sum())
        assert volume == one["items_volume"]
    standing = catalogue.rotation[:, :, 2].abs().argmax(2)  # which side is vertical
    allowed = cuboids.upright.gather(1, standing)
    assert bool((allowed | ~catalogue.orientation_mask).all())
    assert not catalogue.never_feasible.any()


def test_orders_come_in_arrival_order_and_stay_upright(files: Path) -> None:
    path = files / "bed_bpp_orders.json"
    raw = json.loads(path.read_text())["orders"][0]
    source = CuboidSequences(path, "00100408")
    assert source.container(source.loads(), 1.0) == (1.2, 0.8, 2.0)
    params = CENTIMETRES.evolve(container=(1.2, 0.8, 2.0), unit=0.001)
    sequence = replayed(source, params)[0]
    assert sequence == [tuple(side / 1000 for side in item) for item in raw["items_mm"]]
    cuboids = source.cuboids(Request.of(params))
    assert cuboids.names == list(dict.fromkeys(raw["article_id"]))
    assert cuboids.upright is not None
    assert cuboids.upright.unique(dim=0).tolist() == [[False, False, True]]
    assert len(CuboidSequences(path, "rollcontainer").loads()) == 2


def published(**changes: Any) -> dict[str, Any]:
    """An order in the format in which the authors of BED-BPP publish theirs."""
    item = {"id": "7", "length/mm": 590, "width/mm": 390, "height/mm": 150, "weight/kg": 8.7}
    order = {"item_sequence": {"1": item}, "properties": {"target": "rollcontainer"}}
    return {"00100001": {**order, **changes}}


def test_published_orders_are_those_of_the_supplied_file(tmp_path: Path, files: Path) -> None:
    path = files / "bed_bpp_orders.json"
    raw = json.loads(path.read_text())["orders"]
    content = {
        order["order"]: {
            "item_sequence": {
                str(number): dict(zip(("length/mm", "width/mm", "height/mm"), sides, strict=True))
                | {"id": name}
                for number, (sides, name) in enumerate(
                    zip(order["items_mm"], order["article_id"], strict=True), 1
                )
            },
            "properties": {"target": order["target"]},
        }
        for order in raw
    }
    assert read_loads(write(tmp_path, content)) == read_loads(path)


def test_the_last_instances_are_held_out(tmp_path: Path) -> None:
    path = write(tmp_path, [[[n, 1, 1], [1, 1, 1]] for n in range(1, 9)])
    params = PackingParams(container=(10.0, 10.0, 10.0), cell=1.0, num_items=2)
    source = CuboidSequences(path, holdout=0.25)
    requests = [Request.of(params, 0, split, 8) for split in ("train", "test")]
    (cuboids, train), (same, test) = map(source.make, requests)
    assert torch.equal(cuboids.extents, same.extents)  # every split knows all cuboids
    first = [cuboids.extents[made.item_id[:, 0], 0].tolist() for made in (train, test)]
    assert first == [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [7.0, 8.0]]
    with pytest.raises(SequenceError, match=r"generator\.holdout=0\.05 of 8 instances"):
        CuboidSequences(path, holdout=0.05).make(requests[0])


def test_demand_is_shuffled_and_cut_short(files: Path) -> None:
    path = files / "ortec_demand.json"
    source = CuboidSequences(path, "inst3d106", order="shuffled", limit=100)
    params = CENTIMETRES.evolve(unit=0.001, num_items=100)
    sequence = replayed(source, params)[0]
    assert len(sequence) == 100
    assert len(set(sequence)) > 5
    assert replayed(source, params)[0] == sequence
    kinds = source.loads()[0].kinds
    share = sum(kind.count for kind in kinds[:10]) / sum(kind.count for kind in kinds)
    whole = CuboidSequences(path, "inst3d106", order="shuffled")
    wide = params.evolve(num_items=33_996)
    catalogue = catalogue_of(whole.cuboids(Request.of(wide)), wide)
    made = whole.sample(Request.of(wide, 3, "test", 1), catalogue)
    assert made.item_id[0].bincount().tolist() == [kind.count for kind in kinds]
    assert abs(float((made.item_id[0, :5000] < 10).double().mean()) - share) < 0.03


# ---------------------------------------------------------------------- files of one's own

A, B, C = (1.0, 2.0, 3.0), (2.0, 2.0, 2.0), (4.0, 1.0, 1.5)


@pytest.mark.parametrize(
    "content",
    [
        [[[1, 2, 3], [2, 2, 2, 2]], [[4, 1, 1.5]]],
        [[{"dims": [1, 2, 3]}, {"dims": [2, 2, 2], "count": 2}], [[4, 1, 1.5, 1, 1, 1, 1]]],
        {"sequences": [[[1, 2, 3], [2, 2, 2], [2, 2, 2]], [[4, 1, 1.5]]]},
        "1,2,3\n2,2,2,2\n\n4,1,1.5\n",
        "\n 1, 2, 3,1\r\n2,2,2,2\n\n\n\n4,1,1.5,,1,1,1\n\n",
        "dx,dy,dz\n1,2,3\n2,2,2\n2,2,2\n\n4,1,1.5\n",
        "sequence,count,dx,dy,dz\nx,1,1,2,3\ny,1,4,1,1.5\nx,2,2,2,2\n",
        "\ufeffdz,dy,dx,name,count\n3,2,1,a,1\n2,2,2,b,2\n\n1.5,1,4,c,1\n",
        "Dx;DY;dz;count\n1,0;2;3;1\n2;2;2;2\n\n4;1;1,5;\n",
        "1;2;3\n2;2;2;2\n\n4;1;1,5\n",
    ],
)
def test_sequences_are_replayed(content: Any, tmp_path: Path) -> None:
    source = CuboidSequences(write(tmp_path, content))
    params = PackingParams(container=(10.0, 10.0, 10.0), cell=0.5, num_items=3)
    half = [[tuple(side / 2 for side in item) for item in s] for s in ([A, B, B], [C])]
    assert replayed(source, params) == half  # no unit: steps of the lattice
    metres = CuboidSequences(source.path, unit="m")
    assert replayed(metres, params) == [[A, B, B], [C]]


def test_a_column_of_weights_is_ignored_with_a_remark(tmp_path: Path) -> None:
    (load,) = read_loads(write(tmp_path, "name,dx,dy,dz,weight\na,4,3,2,1.5\n"))
    assert load.kinds[0].name == "a"
    assert "weight" in load.remark


# ---------------------------------------------------------------------- what is refused

TYPES = {"name": "A_1", "container": [9, 9, 9], "types": [{"dims": [1, 2, 3], "count": 2}]}


def loading(**changes: Any) -> dict[str, Any]:
    return {"unit": "cm", "instances": [{**TYPES, **changes}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        ("[[", "cannot be read as JSON"),
        ("[]", r"the file is \[\]; needed: a list with at least one entry"),
        (published(item_sequence=[]), "item_sequence is .*; needed: an object"),
        (published(item_sequence={"1": {}}), "item_sequence.1 is .* the field 'length/mm'"),
        (published(properties={"target": "van"}), "properties.target is 'van'; needed: one of"),
        ([[1, 2, 3]], r"\[0\] is \[1, 2, 3\]; needed: a sequence: a list of \[dx, dy, dz\]"),
        ([[[1, 2]]], r"\[0\]\[0\] is \[1, 2\]; needed: \[dx, dy, dz\]"),
        ([[[1, 2, 3], [1, 2, 0]]], r"\[0\]\[1\]\[2\] is 0; needed: a positive number"),
        ("[[[1, 2, NaN]]]", r"\[0\]\[0\]\[2\] is nan"),
        ([[[1, 2, True]]], r"\[0\]\[0\]\[2\] is True"),
        ([[[1, 2, 3, 0]]], r"\[0\]\[0\] is 0; needed: a whole number, 1 or more"),
        ([[[1, 2, 3, 1, 0, 0, 0]]], r"\[0, 0, 0\]; needed: three flags"),
        ([[{"count": 1}]], r"\[0\]\[0\] is .*an object with the field 'dims'"),
        ({"a": 1}, "needed: a list of sequences, or an object with sequences, instances or orders"),
        ({"instances": [{"name": "a"}]}, r"instances\[0\] is .*one of the fields types, boxes"),
        (loading(container=[9, 9]), r"instances\[0\]\.container is \[9, 9\]; needed: three pos"),
        (loading(online_order=[0]), r"instances\[0\]\.online_order .*as often as its count says"),
        ({**loading(), "unit": "furlong"}, r"unit is 'furlong'; needed: one of .*cm.*abstract"),
        ({"orders": [{"order": "1"}]}, r"orders\[0\] is .*the field 'items_mm'"),
        ("1,2\n", r"line 1\[2\] is None; needed: a positive number"),
        ("1,2,3\n1,x,3\n", r"line 2 is .*numbers; 'x' is not a number"),
        ("1,2,3,4,1,1,1,9\n", r"line 1 is .*at most 7 entries"),
        ("1,2,3,1.5\n", r"line 1 is 1\.5; needed: a whole number"),
        ("dx,dy\n1,2\n", "the header is .*needed: dx, dy, dz"),
        ("dx;dy;dz;cuont\n4;3;2;1\n", "did you mean count"),
        ("dx,dy,dz\n", "no cuboid in it"),
        ("dx,dy,dz,dx\n1,2,3,4\n", "the header is .*needed: each column once"),
        ('1,2,3\n1,"2\n5",3\n1,2,3\n', r"line 3 is .*numbers; '2\\n5' is not a number"),
        ("1,2,3,1000001\n", r"line 1 is 1000001; needed: a count of at most 1000000"),
        ([[[1, 2, 3]], [[1, 2, 3, 600_000]] * 2], "counts of instance 1 add up to 1200000 items"),
        ([[[1, 2, 10**400]]], r"\[0\]\[0\]\[2\] is 10+ \.\.\.; needed: a positive number"),
        ("some words\n", r"the header is \['some words'\]; needed: dx, dy, dz"),
    ],
)
def test_a_bad_file_names_the_place(content: Any, message: str, tmp_path: Path) -> None:
    path = write(tmp_path, content, "bad")
    with pytest.raises(SequenceError, match=message) as error:
        CuboidSequences(path).cuboids(Request.of(CUBE))
    assert str(path) in str(error.value)
