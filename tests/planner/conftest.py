"""Small pictures in the files of plans, which take a second to draw in full size."""

import pytest

from packing_env.planner import files


@pytest.fixture(autouse=True)
def _small_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(files.save.__kwdefaults__, "size", 64)
