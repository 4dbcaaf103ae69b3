"""Plans of other programs: the values read, and the verdict on each container."""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

import packing_env as pe
from agents.cli import main as cli
from packing_env.plan import ForeignOptions, Judgement, PlanError, check_foreign
from packing_env.planner import Part, save

CONTAINER = {"length": 12, "width": 8, "height": 10}
METRES = (Fraction("1.2"), Fraction("0.8"), Fraction("1"))
PLACES = {
    "valid": (((0, 0, 4), (6, 4, 4)), ((0, 0, 0), (6, 8, 4)), ((6, 0, 0), (6, 8, 4))),
    "overlap": (((0, 0, 0), (6, 8, 4)), ((5, 0, 0), (6, 8, 4))),
    "outside": (((0, 0, 0), (6, 8, 4)), ((7, 0, 0), (6, 8, 4))),
    "lid": (((0, 0, 0), (6, 8, 4)), ((0, 0, 4), (6, 8, 7))),
    "floating": (((0, 0, 0), (6, 8, 4)), ((6, 0, 4), (6, 8, 4))),
}
"""Positions and sizes of boxes in a container of 12 x 8 x 10, by the verdict on the second."""
Places = tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]


def own(places: Places) -> str:
    boxes = [{"name": f"b{n}", "position": p, "size": s} for n, (p, s) in enumerate(places)]
    return json.dumps({"container": CONTAINER, "boxes": boxes})


def boxpacker(places: Places) -> str:
    inner = {"innerWidth": 12, "innerLength": 8, "innerDepth": 10}
    items = [
        {
            **dict(zip("xyz", p, strict=True)),
            **dict(zip(("width", "length", "depth"), s, strict=True)),
            "item": {"description": f"b{n}", "allowedRotation": 6},
        }
        for n, (p, s) in enumerate(places)
    ]
    return json.dumps([{"box": {"reference": "Le box", **inner}, "items": items}])


def boxpacker_url(places: Places) -> str:
    items = {str(n): [f"b{n}", *s] for n, (_, s) in enumerate(places)}
    rows = [[n, *p, *s] for n, (p, s) in enumerate(places)]
    data = json.dumps({"items": items, "boxes": [["Le box", 12, 8, 10, rows]]})
    return f"https://boxpacker.io/en/master/visualiser.html#packing={quote(data)}\n"


def py3dbp(places: Places) -> str:
    lines = ["::::::::::: Le box(12.000x8.000x10.000, max_weight:99.000) vol(960.000)"]
    for n, ((x, y, z), (dx, dy, dz)) in enumerate(places):  # lying by rotation type 2: H, D, W
        sides, at = f"{dz}.000x{dx}.000x{dy}.000", f"[Decimal('{x}.000'), {y}, Decimal('{z}.0')]"
        lines.append(f"====>  b{n}({sides}, weight: 1.000) pos({at}) rt(2) vol(1)")
    lines += ["UNFITTED ITEMS:", "====>  b9(90x9x9, weight: 1) pos([0, 0, 0]) rt(0) vol(7290)"]
    return "\n".join(lines)


def packingsolver(places: Places) -> str:
    rows = ["TYPE,ID,COPIES,BIN,X,Y,Z,LX,LY,LZ,ROTATION", "BIN,0,1,0,0,0,0,12,8,10,"]
    rows += [f"ITEM,{n},1,0,{','.join(map(str, (*p, *s)))},XYZ" for n, (p, s) in enumerate(places)]
    return "\n".join(rows)


def bed_bpp(places: Places) -> str:
    """Write lengths of decimetres as millimetres; every other box is turned."""
    actions = []
    for n, (position, (dx, dy, dz)) in enumerate(places):
        length, width = (dy, dx) if n % 2 else (dx, dy)
        sides = {"length/mm": 100 * length, "width/mm": 100 * width, "height/mm": 100 * dz}
        item = {"article": f"b{n}", "id": str(n), "weight/kg": 1.5, "sequence": n + 1, **sides}
        at = [100 * x for x in position]
        actions.append({"item": item, "flb_coordinates": at, "orientation": n % 2})
    return json.dumps({"00100408": actions})


WRITERS = (own, boxpacker, boxpacker_url, py3dbp, packingsolver, bed_bpp)


def judge(path: Path, text: str, options: ForeignOptions | None = None) -> list[Judgement]:
    path.write_text(text)
    judgements = check_foreign(path, options)
    assert judgements is not None
    return judgements


