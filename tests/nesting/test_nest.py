"""`nest` packs parts into each other, keeps distances and ways out, and says what is left."""

import itertools
import math
import sys
import time
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.mesh_files import box_mesh, tetrahedron, write_stl
from tests.planner.orders import patiently

pytest.importorskip("numba")

import packing_env as pe
from packing_env.constraints import Constraints
from packing_env.items import CatalogueError, Mesh, mesh_from_arrays
from packing_env.items.rotations import rotation_set
from packing_env.items.shapes import SHAPES
from packing_env.kernels.nests.overlaps_numba import measure
from packing_env.nesting import levels
from packing_env.nesting.bits import from_bits
from packing_env.nesting.cells import default_cell
from packing_env.nesting.levels import Level, MeshPart, Room, Sketch, as_given
from packing_env.nesting.pieces import Piece, leaving, to_nest
from packing_env.nesting.search import NestSearch, _Failed
from packing_env.plan import Packing, check_plan, save_plan
from packing_env.planner import Fill, Part, Plan
from packing_env.planner.reading.containers import read_containers
from packing_env.values import ParameterError

CELL = 0.01
CUP = np.ones((6, 6, 6), bool)
CUP[1:5, 1:5, 1:] = False


def solid(voxels: np.ndarray, name: str) -> Mesh:
    """Return the surface of voxels of 1 cm as a mesh."""
    corners = np.array([[0, 0, 0], [0, 1, 0], [0, 1, 1], [0, 0, 1]])
    vertices, faces = [], []
    padded = np.pad(voxels, 1)
    for axis in range(3):
        ring = np.roll(corners, axis, 1)
        for side in (0, 1):
            beside = np.roll(padded, -1 if side else 1, axis)
            for voxel in np.argwhere(padded & ~beside) - 1:
                first = len(vertices)
                square = ring + np.eye(3, dtype=int)[axis] * side + voxel
                vertices += (square if side else square[::-1]).tolist()
                faces += [[first, first + 1, first + 2], [first, first + 2, first + 3]]
    mesh = mesh_from_arrays(np.array(vertices) * CELL, np.array(faces), name=name)
    assert mesh.watertight
    assert mesh.volume == pytest.approx(voxels.sum() * CELL**3)
    return mesh


def cup() -> Part:
    return Part(mesh=solid(CUP, "cup"))


def cube(side: int, quantity: int = 1) -> Part:
    name = f"cube{side}"
    return Part(mesh=solid(np.ones((side,) * 3, bool), name), quantity=quantity)


def stated(*sides: Any) -> Part:
    """Return a box with sides in millimetres."""
    return Part(sides=sides, unit="mm")


def written(*sides: Any) -> Part:
    """Return a mesh of a box with sides in millimetres, away from the origin."""
    return Part(mesh=box_mesh(*(float(side) / 1000 for side in sides), at=(-0.3, 0.7, 0.1)))


def beside_a_mesh(*boxes: Sequence[int]) -> list[Part]:
    return [Part(mesh=tetrahedron()), *(stated(*sides) for sides in boxes)]


def packed(plan: Plan) -> list[str]:
    return sorted(item.name for packing in plan.containers for item in packing.items)


def bounds(packing: Packing, meshes: dict[str, Mesh]) -> list[tuple[np.ndarray, np.ndarray]]:
    placed = []
    for item in packing.items:
        points = meshes[item.name].vertices.numpy() @ item.rotation.T + item.translation
        placed.append((points.min(0), points.max(0)))
    return placed


def test_a_cube_goes_into_a_cup() -> None:
    plan = pe.nest([cup(), cube(4)], (0.06, 0.06, 0.06), 5.0, cell=CELL)
    assert packed(plan) == ["cube4", "cup"]
    assert not plan.left
    assert plan.utilization == pytest.approx((CUP.sum() + 64) / 216)
    # Either one leaves through the open side of the cup, away from the other one.
    assert all(item.leaves for item in plan.containers[0].items)


@pytest.mark.parametrize("gap", [0.0, 0.004])
def test_parts_with_faces_along_the_axes_need_no_cell(gap: float) -> None:
    inner = Part(mesh=box_mesh(*[0.04 - 2 * gap] * 3, name="cube4"))
    plan = pe.nest([cup(), inner], (0.06 + 2 * gap,) * 3, 0.5, clearance=gap)
    assert packed(plan) == ["cube4", "cup"]


