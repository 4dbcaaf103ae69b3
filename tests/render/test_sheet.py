"""The load plan on paper: steps, pages, and the files that commands write."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.mesh_files import write_stl
from tests.plan_files import placed_box

import packing_env as pe
from agents.cli import main as cli
from packing_env import render
from packing_env.plan import Packing
from packing_env.planner import Part, files
from packing_env.render import sheet
from packing_env.render.sheet import _ends, _Sheet, bounds_of, steps_of
from packing_env.render.sheet_view import View

TURNED = np.array([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])


def load(*corners: tuple[int, int, int], names: str = "", turned: bool = False) -> Packing:
    """Put boxes of 2 x 1 x 1 cm at corners, in cm; the last one turned about z if asked for."""
    items = []
    for order, corner in enumerate(corners):
        place, options = 0.01 * np.array(corner), {}
        if turned and order == len(corners) - 1:
            options = {"rotation": TURNED, "translation": place + np.array((0.01, 0, 0))}
        name = names[order] if names else "a"
        item = placed_box(order, name, place, (0.02, 0.01, 0.01), cell=corner[:2], **options)
        items.append(item)
    return Packing((0.12, 0.08, 0.06), 0.01, "none", tuple(items), len(items))


BLOCK = [(x, y, z) for z in (0, 1) for y in (0, 1, 2) for x in (0, 2)]


@pytest.mark.parametrize(
    ("packing", "sizes"),
    [
        (load(*BLOCK), [12]),
        (load(*BLOCK[:-1]), [6, 4, 1]),  # the second layer is not full
        (load((0, 0, 0), (2, 0, 0), (0, 1, 0)), [2, 1]),
        (load((0, 0, 0), (4, 0, 0)), [1, 1]),  # a gap between them
        (load((0, 0, 0), (2, 0, 0), (4, 0, 0), names="aba"), [1, 1, 1]),
        (load((0, 0, 0), (2, 0, 0), turned=True), [1, 1]),
        (load(), []),
    ],
)
def test_equal_boxes_that_fill_a_cuboid_are_one_step(packing: Packing, sizes: list[int]) -> None:
    assert [len(step.items) for step in steps_of(packing)] == sizes
    in_order = [item.order for step in steps_of(packing) for item in step.items]
    assert in_order == list(range(len(packing.items)))


def test_a_step_states_its_place_and_its_counts() -> None:
    (step,) = steps_of(load(*BLOCK))
    assert step.counts == (2, 3, 2)
    assert step.low.tolist() == [0, 0, 0]
    assert step.high == pytest.approx([0.04, 0.03, 0.02])
    turned = load((0, 0, 0), (3, 0, 0), turned=True)
    low, high = bounds_of(turned)
    assert low[1] == pytest.approx([0.03, 0, 0])
    assert high[1] == pytest.approx([0.04, 0.02, 0.01])


def test_only_the_boxes_of_a_step_are_marked() -> None:
    packing = load((0, 0, 0), (4, 0, 0))
    view = View(packing, 64)
    view.add(packing.items[:1])
    before = view.picture(packing.items[1:])
    view.add(packing.items[1:])
    after = view.picture(packing.items[1:])

    def coloured(picture: np.ndarray) -> np.ndarray:
        return np.asarray(picture[..., 0] > picture[..., 2].astype(int) + 50)

    assert not coloured(before).any()
    assert (view.owner[coloured(after)] == 1).all()
    assert coloured(after).sum() > 10


def test_slanted_faces_have_the_colour_of_their_item() -> None:
    """They were once brighter than white, which gave orange, or an IndexError if marked."""
    packing = load((0, 0, 0), (4, 4, 0))
    slanted = np.array([[3, 0, 4], [0, 5, 0], [-4, 0, 3]]) / 5 @ TURNED
    items = [replace(item, rotation=slanted, z=0.02) for item in packing.items]
    view = View(packing, 64)
    view.add(items)
    reds, blues = view.picture(items[1:])[..., [0, 2]].astype(int).transpose(2, 0, 1)
    for order, marked in ((0, False), (1, True)):
        inside = (view.owner == order) & (reds > 100)  # no outline
        assert inside.sum() > 10
        assert ((reds > blues + 50)[inside] == marked).all()


@pytest.mark.parametrize(
    ("start", "end", "labels"),
    [
        (1.7e-14, 1200.0, [(1.7e-14, "0"), (1200.0, "1200")]),
        (-1e-14, 0.5, [(0.25 - 5e-15, "0 - 0.5")]),
        (0.0, 900.0, [(0.0, "0"), (900.0, "900")]),
        (3675.5, 4564.5, [(4120, "3675.5 - 4564.5")]),  # apart, the labels would overlap
    ],
)
def test_ends_are_labelled_without_rounding_errors_and_overlaps(
    start: float, end: float, labels: list[tuple[float, str]]
) -> None:
    assert _ends(start, end, 100, 200) == labels


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written on the pages that a test draws."""
    found: list[str] = []
    monkeypatch.setattr(sheet, "_text", lambda *a, **_: found.append(a[3]))
    return found


