"""The simulation of plans: what stands, what falls, and that it is the same every time."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.plan_files import placed_box

from agents import heuristics
from agents.cli import main as cli
from agents.training.evaluate import evaluate
from packing_env.extras import MissingPackageError
from packing_env.items import shapes
from packing_env.physics import PhysicsReport, Pile, load_mujoco, parts, read_settings, simulate
from packing_env.physics.parts import convex_parts
from packing_env.plan import Packing, save_plan
from packing_env.reference.solids import Solid, measure
from packing_env.tasks import make_env
from packing_env.types import ParameterError

Box = tuple[float, float, float, float, float, float]
"""Corner and sides, in cells of 1 m."""


@pytest.fixture
def physics() -> None:
    """Skip, with the reason, where MuJoCo is missing."""
    for name in ("mujoco", "manifold3d"):
        pytest.importorskip(name, reason=f"{name} is missing: pip install 'packing-env[physics]'")


def packed(boxes: Sequence[Box], container: tuple[float, float, float] = (10, 10, 10)) -> Packing:
    items = tuple(
        placed_box(order, f"box{order}", corner, (dx, dy, dz))
        for order, (*corner, dx, dy, dz) in enumerate(boxes)
    )
    return Packing(container, 1.0, "none", items, len(items))


def mesh(name: str, rotation: np.ndarray, low: tuple[float, float, float]) -> Packing:
    """Return a container of 0.3 m with one embedded shape, turned, its box's corner at ``low``."""
    shape = shapes.SHAPES[name].mesh()
    turned = shape.vertices.numpy() @ rotation.T
    item = placed_box(
        0,
        name,
        low,
        (),
        source=f"shapes:{name}",
        extent=None,
        rotation=rotation,
        translation=np.array(low) - turned.min(0),
        volume=shape.volume,
    )
    return Packing((0.3, 0.3, 0.3), 0.01, "none", (item,), 1, contact_tol=0.01)


def play(packing: Packing, **settings: Any) -> PhysicsReport:
    return simulate(packing, read_settings(settings))


FLOOR = (2.0, 2.0, 0.0, 2.0, 4.0, 2.0)
"""Support from 2 to 4 along x."""


@pytest.mark.usefixtures("physics")
@pytest.mark.parametrize(("order", "walls"), [("sequential", True), ("released", False)])
@pytest.mark.parametrize(
    ("boxes", "stands"),
    [
        ([(3, 3, 0, 2, 2, 2)], True),
        ([(3, 3, 0, 1, 5, 6)], True),
        ([(3, 3, 2 * k, 2, 2, 2) for k in range(5)], True),  # a tower
        ([FLOOR, (2, 2, 2, 3, 4, 1)], True),  # centre half a cell inside
        ([FLOOR, (2, 2, 2, 4, 4, 1)], False),  # centre on the edge: neutral, and falls
        ([FLOOR, (2, 2, 2, 6, 4, 1)], False),  # centre one cell over the edge
        ([FLOOR, (6, 2, 0, 2, 4, 2), (2, 2, 2, 6, 4, 1)], True),  # a bridge
        # The second box stands alone; the third, over its overhang, turns it over.
        ([FLOOR, (2, 2, 2, 3, 4, 1), (4, 2, 3, 3, 4, 4)], False),
    ],
    ids=["box", "plate", "tower", "inside", "tie", "over", "bridge", "upset"],
)
def test_boxes(boxes: list[Box], stands: bool, walls: bool, order: str) -> None:
    report = play(packed(boxes), walls=walls, order=order)
    assert report.stands == stands
    assert (report.count("toppled") > 0) == (not stands)
    if stands:
        assert report.utilization_kept == pytest.approx(report.utilization)
        assert max(item.shift for item in report.items) < 0.01
        assert report.first_failure is None
    else:
        assert report.utilization_kept < report.utilization
        assert report.first_failure == (len(boxes) - 1 if order == "sequential" else None)


@pytest.mark.usefixtures("physics")
def test_an_item_that_falls_is_counted() -> None:
    """One item starts in the air, another over the edge of a container without walls."""
    report = play(packed([(3, 3, 5, 2, 2, 2)]))
    assert (report.count("moved"), report.count("fallen"), report.count("toppled")) == (1, 1, 0)
    report = play(packed([(8, 3, 0, 2, 2, 4), (8, 3, 4, 8, 2, 1)]), walls=False, order="released")
    assert report.count("fallen") == 1
    assert report.items[1].fallen