def test_a_part_that_could_not_leave_is_left_out_unless_allowed() -> None:
    shell = np.ones((6, 6, 6), bool)
    shell[1:5, 1:5, 1:5] = False
    parts = [Part(mesh=solid(shell, "shell")), cube(4)]
    plan = pe.nest(parts, (0.06, 0.06, 0.06), 0.2, cell=CELL)
    assert packed(plan) == ["shell"]
    assert [(part.name, part.quantity) for part in plan.left] == [("cube4", 1)]
    locked = pe.nest(parts, (0.06, 0.06, 0.06), 5.0, cell=CELL, interlocking=True)
    assert packed(locked) == ["cube4", "shell"]
    assert {item.name: item.leaves for item in locked.containers[0].items}["cube4"] is None


@pytest.mark.parametrize("clearance", [0.0, 0.004])
def test_real_solids_keep_their_distances(clearance: float, tmp_path: Path) -> None:
    names = ("dome", "sphere", "tetracube_l", "pillow")
    parts = [Part(mesh=SHAPES[name].mesh(), quantity=2) for name in names]
    side = 2.2 * max(float(part.load().extents.max()) for part in parts)
    plan = pe.nest(parts, (side,) * 3, 0.5, cell=side / 30, clearance=clearance * side)
    assert plan.num_packed >= 5
    packing = plan.containers[0]
    assert packing.geometry == "solids"
    for index, item in enumerate(packing.items):
        assert item.order == index
    save_plan(tmp_path / "plan.json", packing)
    report = check_plan(tmp_path / "plan.json")
    assert report.holds, report.violation


def test_walls_and_keep_outs_stay_clear() -> None:
    meshes = {"cube2": cube(2).load()}
    plan = pe.nest(
        [cube(2, 40)], (0.1, 0.1, 0.1), 0.3, cell="5mm", wall_clearance="5mm",
        preplaced=["5x10x10cm@0,0,0"],
    )  # fmt: skip
    assert plan.num_packed > 8
    for low, high in bounds(plan.containers[0], meshes):
        assert low.min() >= 0.005 - 1e-9
        assert high.max() <= 0.095 + 1e-9
        assert low[0] >= 0.05 - 1e-9


def test_the_default_voxels_suit_the_boxes_and_are_no_larger_for_meshes() -> None:
    (kind,) = read_containers("380x284x380mm")
    mesh, carton = Part(mesh=tetrahedron()), stated(50, 30, 20)
    rod = stated(1201.3, 7, 7)  # does not fit, so it does not count

    def cell(*order: Part, yaw: float | None = None) -> float:
        return default_cell(order, kind, Constraints(), yaw)

    assert cell(carton) == cell(carton, rod) == 0.01
    assert cell(mesh, carton) <= cell(mesh)
    assert cell(carton, yaw=45.0) <= cell(mesh)
    odd = Part(mesh=box_mesh(0.0041234567, 0.0023456789, 0.0034567891))
    assert cell(carton, odd) == cell(carton, mesh)


@pytest.mark.parametrize("seconds", [1.0, 2.0, 5.0, 60.0])
@pytest.mark.parametrize(
    ("size", "order", "divided"),
    [
        # Meshes that fit exactly.
        ("10x10x10cm", [cube(5)], [0.05]),
        ("12x9x6cm", [cube(3)], [0.03]),
        ("14x21x7cm", [cube(7)], [0.07]),
        # Of the voxels that divide the boxes, those that divide the container are taken.
        (
            "250x120x120mm",
            [stated(100, 100, 100), Part(mesh=tetrahedron().scaled(0.8))],
            [0.1, 0.25, 0.12],
        ),
        # Boxes that fill the container.
        (
            "150x100x100mm",
            beside_a_mesh((85, 100, 30), (65, 100, 30), (85, 100, 70), (65, 85, 70)),
            [0.005],
        ),
        (
            "200x110x130mm",
            beside_a_mesh((40, 110, 45), (160, 110, 45), (40, 110, 85), (160, 80, 85)),
            [0.005],
        ),
    ],
)
def test_the_default_voxels_divide_parts_and_container(
    size: str, order: list[Part], divided: list[float], seconds: float
) -> None:
    (kind,) = read_containers(size)
    counts = np.array(divided) / default_cell(order, kind, Constraints(), None, seconds)
    assert counts == pytest.approx(counts.round(), abs=1e-6)


