"""What cannot fit into memory is refused before it is built; see `packing_env.memory`."""

from __future__ import annotations

import re

import pytest
import torch

from agents.bench.memory import peak_bytes
from packing_env import ParameterError, make_env, memory
from packing_env.items import Catalogue, CatalogueError, rows

FAMILIES = ["brackets", "rods_plates"]

CPU = torch.device("cpu")


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: size)


def test_rows_that_cannot_fit_are_refused_and_those_that_fit_are_named(monkeypatch, caplog):
    task = {"pool_size": 16}
    with pytest.raises(ParameterError, match=r"num_envs=1000000000 needs .* TiB, but"):
        make_env("cuboid_online", num_envs=10**9, **task)
    free(monkeypatch, 10 * 2**20)
    with pytest.raises(ParameterError, match="or less, or a coarser grid_step or cell") as refused:
        make_env("cuboid_online", num_envs=100_000, **task)
    fits = int(re.search(r"use num_envs=(\d+)", str(refused.value))[1])
    assert 100 < fits < 10_000
    with caplog.at_level("INFO", logger="packing_env.memory"):
        assert make_env("cuboid_online", num_envs=fits, **task).batch_size == (fits,)
    assert any(f"num_envs={fits} needs" in record.getMessage() for record in caplog.records)
    with pytest.raises(ParameterError, match=f"use num_envs={fits} or less"):
        make_env("cuboid_online", num_envs=fits + 1, **task)


@pytest.mark.parametrize(("task", "num_envs"), [("cuboid_online", 2_048), ("irregular", 64)])
def test_the_estimate_is_right_within_a_factor_of_two(task, num_envs, caplog):
    with caplog.at_level("INFO", logger="packing_env.memory"):
        env = make_env(task, num_envs=num_envs)
    said = [r.getMessage() for r in caplog.records if r.getMessage().startswith("num_envs")]
    size, unit = re.search(r"needs ([\d.]+) (MiB|GiB) on cpu", said[0]).groups()
    estimate = float(size) * {"MiB": 2**20, "GiB": 2**30}[unit]
    seen = env.reset()

    def decide() -> None:
        nonlocal seen
        env.rand_action(seen)
        _, seen = env.step_and_maybe_reset(seen)

    for _ in range(3):
        decide()
    taken = peak_bytes(decide, CPU)
    if taken is None:
        pytest.skip("the peak of a process's memory is not known here")
    held = [*env.state.values(True, True), *seen.values(True, True)]
    assert 0.5 < estimate / (taken + memory.num_bytes(held)) < 2


def test_a_catalogue_is_refused_before_its_large_item_is_rasterised(monkeypatch):
    settings = {"cell": 0.005, "container": (0.4, 0.4, 0.4), "use_cache": False}
    whole = Catalogue.from_shapes(FAMILIES, **settings)
    maps = whole.top.nbytes + whole.bottom.nbytes
    free(monkeypatch, int(maps / memory.SHARE) + 8)
    assert len(Catalogue.from_shapes(FAMILIES, **settings)) == len(whole)
    free(monkeypatch, int(0.5 * maps))
    rasterised: list[int] = []
    wraps = rows.rasterize_many
    monkeypatch.setattr(rows, "rasterize_many", lambda *a: rasterised.append(1) or wraps(*a))
    with pytest.raises(CatalogueError, match=r"of \d+ items in .* needs .* larger cell"):
        Catalogue.from_shapes(FAMILIES, **settings)
    assert len(rasterised) < len(whole)
    sides = [(0.1, 0.1, 0.1), (0.2, 0.3, 0.1)]
    free(monkeypatch, 100_000)  # enough for two of the first
    with pytest.raises(CatalogueError, match="2 items in 6 orientations of 60 x 60 cells needs"):
        Catalogue.from_cuboids(sides, cell=0.005, container=(0.4, 0.4, 0.4))


def test_a_catalogue_moves_only_to_where_it_fits(monkeypatch):
    boxes = Catalogue.from_cuboids([(0.1, 0.1, 0.1)], cell=0.05, container=(0.4, 0.4, 0.4))
    assert boxes.to("meta").top.device.type == "meta"  # of which nothing is known
    free(monkeypatch, 100)
    with pytest.raises(CatalogueError, match=r"of 1 items needs .* free on meta"):
        boxes.to("meta")
    assert boxes.to("cpu").top.device == CPU
