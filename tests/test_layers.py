"""Imports point left only: the contracts of pyproject.toml, and what the rules may import."""

from __future__ import annotations

import ast
import contextlib
import io
import sys
import tomllib
from pathlib import Path

import pytest
from importlinter import cli

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "src" / "packing_env"
PURE = {"torch", "jaxtyping", "packing_env"}


def imported(path: Path) -> set[str]:
    """The top-level names a file imports, anywhere in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            top = (node.module or "").partition(".")[0]
            names.add("packing_env" if node.level else top)
    return names - set(sys.stdlib_module_names)


def pure_files() -> list[Path]:
    kernels = PACKAGE / "kernels"
    files = [*kernels.glob("*.py"), *kernels.glob("*/__init__.py"), *kernels.glob("*/*eager.py")]
    files += [*(PACKAGE / "core").rglob("*.py"), *(PACKAGE / "engine").rglob("*.py")]
    return [PACKAGE / "types.py", *sorted(files)]


def test_contracts_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    report = io.StringIO()
    with contextlib.redirect_stdout(report):
        status = cli.lint_imports(no_cache=True)
    assert status == cli.EXIT_STATUS_SUCCESS, report.getvalue()


def test_contracts_have_no_exceptions() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    assert not [contract["name"] for contract in contracts if "ignore_imports" in contract]


@pytest.mark.parametrize("path", pure_files(), ids=lambda p: p.relative_to(PACKAGE).as_posix())
def test_rules_import_torch_and_the_standard_library_only(path: Path) -> None:
    assert imported(path) <= PURE


def test_reference_imports_numpy_only() -> None:
    files = sorted((PACKAGE / "reference").glob("*.py"))
    assert files
    for file in files:  # that it takes nothing from the rest of the package is a contract
        assert imported(file) <= {"numpy", "packing_env"}, file.name


def test_no_module_is_called_utils() -> None:
    assert not [p for p in (ROOT / "src").rglob("*.py") if p.stem in {"utils", "helpers", "misc"}]
