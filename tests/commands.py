"""Commands as a user gives them: refused with one paragraph, or run in other processes."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from agents.cli import main as cli


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Return the paragraph with which a command line is refused."""
    assert cli.main(arguments) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("packing: ")
    assert "\n" not in said
    assert "Traceback" not in said
    return said


def run_program(program: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a Python program, which must succeed; ``options`` are those of `subprocess.run`."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        capture_output=True,
        text=True,
        check=False,
        **{"timeout": 300, **options},
    )
    assert done.returncode == 0, done.stderr
    return done


def run_interpreted(*files: Path, only: str) -> None:
    """Run tests (``pytest -k ONLY``) with interpreted kernels; none may fail or be skipped."""
    options = ("-q", "-p", "no:cacheprovider", "-k", only, "-m", "not slow")
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *map(str, files)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    assert "skipped" not in result.stdout
    assert re.search(r"^\d+ passed", result.stdout.splitlines()[-1]), result.stdout
