"""Optional packages: those of ``pyproject.toml``, and one line where one is missing."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from tests.agents.conftest import TINY_OVERRIDES

from agents.cli import main as cli
from packing_env import extras

ROOT = Path(__file__).resolve().parents[1]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][
    "optional-dependencies"
]


def test_the_extras_are_those_of_the_package() -> None:
    assert set(extras.EXTRAS) == set(DECLARED) - {"all", "dev", "docs"}
    for name, extra in extras.EXTRAS.items():
        packages = {Requirement(text).name.lower() for text in DECLARED[name]}
        assert {extras.package(module).lower() for module in extra.modules} == packages


@pytest.mark.parametrize(
    ("hidden", "line", "remedy"),
    [
        ("PIL", "render out=x.gif", 'GIF files need Pillow.*pip install "packing-env[viz]"'),
        ("imageio", "render out=x.mp4", 'imageio, which.*pip install "packing-env[video]"'),
        (
            "matplotlib",
            "eval evaluation.picture=p.png evaluation.instances=2",
            'pip install "packing-env[viz]"',
        ),
        ("matplotlib", "train evaluation.instances=2 evaluation.picture=p.png", "[viz]"),
        ("tensorboard", "train logger=tensorboard", 'pip install "packing-env[log]".*logger=csv'),
        ("wandb", "train logger=wandb", "pip install wandb"),
        ("mlflow", "train logger=mlflow", "pip install mlflow"),
    ],
)
def test_a_missing_package_gets_one_line_before_anything_is_done(
    hidden: str,
    line: str,
    remedy: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, hidden, None)
    command, *settings = line.split()
    assert cli.main([command, *TINY_OVERRIDES, *settings]) == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    assert re.search(re.escape(remedy).replace(r"\.\*", ".*"), said), said
    assert not list(tmp_path.iterdir())
