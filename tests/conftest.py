"""Fixtures that several test folders share."""

import gc
import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from tests import preloaded

from packing_env import folders

# Compiled kernels are kept in one place: a test that sets another XDG_CACHE_HOME, and is the first
# to import one, would let all others compile theirs again.
os.environ.setdefault("NUMBA_CACHE_DIR", str(folders.own("numba")))

# The same examples in every run; `pytest --hypothesis-profile=explore tests/laws` tries new ones.
_SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "default_laws",
    max_examples=20,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=_SLOW,
)
settings.register_profile(
    "explore", max_examples=200, deadline=None, suppress_health_check=_SLOW, print_blob=True
)
settings.load_profile("default_laws")


LONGEST = (
    "tests/tracing/test_export.py",
    "tests/bench/test_scripts.py",
    "tests/agents/cli/test_imports.py",
    "tests/kernels/test_triton_code.py",
    "tests/kernels/test_triton.py",
    "tests/kernels/test_triton_versions.py",
)
"""Files whose tests take longest. They run first; last, they would leave a core idle."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the tests of :data:`LONGEST` before the others."""
    items.sort(key=lambda item: not item.nodeid.startswith(LONGEST))


def pytest_collection_finish() -> None:
    """Let Python's garbage collector skip what is imported: a tenth less work for most tests."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure() -> None:
    """Let what was skipped be freed at the end: some libraries report what is left."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _logging_as_before() -> Iterator[None]:
    """A command that runs inside a test configures logging for the process: undo that."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    for handler in list(root.handlers):
        if handler not in handlers:
            root.removeHandler(handler)
    for logger in logging.Logger.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False


@pytest.fixture(autouse=True)
def _backend_as_before() -> Iterator[None]:
    """A test may choose the kernels; the next one begins without a choice."""
    yield
    if kernels := sys.modules.get("packing_env.kernels"):
        kernels.set_backend(None)


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, with the caches of this test alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A stand-in for ``python`` that has imported torch: see `preloaded.py`."""
    with preloaded.start(tmp_path_factory.mktemp("python")) as program:
        yield program


@pytest.fixture
def spawned(python: Path) -> Iterator[None]:
    """Let ``multiprocessing`` spawn its processes with the fixture ``python``."""
    multiprocessing.set_executable(str(python))
    yield
    multiprocessing.set_executable(sys.executable)


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of the public test data: $PACKING_DATA."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("PACKING_DATA", beside))
    if not (folder / "manifest.json").is_file():
        pytest.skip("test data not found: set PACKING_DATA")
    return folder


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """Let Ctrl-C raise KeyboardInterrupt, also in processes that were started without it."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)
