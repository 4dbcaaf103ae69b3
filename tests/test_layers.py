"""Imports of the rules and of the reference program: torch or NumPy, and the standard library."""

import ast
import sys
from pathlib import Path

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


def test_rules_import_torch_and_the_standard_library_only() -> None:
    for path in pure_files():
        assert imported(path) <= PURE, path


def test_reference_imports_numpy_only() -> None:
    files = sorted((PACKAGE / "reference").glob("*.py"))
    assert files
    for file in files:  # that it takes nothing from the rest of the package is a contract
        assert imported(file) <= {"numpy", "packing_env"}, file.name
