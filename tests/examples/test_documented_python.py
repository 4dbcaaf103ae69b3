"""The Python blocks of the README and of the documentation run as they stand."""

import importlib
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import torch
from hydra.core.config_store import ConfigStore
from tests.contract.trainer_configs import NAMED
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents import heuristics
from packing_env import kernels
from packing_env.core import rewards, stability
from packing_env.generators import GENERATORS
from packing_env.kernels import stability_rules

ROOT = Path(__file__).resolve().parents[2]
FENCE = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
REGISTRIES: tuple[dict[str, Any], ...] = (
    rewards.TERMS, stability.RULES, stability_rules.OWN, heuristics.HEURISTICS, GENERATORS,
)  # fmt: skip
OPTIONAL = ("sb3_contrib", "stable_baselines3", "optuna")
"""Packages that the project does not depend on."""
_CORNERS = ("0 0 0", "60 0 0", "0 40 0", "0 0 30")
_FACETS = "".join(
    "facet normal 0 0 0\nouter loop\n"
    + "".join(f"vertex {_CORNERS[i]}\n" for i in corners)
    + "endloop\nendfacet\n"
    for corners in ((0, 2, 1), (0, 1, 3), (0, 3, 2), (1, 2, 3))
)
BRACKET = f"solid bracket\n{_FACETS}endsolid bracket\n"
"""A part of the pages, as an STL file."""


def blocks() -> list[tuple[str, str]]:
    pages = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [
        (page.relative_to(ROOT).as_posix(), block)
        for page in pages
        for block in FENCE.findall(page.read_text(encoding="utf-8"))
    ]


@pytest.fixture
def _compiled_code_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule of a page must not change the stamp of machine code that it is no part of.

    Other tests would compile their kernels again.
    """
    if "numba" in kernels.available_backends():
        importlib.import_module("packing_env.kernels.compiled.stability_rules")
        monkeypatch.setattr("packing_env.kernels.compiled.jit.fingerprint", str)


def is_robot_program(block: str) -> bool:
    """Return whether a block is the one that the last test of this file runs."""
    return "def inputs(" in block


@pytest.mark.usefixtures("spawned", "_compiled_code_stays")
@pytest.mark.parametrize(
    ("page", "block"),
    [shown for shown in blocks() if not is_robot_program(shown[1])],
    ids=lambda text: text.partition("\n")[0],
)
def test_block_runs(page: str, block: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for package in OPTIONAL:
        if re.search(rf"^(from|import) {package}\b", block, re.MULTILINE):
            pytest.importorskip(package, reason=f"{package} is missing: {page} was NOT run")
    monkeypatch.chdir(tmp_path)
    Path("bracket.stl").write_text(BRACKET, encoding="utf-8")
    for name, text in NAMED.findall((ROOT / page).read_text(encoding="utf-8")):
        Path(f"{name}.yaml").write_text(text, encoding="utf-8")
    with ExitStack() as restored:
        for registry in (*REGISTRIES, ConfigStore.instance().repo):
            restored.enter_context(patch.dict(registry))
        exec(compile(block, page, "exec"), {"__name__": "__main__"})


def test_the_robot_program_gives_the_policy_what_the_environment_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Other tests write and read exported programs: here the file is the program itself."""
    monkeypatch.chdir(tmp_path)
    written: dict[str, Any] = {}
    monkeypatch.setattr(torch.export, "save", lambda program, path: written.update({path: program}))
    monkeypatch.setattr(torch.export, "load", written.__getitem__)
    ((page, block),) = [shown for shown in blocks() if is_robot_program(shown[1])]
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(block, page, "exec"), names)
    env, root = names["env"], names["env"].reset()
    for packed in range(4):
        item_id = int(root["observation", "item_id"])
        sides = map(int, env.catalogue.names[item_id].split("x"))
        ground = 10 * root["observation", "heightmap"][0].numpy()
        entries = names["inputs"](ground, names["box"](*sides), item_id, packed)
        for key, value in entries.items():
            assert torch.equal(value, root[tuple(key.split("/"))]), key
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            _, root = env.step_and_maybe_reset(names["policy"](root))
