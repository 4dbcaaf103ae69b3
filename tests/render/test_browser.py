"""The page in a browser, from its file: play, hover, turn and cut."""

import base64
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from tests.render.browser import BROWSER, WITHOUT, Page

import packing_env as pe
from packing_env import render
from packing_env.plan import Packing, PlacedItem
from packing_env.planner import Part

pytestmark = [
    pytest.mark.skipif(BROWSER is None, reason=WITHOUT),
    pytest.mark.skipif(sys.platform == "win32", reason="pipes of POSIX"),
]
FIFTY = 50
HEAVY = {"weight": 0.25}
CANVAS = "document.getElementById('canvas')"


@pytest.fixture(scope="module")
def packing() -> Packing:
    """Fifty parts of three kinds, in layers, without a search."""
    parts = [
        Part(sides=(20, 20, 20), unit="mm", name="cube", quantity=30, handling=HEAVY),
        Part(sides=(40, 20, 10), unit="mm", name="plate", quantity=20, handling=HEAVY),
    ]
    plan = pe.pack(parts, "120x100x80mm", 1.0, cell="10mm", stability="none")
    assert plan.num_packed == FIFTY
    return plan.containers[0]


@pytest.fixture(scope="module")
def page(packing: Packing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("browser")
    file = folder / "packed.html"
    render.save_html(file, packing)
    assert file.stat().st_size < 3 * 2**20
    opened = Page(folder / "profile")
    opened.open(file.as_uri())
    yield opened
    opened.close()


def shown(page: Page) -> int:
    page.frame()
    return int(page.evaluate("document.body.dataset.shown"))


def pixels(page: Page) -> np.ndarray:
    """The canvas as it was drawn last."""
    page.frame()
    text = page.evaluate(
        f"(() => {{ render(); return {CANVAS}.toDataURL('image/png').split(',')[1]; }})()"
    )
    pil = pytest.importorskip("PIL.Image")
    import io

    return np.asarray(pil.open(io.BytesIO(base64.b64decode(text))).convert("RGB")).astype(int)


def place_of(page: Page, item: int) -> tuple[float, float] | None:
    """Return a point of the page at which an item can be picked, or None if it is hidden.

    All points are read from one picking image; the viewer's ``pick`` would draw one per point.
    """
    place = page.evaluate(
        f"""(() => {{ const box = {CANVAS}.getBoundingClientRect();
        const {{width, height}} = canvas, ratio = width / box.width;
        const seen = new Uint8Array(4 * width * height);
        paint(true);
        gl.readPixels(0, 0, width, height, gl.RGBA, gl.UNSIGNED_BYTE, seen);
        for (let y = box.top + 5; y < box.bottom; y += 9)
          for (let x = box.left + 5; x < box.right; x += 9) {{
            const row = height - 1 - ((y - box.top) * ratio | 0);
            const at = 4 * (row * width + ((x - box.left) * ratio | 0));
            if (seen[at] + 256 * seen[at + 1] - 1 === {item}) return [x, y, pick(x, y)]; }}
        return null; }})()"""
    )
    if place is None:
        return None
    assert place[2] == item
    return place[0], place[1]


def choose(page: Page, name: str, value: object, event: str = "input") -> None:
    page.evaluate(
        f"(() => {{ const s = document.getElementById('{name}'); s.value = '{value}'; "
        f"s.dispatchEvent(new Event('{event}')); }})()"
    )


def test_a_cut_shows_the_lower_part_alone(page: Page) -> None:
    """The part above the plane is neither drawn nor picked; without an axis, all is drawn."""
    choose(page, "step", FIFTY)
    whole = pixels(page)
    highest = FIFTY - 1
    assert place_of(page, highest) is not None
    choose(page, "axis", "z", "change")
    choose(page, "cut", 1000)
    assert np.abs(pixels(page) - whole).mean() < 0.5
    choose(page, "cut", 150)  # 12 mm: through the lowest layer of cubes of 20 mm
    assert np.abs(pixels(page) - whole).mean() > 2.0
    assert place_of(page, highest) is None
    assert place_of(page, 0) is not None
    choose(page, "axis", "", "change")
    assert (pixels(page) == whole).all()
    assert page.errors == []


@pytest.mark.parametrize("count", [0, 1, 17, FIFTY])
def test_the_slider_shows_as_many_items(page: Page, count: int) -> None:
    choose(page, "step", count)
    assert shown(page) == count
    assert page.evaluate("document.getElementById('count').textContent") == f"{count} / {FIFTY}"
    assert page.errors == []


def test_the_edges_of_the_container_are_grey(page: Page) -> None:
    """Lines have no normals, so shading made them black, or another colour on other drivers."""
    choose(page, "step", 0)
    darkest = pixels(page).min()
    assert 80 < darkest < 130


def test_play_adds_items_one_by_one_until_it_is_paused(page: Page) -> None:
    choose(page, "step", 0)
    page.evaluate("document.getElementById('play').click()")
    assert page.evaluate("document.getElementById('play').textContent") == "Pause"
    page.evaluate("new Promise(done => { const look = () => "
                  "+step.value >= 2 ? done() : setTimeout(look, 50); look(); })")  # fmt: skip
    page.evaluate("document.getElementById('play').click()")
    reached = shown(page)
    assert reached >= 2
    page.evaluate("new Promise(done => setTimeout(done, 900))")
    assert shown(page) == reached
    assert page.errors == []


def test_hover_names_the_item(page: Page, packing: Packing) -> None:
    choose(page, "step", FIFTY)
    page.frame()
    last: PlacedItem = packing.items[-1]
    place = place_of(page, FIFTY - 1)
    assert place is not None
    page.mouse("mouseMoved", *place)
    tip = page.evaluate("document.getElementById('tip').innerText")
    assert last.name in tip
    assert f"number {FIFTY}" in tip
    assert f"z {1e3 * last.z:.1f} mm" in tip
    assert f"{round(100 * last.support_ratio)} % supported" in tip
    assert "0.25 kg" in tip
    page.mouse("mouseMoved", 12, 120)
    assert page.evaluate("document.getElementById('tip').style.display") == "none"


def test_a_drag_turns_a_wheel_zooms_and_the_button_resets(page: Page) -> None:
    page.evaluate("document.getElementById('home').click()")
    start = page.evaluate("({...camera})")
    page.mouse("mousePressed", 400, 400, button="left", clickCount=1)
    page.mouse("mouseMoved", 460, 380, button="left", buttons=1)
    page.mouse("mouseReleased", 460, 380, button="left", clickCount=1)
    turned = page.evaluate("({...camera})")
    assert turned["yaw"] == pytest.approx(start["yaw"] - 0.008 * 60)
    page.mouse("mouseWheel", 400, 400, deltaX=0, deltaY=-200)
    assert page.evaluate("camera.distance") < start["distance"]
    page.evaluate("document.getElementById('home').click()")
    assert page.evaluate("({...camera})") == start