@pytest.mark.parametrize(
    ("sides", "size", "gap"),
    [
        ((100, 100, 100), "300x100x100mm", 0),
        ((99, 99, 99), "301x101x101mm", 1),
        ((40, 30.5, 20), "61x40x45mm", 0),
        ((Fraction(31, 3), Fraction(20, 3), 5), "62/3x40/3x10mm", 0),
        ((12.7, 25.4, 6.35), "2x4x1in", 0),
    ],
)
def test_the_default_voxels_of_a_mesh_of_a_box_are_those_of_the_box(
    sides: tuple[Any, Any, Any], size: str, gap: int
) -> None:
    (kind,) = read_containers(size)
    rules = Constraints(clearance=gap / 1000)
    of_box, of_mesh = (
        default_cell([part], kind, rules, None, 1.0) for part in (stated(*sides), written(*sides))
    )
    assert of_box == of_mesh


@pytest.mark.parametrize(
    ("box", "words"),
    [
        (stated(71, 53, 37), "voxels; --cell 1mm divides them"),
        (stated(71.0001, 53.0002, 37.0003), "whole voxels"),
        (written(71, 53, 37), "voxels; --cell 1mm divides them"),
        (written(71.0001, 53.0002, 37.0003), ""),
    ],
)
def test_a_warning_that_voxels_do_not_divide_boxes_is_given_where_it_helps(
    box: Part, words: str, caplog: pytest.LogCaptureFixture
) -> None:
    (kind,) = read_containers("389x409x397mm")
    default_cell([Part(mesh=tetrahedron()), box], kind, Constraints(), None, 1.0)
    assert bool(caplog.messages) == bool(words)
    assert words in caplog.text


def test_the_default_voxels_are_larger_for_a_short_search_but_the_parts_still_fit() -> None:
    (kind,) = read_containers("81x81x29mm")
    solid = tetrahedron()
    flat = solid.vertices.numpy() * [0.081 / 0.05, 0.081 / 0.03, 0.0003 / 0.04]
    sheet = Part(mesh=mesh_from_arrays(flat, solid.faces))
    short, long = (default_cell([sheet], kind, Constraints(), None, s) for s in (2.0, 60.0))
    assert short > 2.0 * long
    for cell in (short, long):
        assert 0.081 / cell == pytest.approx(round(0.081 / cell), abs=1e-6)


@pytest.mark.parametrize("gap", [0, 2])
def test_boxes_that_fit_exactly_need_no_cell(gap: int) -> None:
    """Also with a clearance, and beside a box that is there before."""
    part = Part(sides=(50, 40, 30), unit="mm", quantity=7)
    sides = [3 * gap + 2 * side for side in part.sides or ()]
    options = {"clearance": f"{gap}mm"} if gap else {}
    place = ",".join([str(gap)] * 3)
    plan = pe.nest(
        [part], "x".join(map(str, sides)) + "mm", 1, preplaced=f"50x40x30mm@{place}", **options
    )
    assert plan.num_packed == 7


def test_as_low_as_possible() -> None:
    parts, meshes = [cube(2, 9), cube(3, 4)], {"cube2": cube(2).load(), "cube3": cube(3).load()}

    def top(plan: Plan) -> float:
        return max(high[2] for _, high in bounds(plan.containers[0], meshes))

    plan = patiently(
        lambda plan: top(plan) < 0.0501,
        lambda times: pe.nest(parts, (0.06, 0.06, 0.2), times, cell=CELL, lowest=True),
    )
    assert plan.num_packed == 13
    # Four cubes of 3 fill a floor of 6 x 6, nine cubes of 2 another one.
    assert top(plan) == pytest.approx(0.05)


def test_copies_and_several_containers() -> None:
    plan = patiently(
        lambda plan: plan.copies == 2,
        lambda times: pe.nest(Fill([cup(), cube(4)]), (0.06, 0.06, 0.12), times, cell=CELL),
    )
    assert plan.copies == 2
    two = pe.nest([cube(4, 2)], (0.06, 0.06, 0.06), 2.0, cell=CELL, containers=2)
    assert [len(packing.items) for packing in two.containers] == [1, 1]
    assert not two.left


def test_filling_stops_at_the_largest_number_of_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["packing_env.nesting.nest"], "MAX_PIECES", 10)
    plan = pe.nest(Fill([cube(1)]), (0.06, 0.06, 0.06), 2.0, cell=CELL)
    assert plan.copies == 10