def claim(folder: Path, text: str, options: ForeignOptions | None = None) -> str | None:
    """Return the claim that fails in a plan of one container."""
    (judgement,) = judge(folder / "plan", text, options)
    violation = judgement.report.violation
    return violation and violation.claim


@pytest.mark.parametrize("verdict", PLACES)
@pytest.mark.parametrize("write", WRITERS)
def test_the_first_violation_of_every_format(write: Any, verdict: str, tmp_path: Path) -> None:
    options = ForeignOptions(container=METRES) if write is bed_bpp else None
    places: Any = PLACES[verdict]
    if write is bed_bpp and verdict == "valid":
        places = (*places[1:], places[0])  # its list is the order of loading
    (judgement,) = judge(tmp_path / "plan", write(places), options)
    violation = judgement.report.violation
    if verdict == "valid":
        assert violation is None
        assert judgement.report.items == 3
        assert judgement.report.height == pytest.approx(0.8 if write is bed_bpp else 8)
        assert judgement.unstable is None
    else:
        assert violation is not None
        assert (violation.item, violation.claim) == (1, verdict)
        assert violation.name == ("item type 1" if write is packingsolver else "b1")


def test_bed_bpp_is_judged_in_its_order(tmp_path: Path) -> None:
    text = bed_bpp((((6, 0, 0), (6, 8, 4)), *PLACES["valid"][:2]))
    assert claim(tmp_path, text, ForeignOptions(container=METRES)) == "floating"


def test_every_container_is_named_and_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "certificate.csv"
    rows = "BIN,0,2,1,0,0,0,12,8,10,\nITEM,0,2,1,7,0,0,6,8,4,XYZ"
    path.write_text(f"{packingsolver(PLACES['valid'])}\n{rows}\n")
    assert cli.main(["check", str(path), "--unit", "cm"]) == 1
    first, second = capsys.readouterr().out.splitlines()
    assert "PackingSolver, bin 0: holds: 3 items" in first
    assert first.endswith("height 8 cm")
    assert "bin 1, 2 copies: REFUSED, item 0 (item type 0): outside" in second
    assert second.endswith("7 .. 13 cm")


def test_decimals_are_exact(tmp_path: Path) -> None:
    def side(width: str) -> str:
        boxes = [
            f'{{"position": [{x}, 0, 0], "size": [{dx}, 1, 1]}}'
            for x, dx in (("0", "0.1"), ("0.1", "0.2"), (width, "0.4"))
        ]
        size = '{"length": 0.7, "width": 1, "height": 1}'
        return f'{{"unit": "in", "container": {size}, "boxes": [{", ".join(boxes)}]}}'

    for exact_fit in ("0.3", "0.30000000000000004", "0.2999999999999999"):  # sums of binary numbers
        assert claim(tmp_path, side(exact_fit)) is None
    binary = own((((0, 0, 0), (5 + 2**-15, 8, 4)), ((5 + 2**-15, 0, 0), (7 - 2**-15, 8, 4))))
    assert "5.000030517578125" in binary
    assert claim(tmp_path, binary) is None
    spaced = packingsolver(PLACES["valid"]).replace("0,12,8,", "0, 12, 8 ,")
    assert claim(tmp_path, spaced) is None
    violation = judge(tmp_path / "plan", side("0.29999999"))[0].report.violation
    assert violation is not None
    assert violation.claim == "overlap"
    assert "1e-08 x 1 x 1 in" in violation.found
    with pytest.raises(PlanError, match="round"):
        judge(tmp_path / "plan", side("0.30000000000004"))


def test_stability_is_reported_and_refused_if_asked_for(tmp_path: Path) -> None:
    text = own((((0, 0, 0), (2, 8, 4)), ((0, 0, 4), (6, 8, 4))))
    (judgement,) = judge(tmp_path / "plan", text)
    assert judgement.report.holds
    assert "item 1 (b1)" in str(judgement.unstable)
    assert claim(tmp_path, text, ForeignOptions(stability="com_hull")) == "stability"


@pytest.mark.parametrize(
    ("rules", "broken"),
    [
        ({"stability": "com_hull"}, "stability"),
        ({"support": 0.5}, "support"),
        ({"weight_limit": 9.5}, "weight_limit"),
        ({"weight_limit": 10, "support": 0.3}, None),
    ],
)
def test_rules_of_the_file(rules: dict[str, Any], broken: str | None, tmp_path: Path) -> None:
    plan = json.loads(own((((0, 0, 0), (2, 8, 4)), ((0, 0, 4), (6, 8, 4)))))
    for box in plan["boxes"]:
        box["weight"] = 5
    assert claim(tmp_path, json.dumps({**plan, "rules": rules})) == broken


