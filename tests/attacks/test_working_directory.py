"""Files in the working folder configure no library and are not run, whoever made them."""

import os
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.commands import run_program

from packing_env import folders
from packing_env.folders import FolderError
from packing_env.items import Catalogue

HOSTILE = """
cache_dir: cache
cache_locator_classes: attack.Locator
chrome_trace: trace.json
debug_cache: 1
cuda_driver: driver.so
"""
ATTACK = "from pathlib import Path; Path('executed').touch()"
KERNEL = """
from packing_env.kernels.compiled.jit import kernel


@kernel
def twice(x):
    return 2 * x
"""


def in_folder(folder: Path, program: str) -> list[str]:
    """Run a program in a folder; return the lines that it prints."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "MPL"))}
    environment |= {"XDG_CACHE_HOME": str(folder.parent / "cache"), "MPLBACKEND": "agg"}
    return run_program(program, cwd=folder, env=environment).stdout.splitlines()


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A folder that would configure numba."""
    folder = tmp_path / "parts"
    folder.mkdir()
    (folder / ".numba_config.yaml").write_text(HOSTILE)
    (folder / "attack.py").write_text(ATTACK)
    (folder / "kernels.py").write_text(KERNEL)
    return folder


# ---------------------------------------------------------------------- libraries


def test_numba_is_not_configured_by_the_working_directory(hostile: Path) -> None:
    """Neither its import, nor a new kernel, nor ``reload_config`` reads a file of that folder."""
    pytest.importorskip("numba")
    before = sorted(hostile.iterdir())
    program = """
import sys
sys.dont_write_bytecode = True
import packing_env
from kernels import twice
from numba.core import config
config.reload_config()
print(repr([config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES, config.CHROME_TRACE]))
print(twice._cache.cache_path)
"""
    values, place = in_folder(hostile, program)
    assert values == "['', '', '']"
    assert Path(place).is_relative_to(hostile.parent / "cache" / "packing_env" / "numba")
    assert sorted(hostile.iterdir()) == before


def test_a_configuration_that_numba_has_read_is_undone(hostile: Path) -> None:
    """A library may have imported numba before; variables of the user stay."""
    pytest.importorskip("numba")
    program = """
import os
import numba
before = numba.config.CHROME_TRACE, numba.config.CACHE_DIR
os.environ["NUMBA_CACHE_DIR"] = "/own"
import packing_env
print([*before, numba.config.CHROME_TRACE, numba.config.CACHE_DIR])
"""
    assert in_folder(hostile, program) == ["['trace.json', 'cache', '', '/own']"]


def test_matplotlib_is_not_configured_by_the_working_directory(tmp_path: Path) -> None:
    """A matplotlibrc may ask for LaTeX, may not be text, and may take for ever to read."""
    pytest.importorskip("matplotlib")
    own = tmp_path / "own"
    own.mkdir()
    (own / "matplotlibrc").write_text("lines.linewidth: 7\n")
    folder = tmp_path / "parts"
    folder.mkdir()
    os.mkfifo(folder / "matplotlibrc")
    program = f"""
import os
os.environ["MATPLOTLIBRC"] = {str(own)!r}
import packing_env
import matplotlib
print(matplotlib.rcParams["lines.linewidth"], matplotlib.matplotlib_fname())
"""
    assert in_folder(folder, program) == [f"7.0 {own / 'matplotlibrc'}"]


def test_a_file_that_is_ignored_is_named(hostile: Path, caplog: Any, monkeypatch: Any) -> None:
    pytest.importorskip("numba")
    from packing_env import extras

    monkeypatch.chdir(hostile)
    extras.warn_of_ignored("numba", ".numba_config.yaml")
    assert ".numba_config.yaml" in caplog.text
    assert "NUMBA_" in caplog.text