@pytest.mark.usefixtures("physics")
def test_a_fixed_box_carries_items() -> None:
    packing = packed([(1, 1, 3, 2, 2, 2)])
    on_box = replace(packing, constraints={"preplaced": [[0, 0, 0, 4, 4, 3]]})
    beside = replace(packing, constraints={"preplaced": [[5, 5, 0, 4, 4, 3]]})
    assert [play(each).stands for each in (on_box, beside)] == [True, False]


@pytest.mark.usefixtures("physics")
def test_only_the_deck_of_a_pallet_carries_items() -> None:
    """The deck reaches from 3 to 7 along x."""
    pallet = {"overhang": [3, 0]}
    for low, stands in ((1.5, True), (0.0, False), (6.5, False)):
        packing = replace(packed([(low, 1, 0, 3.5, 2, 2)]), constraints=pallet)
        assert play(packing, walls=False).stands == stands


@pytest.mark.usefixtures("physics")
@pytest.mark.parametrize("edge", ["+x-z", "-x-z", "+y-z", "-y-z"])
def test_the_plane_of_a_cut_edge_holds_a_box_that_leans_on_it(edge: str) -> None:
    # Along the cut axis, from the far wall: the plane rises from 4 to 0. The centre of the second
    # box is half a cell beyond its support, and its lower edge touches the plane.
    boxes = []
    for low, z, side in ((4.0, 0.0, 2.0), (2.0, 2.0, 3.0)):
        start = 10.0 - low - side if edge[0] == "+" else low
        x, y, dx, dy = (start, 4.0, side, 2.0) if edge[1] == "x" else (4.0, start, 2.0, side)
        boxes.append((x, y, z, dx, dy, 2.0))
    plain = packed(boxes)
    assert not play(plain).stands
    assert play(replace(plain, constraints={"cut": [[edge, 4.0, 4.0]]})).stands


@pytest.mark.usefixtures("physics")
def test_an_item_is_lowered_not_dropped() -> None:
    """A plate above a box floats by half a cell."""
    report = play(packed([(3, 3, 0, 2, 2, 2), (3, 3, 2.5, 2, 2, 1)]))
    assert report.stands
    assert report.items[1].shift == pytest.approx(0.5, abs=0.01)
    assert report.items[1].degrees < 0.5
    assert report.settled.items[1].z == pytest.approx(2.0, abs=0.01)


@pytest.mark.usefixtures("physics")
def test_friction_holds_a_slope() -> None:
    """A plate that leans over the edge of a box slides without friction."""
    angle = np.radians(20.0)
    turn = np.array(
        [[np.cos(angle), 0, np.sin(angle)], [0, 1, 0], [-np.sin(angle), 0, np.cos(angle)]]
    )
    ramp = mesh("ramp", np.eye(3), (0.1, 0.1, 0.0))
    assert play(ramp, walls=False).stands
    tilted = mesh("ramp", turn, (0.1, 0.1, 0.0))
    assert play(tilted, walls=False).count("toppled") == 1


@pytest.mark.usefixtures("physics")
@pytest.mark.parametrize("trials", [1, 3])
def test_a_pile_refuses_what_would_move_and_stays_as_it_was(trials: int) -> None:
    base, beside = (4, 4, 0, 2, 2, 2), (0, 0, 0, 2, 2, 2)
    over, on_top = (5.5, 4, 2, 3, 2, 1), (4, 4, 2, 3, 2, 1)
    container = packed([base, over, beside])
    settings = read_settings({"jolt": 0.0})
    tried, plain = (Pile(container, settings, trials) for _ in range(2))
    for pile in (tried, plain):
        assert pile.place(container.items[0])
    assert not tried.place(container.items[1])
    for pile in (tried, plain):
        assert pile.place(packed([base, on_top, beside]).items[1])
        assert pile.place(container.items[2])
    assert np.array_equal(tried.state, plain.state)


def solid_of_shape(name: str, stretch: float = 1.0) -> tuple[Solid, float]:
    shape = shapes.SHAPES[name].mesh()
    vertices = shape.vertices.numpy() * np.array([stretch, 1.0, 1.0])
    return Solid(vertices, shape.faces.numpy()), shape.volume * stretch


def volume_of(hull: np.ndarray) -> float:
    return measure(Solid(hull.reshape(-1, 3), np.arange(3 * len(hull)).reshape(-1, 3)))[0]