def test_weight_limit_of_py3dbp(tmp_path: Path) -> None:
    text = py3dbp(PLACES["valid"]).replace("max_weight:99.000", "max_weight:2.500")
    assert claim(tmp_path, text) == "weight_limit"


def test_py3dbp_with_the_same_items_in_every_bin(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # distribute_items=False: both bins list each item at its place in the last bin.
    text = py3dbp(PLACES["valid"]).partition("UNFITTED")[0]
    (tmp_path / "plan").write_text(text.replace("12.000x8.000x10.000", "5x5x5", 1) + text)
    assert cli.main(["check", str(tmp_path / "plan")]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "REFUSED" in lines[0]
    assert "distribute_items=True" in lines[1]
    assert "holds" in lines[2]
    assert len(lines) == 3


def test_another_axis_may_point_up(tmp_path: Path) -> None:
    places = tuple(((x, z, y), (dx, dz, dy)) for (x, y, z), (dx, dy, dz) in PLACES["floating"])
    plan = json.loads(own(places)) | {"container": {"length": 12, "width": 10, "height": 8}}
    assert claim(tmp_path, json.dumps(plan)) is None
    assert claim(tmp_path, json.dumps(plan), ForeignOptions(up="y")) == "floating"


@pytest.mark.parametrize(
    ("text", "options", "word"),
    [
        ("name,x,y,z\na,1,2,3", None, "BoxPacker"),
        ("{", None, "JSON"),
        (own(PLACES["valid"])[:-1] + ', "boxes": []}', None, "boxes is given twice"),
        ('{"a": [1]}', None, "BoxPacker"),
        (own(PLACES["valid"])[:-1] + ', "unit": 5}', None, "unit"),
        ('{"container": {}, "boxes": []}', None, "length"),
        ('{"container": "12x8x10", "boxes": []}', None, "container must be an object with name"),
        ('{"container": [12, 8, 10], "boxes": []}', None, "container must be an object with name"),
        (own(PLACES["valid"]).replace("boxes", "unit", 0)[:-1] + ', "size": 3}', None, "size"),
        (own(PLACES["valid"]).replace('"b0"', '"b0", "weihgt": 3'), None, "weihgt"),
        (own(PLACES["valid"]).replace("[0, 0, 4]", "[0, 0]"), None, "three"),
        (own(PLACES["valid"]).replace("[0, 0, 4]", "[0, 0, NaN]"), None, "number"),
        (own(PLACES["valid"])[:-1] + ', "rules": {"weight_limit": 3}}', None, "weight"),
        (own(PLACES["valid"])[:-1] + ', "unit": "cm"}', ForeignOptions(unit="mm"), "--unit"),
        (own(PLACES["valid"]), ForeignOptions(container=METRES), "--container"),
        (own(PLACES["valid"]), ForeignOptions(stability="firm"), "firm"),
        (bed_bpp(PLACES["valid"]), None, "--container"),
        (packingsolver(PLACES["valid"]).replace("BIN,0,1,0", "BIN,0,1,3"), None, "bin 0"),
        (py3dbp(PLACES["valid"]).replace("rt(2)", "rt(7)"), None, "rotation type 7"),
        (py3dbp(PLACES["valid"]).replace(") vol(960", " vol(960"), None, "item of a bin"),
    ],
)
def test_unreadable_plans(
    text: str, options: ForeignOptions | None, word: str, tmp_path: Path
) -> None:
    with pytest.raises(PlanError, match=word) as error:
        judge(tmp_path / "plan.x", text, options)
    assert str(tmp_path / "plan.x") in str(error.value)


def test_plans_of_ours_are_of_no_other_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options for other programs are refused; the height is in the unit of the order."""
    box = Part(sides=("4 1/8",) * 3, unit="in", name="box")
    plan, *_ = save(pe.pack(box, "12x8x10in", 1.0), tmp_path, size=64)
    assert check_foreign(plan) is None
    assert cli.main(["check", str(plan), "--unit", "cm"]) == 2
    assert cli.main(["check", str(plan)]) == 0
    assert capsys.readouterr().out.rstrip().endswith("height 4.125 in")