def test_an_interrupted_filling_keeps_its_copies(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original, ended = NestSearch.fill, []

    def interrupted(search: NestSearch, until: float, fillings: int = 10) -> None:
        if search.level.cell < 0.4:  # not to compile
            ended.append(until <= time.perf_counter())
        original(search, until, fillings)
        if len(ended) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(NestSearch, "fill", interrupted)
    plan = pe.nest(Fill([cube(2), cube(1)]), (0.06, 0.06, 0.06), 60.0, cell=CELL)
    assert plan.copies is not None
    assert plan.copies >= 2
    assert not any(ended[:3])
    assert all(ended[3:])  # no time is left for the trials that follow


def test_voxels_too_coarse_for_any_part_are_refined() -> None:
    box = Part(sides=(51, 50, 50), unit="mm")
    kept = ["49x50x50mm@0,0,0"]
    plan = pe.nest([box], "100x50x50mm", 2.0, cell="1mm", preplaced=kept)
    assert plan.num_packed == 1


def test_a_short_search_places_every_part() -> None:
    boxes = [Part(sides=(30 + k, 30, 30), unit="mm") for k in range(6)]
    plan = patiently(
        lambda plan: plan.num_packed == 6,
        lambda times: pe.nest(boxes, "252x252x252mm", 0.3 * times, cell="2mm"),
    )
    assert plan.num_packed == 6
    assert plan.tried == 1  # no other nest is better


def test_sets_that_exceed_the_memory_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("packing_env.memory.free_memory", lambda device: 2**20)
    monkeypatch.setattr("packing_env.memory.TRIFLE", 2**20)
    with pytest.raises(ParameterError, match=r"voxels of 0\.001 m needs .* give a larger cell"):
        pe.nest([cube(2)], "200x200x200mm", 1.0, cell="1mm")


def test_what_is_left_has_a_reason() -> None:
    order = [cube(4, 9), cube(9), stated(40_000, 40_000, 40_000)]
    plan = pe.nest(order, (0.06, 0.06, 0.06), 0.3, cell=CELL)
    assert [(part.quantity, part.reason) for part in plan.left] == [
        (8, "no room found"),
        (1, "fits in no orientation"),
        (1, "fits in no orientation"),
    ]
    full = pe.nest([cube(2), cube(4)], "6x6x6cm", 0.3, cell=CELL, preplaced=["6x6x6cm@0,0,0"])
    assert {part.reason[:10] for part in full.left} == {"preplaced:"}


def test_after_its_time_no_further_part_or_container_is_begun() -> None:
    plan = pe.nest([cube(3, 9), cube(1)], (0.07,) * 3, 1e-9, cell=CELL, containers=3)
    assert plan.num_packed == 1
    assert all("not tried in time" in part.reason for part in plan.left)
    assert all("more seconds" in part.reason for part in plan.left)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        (stated(40, 40, 40), "no part fits"),  # does not blame the cell
        (
            Part(sides=(10, 10, 45), unit="mm", faces=("+z",)),
            "10 x 10 x 45 mm: .* a face up that is not allowed",
        ),
    ],
)
def test_an_order_of_a_box_that_is_too_large_says_why(box: Part, message: str) -> None:
    with pytest.raises(CatalogueError, match=message):
        pe.nest([box], "50x50x20mm", 0.2)


def test_warnings_about_the_meshes_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    whole = cube(4).mesh
    assert whole is not None
    part = Part(mesh=mesh_from_arrays(whole.vertices, whole.faces[1:], name="open"), name="lid")
    pe.nest([part], (0.06,) * 3, 0.2, cell=CELL)
    assert "lid: not watertight" in caplog.text


def test_faces_and_turns_are_kept() -> None:
    rod = np.ones((2, 3, 5), bool)
    upright = Part(mesh=solid(rod, "rod"), faces=("+z",), quantity=2)
    plan = pe.nest([upright], (0.06, 0.06, 0.06), 1.0, cell=CELL)
    assert plan.num_packed == 2
    for item in plan.containers[0].items:
        assert item.rotation[2].tolist() == [0.0, 0.0, 1.0]
    fixed = pe.nest([Part(mesh=solid(rod, "rod"), turn=False)], (0.06, 0.04, 0.06), 1.0, cell=CELL)
    assert fixed.containers[0].items[0].rotation[0, 0] == 1.0