def draw(packing: Packing, **changes: object) -> None:
    """Draw all pages of a load, whose first item is changed."""
    item = replace(packing.items[0], **changes)
    list(_Sheet(replace(packing, items=(item,)), "mm", "").pages())


def test_weights_of_the_list_have_few_digits(texts: list[str]) -> None:
    draw(load((0, 0, 0)), handling={"weight": 276.6913457})
    assert "276.691" in texts


def test_the_list_gives_the_sides_of_meshes(tmp_path: Path, texts: list[str]) -> None:
    file = write_stl(tmp_path / "a.stl", (30, 20, 10))
    (packing,) = pe.pack([Part(file=str(file), unit="mm")], "10x30x20mm", seconds=0.5).containers
    draw(packing)
    assert "30 x 20 x 10 mm" in texts
    assert "10 x 30 x 20 mm along x, y, up, on its side: its width up\nfrom x 0, y 0, up 0" in texts


def test_the_list_gives_the_sides_of_boxes_at_any_angle(texts: list[str]) -> None:
    turn = np.eye(3)
    turn[:2, :2] = np.array([[1, -1], [1, 1]]) / np.sqrt(2)
    draw(load((0, 0, 0)), rotation=turn, translation=np.array((0.02, 0, 0)))
    assert "20 x 10 x 10 mm" in texts
    assert any(text.partition("\n")[0].endswith("up, as the picture shows") for text in texts)


def num_pages(path: Path) -> int:
    return len(re.findall(rb"/Type /Page\b", path.read_bytes()))


def test_pages_of_several_containers(tmp_path: Path) -> None:
    single = load(*[(4 * x, 2 * y, 0) for x in range(3) for y in range(3)])  # nine steps
    render.save_pdf(tmp_path / "load.pdf", [single, load(*BLOCK), load()])
    assert num_pages(tmp_path / "load.pdf") == (1 + 2) + (1 + 1) + 1


def test_letters_are_drawn_with_another_font_or_a_line_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = load((0, 0, 0), names="\u20dd")  # a sign of STIX, not of the first font
    render.save_pdf(tmp_path / "load.pdf", other)
    assert "no font has some letters" in caplog.text
    caplog.clear()
    monkeypatch.setattr(sheet, "_EAST_ASIAN", re.compile("STIXGeneral"))
    render.save_pdf(tmp_path / "load.pdf", other)
    assert not caplog.text


def test_names_are_no_formulas(tmp_path: Path) -> None:
    part = Part(sides=(40, 30, 20), unit="mm", quantity=2, name="a $x_ box$ {" + 60 * "n")
    plan = pe.pack([part], "120x80x60mm", seconds=0.5)
    render.save_pdf(tmp_path / "load.pdf", plan.containers)
    assert num_pages(tmp_path / "load.pdf") == 2


def test_commands_write_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(files.save.__kwdefaults__, "size", 64)
    order = tmp_path / "order.csv"
    order.write_text("name,length (cm),width (cm),height (cm),quantity\nbox,6,4,4,3\n")
    out = tmp_path / "out"
    words = ["pack", str(order), "--container", "12x8x10cm", "--seconds", "1", "--out", str(out)]
    assert cli.main([*words, "--pdf"]) == 0
    assert (out / "load.pdf").read_bytes().startswith(b"%PDF")
    page = tmp_path / "again.pdf"
    assert cli.main(["render", f"plan={out / 'plan.json'}", f"out={page}"]) == 0
    assert num_pages(page) == num_pages(out / "load.pdf")
    assert cli.main(words) == 0  # a sheet of another plan would be dangerous
    assert not (out / "load.pdf").exists()
