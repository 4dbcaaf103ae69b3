"""Every kernel compiles under the versions of Triton that builds of torch bring along.

The installed version has its own tests (`test_machine_code`); the others lie in folders of their
own, ``.venv/triton/VERSION``, which `make` fills: see CONTRIBUTING.md.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.engine.engines import compiles
from tests.kernels.test_triton_code import CEILINGS as ALL

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("PACKING_TRITONS") or Path(sys.prefix) / "triton")
CEILINGS = {"3.6.0": {**ALL, "ground_kernel": 144}, "3.7.1": ALL}
"""Registers of a thread, at most, by kernel."""


def compiled(version: str) -> list[dict[str, Any]]:
    """Return the kernels as compiled by a version; skip if it is missing and not required."""
    if not (FOLDER / version / "triton").is_dir():
        remedy = f"pip install --no-deps --target {FOLDER / version} triton=={version}"
        if "triton" in os.environ.get("PACKING_TESTS_REQUIRE", "").split():
            pytest.fail(f"Triton {version} is required, and missing: {remedy}")
        pytest.skip(f"Triton {version} is missing: {remedy}")
    path = os.pathsep.join(
        [str(FOLDER / version), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    )
    result = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "triton_versions.py")],
        env={**os.environ, "PYTHONPATH": path},
        check=False,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    return [json.loads(line) for line in result.stdout.splitlines()]


@compiles
@pytest.mark.parametrize("version", CEILINGS)
def test_every_kernel_compiles(version: str) -> None:
    """Without spills or multiply-add, and with few registers."""
    rows = compiled(version)
    assert {row["version"] for row in rows} == {version}
    failures = [f"{row['name']}: {row['error']}" for row in rows if "error" in row]
    assert not failures, "\n".join(failures)
    assert {row["kernel"] for row in rows} == set(ALL)
    for row in rows:
        assert row["registers"] <= CEILINGS[version][row["kernel"]], row
        assert row["local_bytes"] <= 8, row  # a call of a division
        assert not row["multiplies_and_adds"], row
        assert not row["flushes"], row


def test_the_versions_are_those_of_make_and_of_the_extra() -> None:
    """The extra `triton` admits no minor version before or after those compiled here."""
    makefile = (ROOT / "Makefile").read_text()
    (others,) = re.findall(r"^TRITONS := (.*)$", makefile, re.M)
    assert others.split() == list(CEILINGS)
    (newest,) = re.findall(r"^TRITON := triton==(\d+\.\d+)\.\d+$", makefile, re.M)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (extra,) = project["optional-dependencies"]["triton"]
    oldest = next(iter(CEILINGS)).rpartition(".")[0]
    major, minor = newest.split(".")
    assert extra.startswith(f"triton>={oldest},<{major}.{int(minor) + 1};")
