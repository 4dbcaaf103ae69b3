"""Objects that do not fit into memory are refused before they are built (`packing_env.memory`)."""

import re
import resource
from pathlib import Path

import pytest
import torch
from tests.peak_memory import peak_bytes

from packing_env import ParameterError, make_env, memory
from packing_env.items import Catalogue, CatalogueError, mesh_from_arrays, rows

FAMILIES = ["brackets", "rods_plates"]

CPU = torch.device("cpu")


def free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(memory, "free_memory", lambda device: size)
    monkeypatch.setattr(memory, "TRIFLE", 0)


def test_rows_that_cannot_fit_are_refused_and_those_that_fit_are_named(monkeypatch, caplog):
    task = {"pool_size": 16}
    with pytest.raises(ParameterError, match=r"num_envs=1000000000 .* needs .* TiB, but at most"):
        make_env("cuboid_online", num_envs=10**9, **task)
    free(monkeypatch, 10 * 2**20)
    with pytest.raises(ParameterError, match="rows or fewer, or a coarser") as refused:
        make_env("cuboid_online", num_envs=2_000, **task)
    fits = int(re.search(r"use (\d+) rows or fewer", str(refused.value))[1])
    assert 100 < fits < 2_000
    with caplog.at_level("INFO", logger="packing_env.memory"):
        assert make_env("cuboid_online", num_envs=fits, **task).batch_size == (fits,)
    assert any(f"num_envs={fits} needs" in record.getMessage() for record in caplog.records)
    with pytest.raises(ParameterError, match=f"use {fits} rows or fewer"):
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
    taken = peak_bytes(decide)
    if taken is None:
        pytest.skip("the peak of a process's memory is not known here")
    held = [*env.state.values(True, True), *seen.values(True, True)]
    assert 0.5 < estimate / (taken + memory.num_bytes(held)) < 2


def test_a_catalogue_is_refused_before_its_large_item_is_rasterised(monkeypatch):
    settings = {"cell": 0.01, "container": (0.4, 0.4, 0.4), "use_cache": False}
    monkeypatch.setattr(rows, "scratch_bytes", lambda faces, sizes: 0)
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


def test_the_scratch_of_the_rasteriser_counts(monkeypatch):
    """A sphere of 82,000 triangles in windows of 200 x 200 cells took 200 MB beside its maps."""
    trimesh = pytest.importorskip("trimesh")
    ball = trimesh.creation.icosphere(subdivisions=6, radius=0.1)
    mesh = mesh_from_arrays(ball.vertices, ball.faces, name="ball")
    free(monkeypatch, 30 * 2**20)  # enough for the maps
    settings = {"cell": 0.002, "container": (0.4, 0.4, 0.4), "use_cache": False}
    with pytest.raises(CatalogueError, match=r"rasterising ball, 81,920 triangles .* larger cell"):
        Catalogue.from_meshes([mesh], orientations="none", **settings)


MILLIMETRES = r"if these are millimetres, use container=\[0.32, 0.32, 0.3\]"


@pytest.mark.parametrize(
    ("task", "changes", "key"),
    [
        ("irregular", {"num_items": 10**9, "pool_size": 1}, "num_items=1000000000 needs 119.2 GiB"),
        ("cuboid_online", {"pool_size": 10**10}, "pool_size=10000000000 of num_items=150"),
        ("irregular", {"cell": 1e-9}, "320,000,000 cells of 1e-09 m"),
        ("cuboid_online", {"cell": 1e-9}, "1e\\+10 cells of 1e-09 m"),
        ("irregular", {"cell": 1e-300}, "3.2e\\+299 cells of 1e-300 m"),
        ("irregular", {"cell": 5e-324}, "inf cells of 5e-324 m"),
        ("irregular", {"resolution": 10**9}, "a lower resolution"),
        ("cuboid_continuous", {"unit": 1e-12}, "whole multiple of unit = 1e-12 m \\(at most"),
        ("cuboid_online", {"num_envs": 10**12}, "num_envs=1000000000000 must be"),
        ("irregular", {"num_candidates": 10**12}, "num_candidates=1000000000000 needs"),
        ("cuboid_online", {"num_spaces": 10**12}, "num_spaces=1000000000000 needs"),
        # sizes in other units get a hint
        ("irregular", {"container": [320, 320, 300]}, MILLIMETRES),
        ("irregular", {"container": [320, 320, 300], "cell": 0.01, "num_envs": 64}, MILLIMETRES),
        ("irregular", {"container": [32, 32, 30]}, r"centimetres, use container=\[0.32, 0.32"),
        ("cuboid_continuous", {"container": [1000, 1000, 1000]}, r"use container=\[1, 1, 1\]"),
        ("irregular", {"container": [320, 320, 300], "cell": 10}, "container and cell are metres"),
        ("irregular", {"cell": 10}, "another cell, in metres"),
        ("irregular", {"resolution": 4096}, "4,096 x 4,096 cells .*a lower resolution"),
        ("irregular", {"num_envs": 100_000, "resolution": 512}, "num_envs=100000 on 512 x 512"),
        ("irregular_paper", {"num_envs": 100_000}, "use fewer than .* rows, or a coarser grid"),
        ("irregular", {"items": {"source": "cuboids", "extents": [[100, 100, 50]]}}, "unit='mm'"),
        ("irregular", {"orientations": "pi/64"}, "2,097,152 combinations .* as in pi/8"),
    ],
)
def test_what_is_too_large_is_refused_by_its_key(task, changes, key, monkeypatch):
    """Such sizes exceed the machine's memory; they are refused before much of it is allocated."""
    monkeypatch.setattr(memory, "free_memory", lambda device: 2**36)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=key):
        make_env(task, **{"pool_size": 16, **changes})
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


@pytest.mark.parametrize("version", [1, 2])
def test_a_limit_of_the_control_group_leaves_out_what_can_be_dropped(
    version: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The inner group is full of cached files, the outer has no limit."""
    line, names = {
        1: ("5:cpu,memory:/job/7", ("memory.limit_in_bytes", "memory.usage_in_bytes")),
        2: ("0::/job/7", ("memory.max", "memory.current")),
    }[version]
    top = tmp_path / ("memory" if version == 1 else "")
    inner = top / "job" / "7"
    inner.mkdir(parents=True)
    for name, value in zip(names, ("1000000", "1000000"), strict=True):
        (inner / name).write_text(value + "\n")
    (inner / "memory.stat").write_text("anon 300000\nactive_file 250000\ninactive_file 450000\n")
    own = tmp_path / "own"
    own.write_text(f"3:pids:/other\n{line}\n")
    wraps = memory.Path
    places = {"/proc/self/cgroup": own, "/sys/fs/cgroup": tmp_path}
    monkeypatch.setattr(memory, "Path", lambda path: wraps(places.get(path, path)))
    assert memory.free_memory(CPU) == 700_000
