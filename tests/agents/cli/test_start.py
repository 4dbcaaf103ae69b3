"""Messages about the disk space of checkpoints, before training starts."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from agents.cli import start


@pytest.mark.parametrize(
    ("keep", "best", "every", "replay", "kept", "needed"),
    [
        (2, None, {}, True, 1, 2 * 11),  # one checkpoint at the end, and its draft
        (2, None, {"save": 10, "evaluate": 50}, True, 2, 3 * 11),
        (2, "return", {"save": 10}, False, 3, 4 * 1),
        (None, None, {"save": 10}, True, 10, 11 * 11),
        (2, "-held_out/overflow", {"evaluate": 10}, True, 3, 4 * 11),
        (2, None, {"save_minutes": 5.0}, True, 2, 3 * 11),
    ],
)
def test_the_space_is_bounded_by_keep(
    keep, best, every, replay, kept, needed, tmp_path: Path, monkeypatch
) -> None:
    unit = 2**20
    trainer = SimpleNamespace(
        state_dict=lambda replay: {"agent": torch.zeros(unit, dtype=torch.uint8)},
        replay=SimpleNamespace(num_bytes=10 * unit),
        every={"save": None, "evaluate": None, **every},
        schedule=SimpleNamespace(save_minutes=every.get("save_minutes")),
        total=100,
    )
    options = {"keep": keep, "best": best, "replay": replay}
    for free, expected in ((needed * unit, True), (needed * unit - 1, False)):
        usage = SimpleNamespace(free=free)
        monkeypatch.setattr(start.shutil, "disk_usage", lambda _, usage=usage: usage)
        line, fits = start.disk_use(trainer, options, tmp_path)
        assert fits is expected
        assert f"{kept} kept" in line
        assert f"{needed} MiB" in line
