"""The example pages and the notebook run, on tasks small enough for every test run."""

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hydra.core.singleton import Singleton

from agents import heuristics
from packing_env.core import rewards

FOLDER = Path(__file__).resolve().parents[2] / "examples"
PAGES = sorted(FOLDER.glob("[0-9]*.py"))
SMALL = {
    "items": {"source": "cuboids", "extents": [[0.04, 0.04, 0.04], [0.08, 0.04, 0.04]]},
    "container": (0.16, 0.16, 0.12),
    "cell": 0.02,
    "num_items": 8,
    "pool_size": 32,
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "01_rollout": {"num_envs": 4, "steps": 20, **SMALL},
    "02_torchrl_collector": {"num_envs": 4, "total_frames": 64, **SMALL},
    "03_gymnasium": {"num_envs": 4, "steps": 12, **SMALL},
    "04_own_items": {"num_envs": 2},
    "05_own_reward": SMALL,
    "06_own_agent": {"frames": 128, "instances": 2, **SMALL},
    "07_planning_by_search": {"instances": 2, "playouts": 8, "num_items": 8, "pool_size": 8},
    "08_cuboids_and_published_heuristics": {"num_instances": 2, "num_items": 8},
    "09_torchrl_trainers": {"num_envs": 4, "total_frames": 64, **SMALL},
    "10_value_based": {"frames": 128, "instances": 2, **SMALL},
    "11_policy_gradient": {"frames": 512, "instances": 2, **SMALL},
    "12_continuous_actions": {"frames": 128, "instances": 2, "num_items": 8, "pool_size": 8},
    "13_manager_and_worker": {"frames": 128, "instances": 2, **SMALL},
    "14_stable_baselines3": {"num_envs": 4, "frames": 64, "episodes": 4, "num_items": 20},
    "15_cleanrl_ppo": {"num_envs": 4, "steps": 8, "updates": 2, "num_items": 20, "pool_size": 16},
    "16_optuna_sweep": {
        "trials": 1,
        "frames": 64,
        "overrides": (
            "env.num_envs=4",
            "env.num_items=8",
            "env.pool_size=8",
            "network.channels=4",
            "evaluation.instances=2",
        ),
    },
    "17_pack_an_order": {"seconds": 0.5, "folder": "."},
}
NEEDS = {"14_stable_baselines3": "sb3_contrib", "16_optuna_sweep": "optuna"}
"""Packages that the project does not depend on."""


@pytest.fixture(autouse=True)
def _registries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setattr(rewards, "TERMS", dict(rewards.TERMS))
    kept = dict(heuristics.HEURISTICS)
    monkeypatch.setattr(Singleton, "_instances", Singleton.get_state()["instances"])
    monkeypatch.chdir(tmp_path)
    yield
    heuristics.HEURISTICS.clear()
    heuristics.HEURISTICS.update(kept)


def run(page: str) -> Any:
    path = next(path for path in PAGES if path.stem == page)
    return runpy.run_path(str(path))["main"](**ARGUMENTS[page])


def test_every_page_is_run_here() -> None:
    assert [page.stem for page in PAGES] == sorted(ARGUMENTS)


@pytest.mark.parametrize("page", [page.stem for page in PAGES])
def test_page(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    if page in NEEDS:
        pytest.importorskip(NEEDS[page], reason=f"{NEEDS[page]} is missing: {page} was NOT run")
    assert run(page) is not None
    assert capsys.readouterr().out


def test_cleanrl_logs_to_weights_and_biases(monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[tuple[int, dict[str, float]]] = []
    runs: list[dict[str, Any]] = []

    def init(project: str, config: dict[str, Any]) -> SimpleNamespace:
        runs.append(config)
        return SimpleNamespace(log=lambda values, step: rows.append((step, values)))

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    monkeypatch.setattr(sys, "argv", ["15_cleanrl_ppo.py", "--track", "--updates", "1"])
    runpy.run_path(str(PAGES[14]), run_name="__main__")
    assert runs == [{"env_id": "PackingCuboid-v1", "seed": 0, "updates": 1}]
    [(step, values)] = rows
    assert step == values["frames"]
    assert 0 < values["utilization"] < 1


QUICK = {
    "trainer.minutes=0.5": "trainer.frames=256",
    "evaluation.instances=32": "evaluation.instances=4",
    "evaluation.rows=32": "evaluation.rows=4",
    "seconds=3,": "seconds=0.3,",
}
"""Times and sizes of a demonstration, and those of a test."""


def test_the_notebook_runs_from_top_to_bottom(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is missing: the notebook was NOT run")
    cells = json.loads((FOLDER / "packing.ipynb").read_text("utf-8"))["cells"]
    space: dict[str, Any] = {}
    replaced = 0
    for number, cell in enumerate(cells):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        for shown, quick in QUICK.items():
            replaced += source.count(shown)
            source = source.replace(shown, quick)
        exec(compile(source, f"cell {number}", "exec"), space)
    assert replaced == len(QUICK)
    said = capsys.readouterr().out
    assert "afterstate" in said
    assert "True ['plan.json'" in said
    assert space["plan"].num_packed == 11
    assert (tmp_path / "notebook_packed" / "packed.html").is_file()