def test_finer_turns_about_z() -> None:
    diagonal = np.ones((9, 1, 1), bool)
    parts = [Part(mesh=solid(diagonal, "rod"))]
    room = (0.08, 0.08, 0.02)
    with pytest.raises(CatalogueError, match=r"no part fits .* rod, is 0\.09 x 0\.01 x 0\.01 m:"):
        pe.nest(parts, room, 1.0, cell="2.5mm")
    assert pe.nest(parts, room, 1.0, cell="2.5mm", yaw=45.0).num_packed == 1


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"yaw": 50.0}, "yaw"),
        ({"seconds": 0.0}, "seconds"),
        ({"cell": 1e-6}, "cell"),
        ({"max_load": 3.0}, "max_load"),
        ({"container": ["6x6x6cm", "8x8x8cm"]}, "one size"),
        ({"container": "6x6x6cm,deck=1cm"}, "deck"),
        ({"parts": [Part(sides=(1, 1, 1), unit="cm", handling={"fragile": True})]}, "fragile"),
        ({"parts": [Part(sides=(1, 1, 1), unit="cm", handling={"value": 3.0})]}, "value"),
        ({"yaw": 1.0}, "yaw"),
        ({"wall_clearance": "3cm"}, "wall_clearance=.* give less than 0.03 m"),
        ({"container": "60x60x20mm", "wall_clearance": "1cm"}, "give less than 0.01 m"),
        ({"cell": "7cm"}, "cell"),
        ({"parts": Fill([cube(2)]), "lowest": True}, "lowest"),
        ({"parts": [cube(2, 6000)], "cell": CELL}, "pieces"),
        ({"parts": [Part(sides=(6, 6, 1), unit="cm")], "cell": "7mm"}, "or use packing pack"),
        (
            {"parts": [Part(mesh=tetrahedron().scaled(1.2))], "cell": "7mm"},
            "smaller cell that divides the sides of container and parts$",
        ),
    ],
)
def test_mistakes_are_named(options: dict[str, object], named: str) -> None:
    given: dict[str, object] = {"parts": [cube(2)], "container": "6x6x6cm", "seconds": 1.0}
    with pytest.raises(ParameterError, match=named):
        pe.nest(**{**given, **options})


def turned_dome(cells: int) -> tuple[Level, NestSearch]:
    """Return domes in every rotation, in a container of twice their length, not yet packed."""
    mesh = SHAPES["dome"].mesh()
    side = 2.0 * float(mesh.extents.max())
    part, room = MeshPart(mesh, rotation_set("pi/2").numpy()), Room(np.full(3, side))
    level = Level([part.voxels], room, side / cells)
    return level, NestSearch(level, [part.volume], [20])


def test_coarse_voxels_keep_volume_and_place() -> None:
    level, _ = turned_dome(48)
    sketch = level.coarser([2, 3])
    assert sketch is not None
    assert sketch.coarser is not None
    assert sketch.coarser.level.cell == pytest.approx(6 * level.cell)
    for row, (bits, size) in enumerate(zip(level.bits[:-1], level.size, strict=False)):
        fine = np.argwhere(from_bits(bits, int(size[2])))
        coarse_size = sketch.level.size[row]
        coarse = np.argwhere(from_bits(sketch.level.bits[row], int(coarse_size[2])))
        assert 8 * len(coarse) == pytest.approx(len(fine), rel=0.1)
        # Where a coarse row is placed, the fine one has the same middle.
        middle = sketch.place(row, (3, 4, 5)) + fine.mean(0) + 0.5
        assert 2.0 * (coarse.mean(0) + 0.5 + (3, 4, 5)) == pytest.approx(middle, abs=0.5)
    assert level.coarser([]) is None
    assert level.coarser([16]) is None  # the container would be too small


