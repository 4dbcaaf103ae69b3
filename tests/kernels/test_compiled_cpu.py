"""Machine code is cached until a file changes that it may depend on."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from tests.tiny import cuboid_env, tiny_env

pytest.importorskip("numba")

from numba.core.runtime import rtsys
from numba.core.runtime._nrt_python import memsys_enable_stats

from packing_env.kernels.compiled import jit as compiled_cpu

SOURCE = """
from packing_env.kernels.compiled.jit import kernel

@kernel
def twice(x):
    return 2 * x
"""


def loaded(file: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Import the module again, as another process would."""
    spec = importlib.util.spec_from_file_location("some_kernels", file)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "some_kernels", module)
    spec.loader.exec_module(module)
    assert module.twice(4) == 8
    return module


def test_a_kernel_is_compiled_once_until_any_kernel_changes(tmp_path, monkeypatch):
    file = tmp_path / "some_kernels.py"
    file.write_text(SOURCE)
    first = loaded(file, monkeypatch)
    assert first.twice.stats.cache_misses
    again = loaded(file, monkeypatch)
    assert again.twice.stats.cache_hits
    assert not again.twice.stats.cache_misses
    monkeypatch.setattr(compiled_cpu, "source_stamp", lambda: "after a change elsewhere")
    assert loaded(file, monkeypatch).twice.stats.cache_misses


def test_files_of_sub_folders_count(tmp_path, monkeypatch):
    """A change in any operation, at any depth, and a move of a file make cached code stale."""
    folders = [tmp_path / "compiled", tmp_path / "drop", tmp_path / "drop" / "update"]
    for folder in folders:
        folder.mkdir()
        (folder / "numba.py").write_text("")
    monkeypatch.setattr(compiled_cpu, "__file__", str(folders[0] / "jit.py"))
    stamps = [compiled_cpu._source_hash.__wrapped__()]
    for folder in folders:
        (folder / "numba.py").write_text("changed = True")
        stamps.append(compiled_cpu._source_hash.__wrapped__())
    (folders[2] / "numba.py").rename(tmp_path / "numba.py")
    stamps.append(compiled_cpu._source_hash.__wrapped__())
    assert len(set(stamps)) == len(stamps)


ENVIRONMENTS = {
    "cuboids": lambda: cuboid_env(3, stability="none"),
    "cuboids by hulls, several": lambda: cuboid_env(3, stability="com_hull", num_visible=2),
    "cuboids by corners": lambda: cuboid_env(3, stability="area_corners"),
    "any shape": lambda: tiny_env(3, stability="com_hull"),
    "any shape, several": lambda: tiny_env(3, num_visible=3),
    "spaces": lambda: cuboid_env(
        3, action_mode="candidate", candidate_generator="split_spaces", num_spaces=30
    ),
    "boxes": lambda: cuboid_env(
        3,
        geometry="boxes",
        stability="stacking_tree",
        action_mode="candidate",
        candidate_generator="all_placements",
        observation=("item_features",),
    ),
}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_memory_is_given_back(name, monkeypatch):
    """A kernel without reference counts passes no array to one that counts references."""
    env, before = ENVIRONMENTS[name](), None
    memsys_enable_stats()
    monkeypatch.setattr(compiled_cpu, "_MIN_PARALLEL_WORK", 10**12)
    for decisions in (4, 12):
        env.rollout(decisions, break_when_any_done=False)
        stats = rtsys.get_allocation_stats()
        held = (stats.alloc - stats.free, stats.mi_alloc - stats.mi_free)
        assert before in (None, held)
        before = held
