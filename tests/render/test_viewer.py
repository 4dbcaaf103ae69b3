"""The HTML page in a browser: as many items as the slider says, no error, no request."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import packing_env as pe
from packing_env import render
from packing_env.planner import Part

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    parts = [Part(sides=(20, 20, 10 + i), unit="mm", name=f"</script><b>{i}") for i in range(5)]
    plan = pe.pack(parts, "100x60x40mm", 0.2, cell="5mm")
    assert plan.num_packed == 5
    path = tmp_path_factory.mktemp("page") / "packed.html"
    render.save_html(path, plan.containers)
    return path


def test_the_page_is_one_file(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count("</script>") == 1
    assert "default-src 'none'" in text  # the browser refuses every request
    assert "http://" not in text
    assert "https://" not in text


@pytest.mark.skipif(BROWSER is None, reason="no Chromium or Chrome was found")
@pytest.mark.parametrize("count", [0, 3, 5])
def test_the_slider_shows_as_many_items(count: int, page: Path, tmp_path: Path) -> None:
    options = ["--headless=new", "--no-sandbox", "--use-angle=swiftshader", "--dump-dom"]
    options += ["--enable-unsafe-swiftshader", "--enable-logging=stderr"]
    options += ["--virtual-time-budget=3000", f"--user-data-dir={tmp_path / 'profile'}"]
    command = [str(BROWSER), *options, f"{page.as_uri()}#{count}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert f'data-shown="{count}"' in done.stdout
    assert f">{count} / 5<" in done.stdout
    assert "CONSOLE" not in done.stderr  # where a refused request would be reported too