# ---------------------------------------------------------------------- the user's own folders


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the caches, not made yet."""
    for name in ("NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR"):
        monkeypatch.setenv(name, "")  # so that it is as before after the test
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "packing_env"


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_folder_of_the_cache_is_the_users_alone(cache: Path) -> None:
    assert folders.own("numba") == cache / "numba"
    assert (mode(cache), mode(cache / "numba")) == (0o700, 0o700)
    cache.chmod(0o775)  # as earlier versions made it
    folders.own("numba")
    assert mode(cache) == 0o700


@pytest.mark.parametrize("level", ["packing_env", "packing_env/numba"])
def test_a_link_is_no_folder_of_the_user(level: str, cache: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = cache.parent / level
    place.parent.mkdir(parents=True)
    place.symlink_to(elsewhere)
    with pytest.raises(FolderError, match=f"{place}.* is a link"):
        folders.own("numba")
    assert not list(elsewhere.iterdir())


def test_a_folder_of_another_user_is_refused(cache: Path, monkeypatch: Any) -> None:
    folders.own("numba")
    another = os.geteuid() + 1
    monkeypatch.setattr(os, "geteuid", lambda: another)
    with pytest.raises(FolderError, match=r"belongs to another user.*XDG_CACHE_HOME"):
        folders.own("numba")


def test_a_folder_that_cannot_be_made_private_is_refused(cache: Path, monkeypatch: Any) -> None:
    """The file system may be read-only or without modes; each process then compiles kernels."""
    folders.own("numba").chmod(0o755)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(FolderError, match=r"numba cannot be made private"):
        folders.own("numba")


def test_a_user_without_a_home_is_told_so(monkeypatch: Any) -> None:
    def homeless(path: Path) -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "expanduser", homeless)
    with pytest.raises(FolderError, match="XDG_CACHE_HOME"):
        folders.own("numba")


@pytest.mark.parametrize("name", ["", "."])
def test_a_file_below_a_folder_has_a_name(name: str, tmp_path: Path) -> None:
    for use in (
        lambda: folders.make_below(tmp_path, name),
        lambda: folders.open_below(tmp_path, name, os.O_RDONLY),
    ):
        with pytest.raises(FolderError, match="not the name of a file"):
            use()


def test_a_relative_cache_folder_is_ignored(monkeypatch: Any, tmp_path: Path) -> None:
    """So the XDG specification demands: the folder would lie in the working directory."""
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert folders.cache_folder() == tmp_path / ".cache" / "packing_env"


def made(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A kernel of a file in a folder."""
    import importlib.util

    (folder / "own_kernels.py").write_text(KERNEL)
    spec = importlib.util.spec_from_file_location("own_kernels", folder / "own_kernels.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "own_kernels", module)
    spec.loader.exec_module(module)
    return module.twice


@pytest.fixture
def _numba(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """numba without a cache folder that the user set."""
    numba = pytest.importorskip("numba")
    from packing_env.kernels.compiled import jit

    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(jit._Announcement, "cached", True)
    jit.cache_place.cache_clear()
    yield
    jit.cache_place.cache_clear()


@pytest.mark.usefixtures("_numba")
@pytest.mark.parametrize("chosen", [False, True])
def test_kernels_are_kept_in_the_users_own_folder(
    chosen: bool, cache: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    import numba

    place = str(tmp_path / "mine") if chosen else ""
    monkeypatch.setattr(numba.config, "CACHE_DIR", place)
    twice = made(tmp_path, monkeypatch)
    assert Path(twice._cache.cache_path).is_relative_to(place or cache / "numba")
    assert chosen != (cache / "numba").exists()
    assert chosen or mode(cache / "numba") == 0o700
    assert place == numba.config.CACHE_DIR
    assert not list(tmp_path.glob("__pycache__/*.nb?"))  # where numba keeps kernels by default


@pytest.mark.usefixtures("_numba")
def test_an_index_that_another_version_wrote_is_written_anew(
    cache: Path, tmp_path: Path, monkeypatch: Any
) -> None:
    """The index names types by their former modules; every start ended in an AttributeError."""
    file = made(tmp_path, monkeypatch)._cache._cache_file
    gone = pickle.dumps(file._version) + b"\x80\x04cpacking_env.kernels\nGone\n."
    Path(file._index_path).parent.mkdir(parents=True, exist_ok=True)
    Path(file._index_path).write_bytes(gone)
    twice = made(tmp_path, monkeypatch)
    assert twice(3) == 6
    assert twice._cache._cache_file._load_index()


@pytest.mark.usefixtures("_numba")
def test_kernels_are_not_read_from_a_folder_that_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    (tmp_path / "elsewhere").mkdir()
    cache.mkdir(parents=True)
    (cache / "numba").symlink_to(tmp_path / "elsewhere")
    twice = made(tmp_path, monkeypatch)
    assert twice(4) == 8
    assert not list((tmp_path / "elsewhere").iterdir())
    assert str(cache / "numba") in caplog.text
    assert "NUMBA_CACHE_DIR" in caplog.text


def test_catalogues_are_not_read_from_a_folder_that_is_refused(
    cache: Path, tmp_path: Path, monkeypatch: Any, caplog: Any
) -> None:
    (tmp_path / "elsewhere").mkdir()
    cache.parent.mkdir()
    cache.symlink_to(tmp_path / "elsewhere")
    monkeypatch.setattr(Catalogue, "load", lambda *_, **__: pytest.fail("was read"))
    options = {"cell": 0.05, "container": (0.4, 0.4, 0.4)}
    assert len(Catalogue.from_shapes(families=["household"], **options))
    assert not list((tmp_path / "elsewhere").iterdir())
    assert f"{cache} is a link" in caplog.text
