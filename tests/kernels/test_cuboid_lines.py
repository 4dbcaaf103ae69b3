"""One cuboid in one line of bytes: the written heights are right, and no other byte changes."""

import numpy as np
import pytest

pytest.importorskip("numba")

from packing_env.kernels.compiled.jit import kernel
from packing_env.kernels.compiled.tables import table
from packing_env.kernels.step import lines

_CANARY = 77
_ROOM = 200
"""Canary bytes on either side."""


@kernel
def _mark_legal(raised, places, mask, first):  # type: ignore[no-untyped-def]
    return lines.mark_legal(raised.ctypes.data, places, mask.ctypes.data + first)


@kernel
def _find_rest(line, first, size, container, words, raised):  # type: ignore[no-untyped-def]
    columns = lines.as_columns(words)
    at = raised.ctypes.data + first
    lines.find_rest(line.ctypes.data + first, size, container, columns, at)
    return columns.after.size


@pytest.mark.parametrize("places", [64, 65, 100, 127, 128, 300])
def test_masks_end_with_their_places(places: int) -> None:
    raised = np.zeros(places, np.uint8)
    raised[[0, -1]] = 9
    for values in (raised, np.zeros_like(raised)):
        mask = np.full(places + 2 * _ROOM, _CANARY, np.uint8)
        assert _mark_legal(values, places, mask, _ROOM) == values.any()
        assert np.array_equal(mask[_ROOM:-_ROOM], values != 0)
        assert (mask[:_ROOM] == _CANARY).all()
        assert (mask[-_ROOM:] == _CANARY).all()


@pytest.mark.parametrize("seed", range(16))
def test_rest_heights(seed: int) -> None:
    """They equal plain loops in containers up to 20 x 300; items may be larger."""
    rng = np.random.default_rng(seed)
    length, width, height = (int(rng.integers(1, most)) for most in (20, 300, 250))
    w, h = int(rng.integers(1, length + 2)), int(rng.integers(1, min(width + 2, 256)))
    d = int(rng.integers(1, height + 2))
    line = np.full(_ROOM + length * width + h + _ROOM, _CANARY, np.uint8)
    cells = line[_ROOM : _ROOM + length * width].reshape(length, width)
    cells[:] = rng.integers(0, height + 1, cells.shape)
    cells[rng.random(cells.shape) < 0.7] = 0
    raised = np.full(length * width + 64 + 2 * _ROOM, _CANARY, np.uint8)
    columns = lines.new_columns((length, width), (w, h))
    words = table(lines.Columns, columns)
    n = _find_rest(line, _ROOM, (w, h, d), (length, width, height), words, raised)
    expected = np.zeros((length, width), np.uint8)
    for x in range(length - w + 1):
        for y in range(width - h + 1):
            rest = int(cells[x : x + w, y : y + h].max())
            expected[x, y] = rest + 1 if rest + d <= height else 0
    assert np.array_equal(raised[_ROOM : _ROOM + length * width], expected.reshape(-1))
    assert not raised[_ROOM + length * width : _ROOM + n].any()
    assert (raised[:_ROOM] == _CANARY).all()
    assert (raised[_ROOM + n :] == _CANARY).all()
