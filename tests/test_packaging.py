"""The package: its metadata is consistent, and the wheel works without the checkout."""

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.commands import run_program

import packing_env

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]


def pins() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    split = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in split}


@pytest.mark.parametrize(
    ("package", "needs"),
    [
        ("moviepy", ["pillow<12,>=9.2", "imageio<3,>=2.5", "imageio-ffmpeg>=0.2", "numpy>=1.25"]),
        ("stable-baselines3", ["gymnasium<2,>=0.29.1", "torch<3,>=2.3", "numpy<3,>=1.20"]),
    ],
)
def test_pins_suit_what_an_extra_needs(package: str, needs: list[str]) -> None:
    """Before, ``pip install packing-env[video] -c constraints.txt`` found no Pillow for moviepy."""
    assert package in pins()
    for text in needs:
        needed = Requirement(text)
        assert needed.specifier.contains(pins()[canonicalize_name(needed.name)]), text


def test_the_citation_names_the_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == PROJECT["version"] == packing_env.__version__
    assert citation["license"] == PROJECT["license"]
    required = {"cff-version", "message", "title", "authors"}  # of version 1.2.0 of the format
    assert all(citation[key] for key in required)
    assert all("name" in author or "family-names" in author for author in citation["authors"])


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The unpacked source distribution."""
    pytest.importorskip("hatchling", reason="the build backend is not installed (extra dev)")
    folder = tmp_path_factory.mktemp("sdist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)]
    subprocess.run(build, check=True, cwd=ROOT)
    with tarfile.open(next(folder.glob("packing_env-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.iterdir() if path.is_dir())


@pytest.fixture(scope="module")
def wheel(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the source distribution, which is what ``python -m build`` publishes."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, check=True, cwd=sources)
    return next(folder.glob("packing_env-*.whl"))


def test_the_source_distribution_holds_every_file_of_the_repository(sources: Path) -> None:
    """Before, ``make lint`` and ``make test`` failed there for lack of ``.ci`` and ``conf``."""
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git repository")
    missing = [name for name in listed.stdout.splitlines() if not (sources / name).exists()]
    assert not missing


def test_wheel_holds_the_configuration(wheel: Path) -> None:
    files = set(zipfile.ZipFile(wheel).namelist())
    conf = {path.relative_to(ROOT).as_posix() for path in (ROOT / "conf").rglob("*.yaml")}
    assert conf
    assert {f"packing_env/{path}" for path in conf} <= files
    assert {"packing_env/py.typed", "agents/py.typed"} <= files
    assert not [name for name in files if name.startswith(("tests/", "conf/"))]
    shipped = {
        name.rpartition("/")[2] for name in files if "/share/doc/packing-env/examples/" in name
    }
    assert {path.name for path in (ROOT / "examples").glob("[0-9]*.py")} <= shipped


def test_the_package_page_has_no_links_into_the_checkout(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        name = next(name for name in files.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = files.read(name).decode("utf-8")
    assert "Description-Content-Type: text/markdown" in metadata
    assert "# packing-env" in metadata
    assert not re.findall(r"\]\((?!https?:)[^)]*\)|<img", metadata)


def test_command_runs_from_the_wheel_in_any_folder(wheel: Path, tmp_path: Path) -> None:
    site, elsewhere = tmp_path / "site", tmp_path / "elsewhere"
    elsewhere.mkdir()
    zipfile.ZipFile(wheel).extractall(site)
    program = (
        "import sys, packing_env; from agents.cli.main import main;"
        "print(packing_env.__file__, file=sys.stderr); sys.exit(main())"
    )
    environment = {**os.environ, "PYTHONPATH": str(site)}
    arguments = ("train", "--cfg", "job", "experiment=demo")
    done = run_program(program, *arguments, cwd=elsewhere, env=environment)
    assert str(site) in done.stderr
    assert "task: irregular" in done.stdout
    assert not list(elsewhere.iterdir())