def test_parts_of_embedded_shapes_come_with_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts need no CoACD, and have the volume of their solids."""
    pytest.importorskip("manifold3d")
    monkeypatch.setitem(sys.modules, "coacd", None)
    monkeypatch.setenv("XDG_CACHE_HOME", "/nowhere")
    error = read_settings().parts_error
    several = 0
    for name in shapes.SHAPES:
        solid, volume = solid_of_shape(name)
        found = convex_parts(solid, volume, error)
        assert abs(found.error) <= error, name
        total = sum(volume_of(hull) for hull in found.hulls)
        assert total == pytest.approx(volume * (1 + found.error)), name
        several += len(found.hulls) > 1
    assert several > 40
    with pytest.raises(MissingPackageError, match=r"packing-env\[physics\]"):
        convex_parts(*solid_of_shape("tetracube_l", stretch=1.3), error)


def test_parts_of_other_solids_are_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The computation takes up to minutes, and a log line says so beforehand."""
    pytest.importorskip("coacd", reason="coacd is missing: pip install 'packing-env[physics]'")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    solid, volume = solid_of_shape("tetracube_l", stretch=1.25)
    first = convex_parts(solid, volume, 0.03)
    assert len(first.hulls) >= 2  # its hull has a quarter more volume
    assert abs(first.error) < 0.03
    assert "computing the convex parts of a mesh of" in caplog.text
    caplog.clear()
    monkeypatch.setitem(sys.modules, "coacd", None)
    parts._unit_parts.cache_clear()
    again = convex_parts(solid, volume, 0.03)
    assert all(np.array_equal(a, b) for a, b in zip(first.hulls, again.hulls, strict=True))
    assert not caplog.text


def test_damaged_parts_in_the_cache_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    file = parts._place("solid")
    with file.open("wb") as stream:
        parts.save_parts(stream, {"solid": [np.eye(3)]})
    whole = file.read_bytes()
    assert parts._read("solid") is not None
    altered = whole[:100] + bytes([whole[100] ^ 255]) + whole[101:]
    for damaged in (b"", whole[:60], altered):
        file.write_bytes(damaged)
        assert parts._read("solid") is None


# ------------------------------------------------------------------ settings and commands


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"frictoin": 1.0}, "did you mean friction"),
        ({"density": 0}, "density"),
        ({"order": "random"}, "order"),
        ({"walls": 1}, "walls"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        read_settings(settings)


def test_settings_that_are_given_twice_are_refused(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("friction: 0.5\nfriction: 0.2\n", encoding="utf-8")
    with pytest.raises(ParameterError, match="line 2: friction is given twice"):
        read_settings(tmp_path / "settings.yaml")


def test_without_mujoco_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "mujoco", None)
    with pytest.raises(MissingPackageError, match=r"packing-env\[physics\]"):
        load_mujoco()
    assert cli.main(["check", "plan.json", "--physics"]) != 0
    assert "packing-env[physics]" in capsys.readouterr().err


@pytest.mark.usefixtures("physics")
def test_the_command_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, boxes, code in (
        ("stands", [FLOOR], 0),
        ("falls", [FLOOR, (2, 2, 2, 6, 4, 1)], 1),
    ):
        plan = tmp_path / f"{name}.json"
        packing = packed(boxes)
        items = [
            replace(item, support_ratio=1 / 3 if i else 1.0) for i, item in enumerate(packing.items)
        ]
        save_plan(plan, replace(packing, items=tuple(items)))
        assert cli.main(["check", str(plan)]) == 0
        capsys.readouterr()
        page = tmp_path / f"{name}.html"
        assert cli.main(["check", str(plan), "--physics", "--html", str(page)]) == code
        text = capsys.readouterr().out
        assert ("DOES NOT STAND in simulation" in text) == bool(code)
        assert "came to rest" in page.read_text(encoding="utf-8")
    assert cli.main(["check", str(plan), "--physics", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)[0]["physics"]
    assert report["first_failure"] == 1
    assert report["moved"] == 1
    assert report["items"][1]["toppled"]
    assert len(report["items"][1]["quaternion"]) == 4


@pytest.mark.usefixtures("physics")
@pytest.mark.parametrize(("task", "least", "most"), [("irregular", 0.7, 1.0),
                                                     ("irregular_com_hull", 0.1, 0.5)])  # fmt: skip
def test_what_the_default_packs_stands(task: str, least: float, most: float) -> None:
    """Of what the former default packs, most falls over or was never held."""
    env = make_env(task, num_envs=2, split="test", draw="sequential", pool_size=2)
    found = evaluate(env, heuristics.build("deepest_bottom_left", env), 2, keep=2)
    reports = [play(packing) for packing in found.packings(env)]
    kept, packed = (sum(getattr(report, name) for report in reports)
                    for name in ("utilization_kept", "utilization"))  # fmt: skip
    assert least < kept / packed < most