def test_tables_hold_how_far_rows_must_move_to_be_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    level, _ = turned_dome(24)
    monkeypatch.setattr(levels, "TABULATED", 0)
    counting, _ = turned_dome(24)
    assert level.shapes.depths.size
    assert not counting.shapes.depths.size
    room = level.container - np.max(level.size[:-1], 0)

    def overlap(of: Level, rows: tuple[int, int], places: list[np.ndarray]) -> float:
        """Return the measured overlap of two rows at places; these may be outside."""
        pieces = [Piece(0, row, tuple(map(int, at))) for row, at in zip(rows, places, strict=True)]
        shared = np.zeros((2, 2))
        measure(of.shapes, to_nest(of, pieces, of.container), shared)
        assert shared[0, 1] == shared[1, 0]
        return float(shared[0, 1])

    random, depths = np.random.default_rng(0), []
    for _ in range(12):
        rows = tuple(int(row) for row in random.choice(level.rows[0], 2))
        first, second = random.integers(room + 1, size=(2, 3))
        depth = overlap(level, rows, [first, second])
        depths.append(depth)
        assert (depth > 0.0) == (overlap(counting, rows, [first, second]) > 0.0)
        reach = math.ceil(depth)
        moves = np.array(list(itertools.product(range(-reach, reach + 1), repeat=3)))
        lengths = np.linalg.norm(moves, axis=1)
        apart = [
            length
            for move, length in zip(moves, lengths, strict=True)
            if length <= depth and not overlap(counting, rows, [first, second + move])
        ]
        unit = float(level.shapes.unit[0])
        assert min(apart) <= depth + 1e-9
        assert depth < min(apart) + unit
    assert max(depths) > 2.0
    assert unit < 0.1


def test_a_part_finds_the_only_free_place() -> None:
    block, bar = np.ones((12, 12, 40), bool), np.ones((3, 3, 4), bool)
    block[4:7, 4:7, 21:25] = False
    level = Level([as_given(block), as_given(bar)], Room(np.array([12.0, 12.0, 40.0])), 1.0)
    search = NestSearch(level, [block.sum(), bar.sum()], [1, 1], interlocking=True)
    search.search(time.perf_counter() + 5.0)
    assert {piece.place for piece in search.pieces} == {(0, 0, 0), (4, 4, 21)}
    pieces = [Piece(0, 0, (0, 0, 0)), Piece(1, 1, (9, 9, 0))]
    apart = search._apart(pieces, 0, level.container)
    assert {piece.place for piece in apart or []} == {(0, 0, 0), (4, 4, 21)}


def test_cubes_fill_the_way_through_a_narrow_mouth() -> None:
    """Inside, no place from which a cube can leave touches the walls along x or y."""
    bottle = np.zeros((12, 12, 12), bool)
    bottle[..., :9], bottle[1:11, 1:11, 1:8] = True, False
    bottle[4:8, 4:8], bottle[5:7, 5:7, 1:] = True, False
    bottle[4:8, 4:8, 1:8] = False
    level = Level([as_given(bottle), as_given(np.ones((2, 2, 2), bool))], Room(np.full(3, 12.0)), 1)
    search = NestSearch(level, [float(bottle.sum()), 8.0], [1, 200])
    search.fill(1e9, fillings=1)
    inside = [piece.place for piece in search.pieces if piece.place[:2] == (5, 5)]
    assert sorted(inside) == [(5, 5, z) for z in (1, 3, 5, 7, 9)]
    assert all(step.way for step in leaving(level, search.pieces))


def test_a_search_with_a_sketch_is_valid_and_no_worse_than_greedy() -> None:
    level, search = turned_dome(24)
    search.fill(1e9, fillings=1)
    greedy = search.volume
    level, search = turned_dome(24)
    search.search(time.perf_counter() + 1.0, level.coarser([3]))
    assert search.volume >= greedy
    assert sum(search.left) + len(search.pieces) == 20
    steps = leaving(level, search.pieces)
    assert all(step.way for step in steps)
    nest = to_nest(level, search.pieces, level.container)
    overlap = np.zeros((len(search.pieces),) * 2)
    measure(level.shapes, nest, overlap)
    assert not overlap.any()


def test_a_long_search_begins_again_without_coarse_voxels(monkeypatch: pytest.MonkeyPatch) -> None:
    level, search = turned_dome(24)
    seeds = []
    begin = NestSearch._empty

    def counted(self: NestSearch, of: Level) -> NestSearch:
        trial = begin(self, of)
        seeds.append(trial._random.bit_generator.state["state"]["state"])
        return trial

    monkeypatch.setattr(NestSearch, "_empty", counted)
    monkeypatch.setattr("packing_env.nesting.search.TRIAL", 0.25)
    search.search(time.perf_counter() + 1.5)
    assert len(set(seeds)) == len(seeds) >= 2
    nest, shared = to_nest(level, search.pieces, level.container), np.zeros((20, 20))
    measure(level.shapes, nest, shared)
    assert not shared.any()


def tall_parts(height: float) -> tuple[Level, Sketch, NestSearch]:
    """Return three parts of 5 voxels, which are 2 high in coarse voxels, that is 4 fine ones."""
    tall = solid(np.ones((2, 2, 5), bool), "tall")
    part, room = MeshPart(tall, np.eye(3)[None]), Room(np.array([0.1, 0.1, height]))
    level = Level([part.voxels], room, CELL)
    sketch = level.coarser([2])
    assert sketch is not None
    return level, sketch, NestSearch(level, [part.volume], [3], lowest=True)


def test_no_lid_of_a_sketch_is_below_the_tallest_part() -> None:
    _, sketch, search = tall_parts(0.2)
    assert sketch.level.size[0].tolist() == [1, 1, 2]
    search.search(time.perf_counter() + 1.0, sketch)
    assert (len(search.pieces), search.height) == (3, 5)


def test_no_lid_of_a_sketch_is_above_the_container(monkeypatch: pytest.MonkeyPatch) -> None:
    level, sketch, search = tall_parts(0.11)
    lids = []

    def fails(
        search: NestSearch, lid: int, until: float, pieces: list[Piece] | None = None
    ) -> bool:
        if search.level is level and pieces:
            lids.append(lid)
            search._failed.append(_Failed(list(pieces), np.ones(len(pieces))))
        return False

    monkeypatch.setattr(NestSearch, "_under", fails)
    search.sketch(sketch, time.perf_counter() + 2.0)
    assert lids == [5, 6, 7, 8, 9, 10, 11, 11, 11]  # then parts are taken out, until none is left


def test_small_parts_fill_the_container() -> None:
    # Voxels of 8 mm, with which a search could begin, would hold 64 of them.
    plan = pe.nest([cube(1, 125)], (0.05, 0.05, 0.05), 2.0, cell="5mm")
    assert plan.num_packed == 125


def test_a_container_of_which_there_are_two_is_used_twice_at_most() -> None:
    for options in ({"containers": 5}, {}):
        plan = pe.nest([cube(4, 9)], "6x6x6cm,number=2", 0.2, cell=CELL, **options)
        assert len(plan.containers) == 2


def test_a_part_too_small_for_a_solid_is_left_out(tmp_path: Path) -> None:
    tiny = Part(str(write_stl(tmp_path / "tiny.stl", (1, 1, 1))), unit="um", quantity=2)
    plan = pe.nest([cube(2), tiny], (0.06,) * 3, 0.2, cell=CELL)
    assert packed(plan) == ["cube2"]
    assert [(part.name, part.quantity, part.reason[:9]) for part in plan.left] == [
        ("tiny", 2, "too small")
    ]
    with pytest.raises(ParameterError, match="tiny: too small"):
        pe.nest(Fill([cube(2), tiny]), (0.06,) * 3, 0.2, cell=CELL)


def test_neutral_attributes_are_accepted() -> None:
    handling = {"stackable": True, "fragile": False, "group": 0, "weight": 2.0}
    part = Part(sides=(1, 1, 1), unit="cm", handling=handling)
    assert pe.nest([part], (0.06,) * 3, 1.0, cell=CELL).num_packed == 1


@pytest.mark.parametrize(("phase", "call"), [("greedy.best_place", 40), ("search.separate", 1)])
def test_an_interrupted_nest_is_valid(
    phase: str, call: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    module, _, name = phase.partition(".")
    original = getattr(sys.modules[f"packing_env.nesting.{module}"], name)
    calls = 0

    def interrupted(*given: object) -> object:
        nonlocal calls
        calls += 1
        if calls == call:
            raise KeyboardInterrupt
        return original(*given)

    monkeypatch.setattr(f"packing_env.nesting.{phase}", interrupted)
    monkeypatch.setattr(sys.modules["packing_env.nesting.nest"], "_warm_up", lambda: None)
    mesh = SHAPES["dome"].mesh()
    side = 2.0 * float(mesh.extents.max())
    plan = pe.nest([Part(mesh=mesh, quantity=40)], (side,) * 3, 3.0, cell=side / 32)
    assert plan.num_packed >= 2
    assert [part.reason for part in plan.left] == ["no room found before the interruption"]
    save_plan(tmp_path / "plan.json", plan.containers[0])
    assert check_plan(tmp_path / "plan.json").holds
