"""Foreign runs write into their own folder alone: no link and no option leads out of it."""

import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks.attacks import rewrite
from omegaconf import DictConfig, OmegaConf
from tests.agents.training.test_resume import train

from agents.cli import main as cli
from agents.config.compose import compose
from agents.config.folders import ConfigError
from agents.loggers.logging import CSVLogger
from agents.training import checkpoint, resume, runs
from agents.training.runs import RunFolderError
from packing_env import folders
from packing_env.folders import FolderError, check_links

MORE = "trainer.frames=96"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """A folder that nothing may write to."""
    folder = tmp_path / "victim"
    folder.mkdir()
    (folder / "thesis.txt").write_text("mine")
    return folder


def untouched(victim: Path) -> bool:
    return [p.name for p in victim.rglob("*")] == ["thesis.txt"] and (
        (victim / "thesis.txt").read_text() == "mine"
    )


def choose(run: Path, **sections: Any) -> None:
    """Replace sections in a run's stored configuration."""
    place = checkpoint.find(run)
    rewrite(place, {**checkpoint.load(run).meta["config"], **sections})


# ---------------------------------------------------------------------- links


def test_a_lock_that_is_a_link_empties_nothing(run: Path, victim: Path, capsys: Any) -> None:
    (run / runs.LOCK).unlink()
    (run / runs.LOCK).symlink_to(victim / "thesis.txt")
    assert train(f"resume={run}", MORE) == 2
    assert f"{runs.LOCK} is a link" in "".join(capsys.readouterr().err.split("\n"))
    assert not runs.is_locked(run)
    assert untouched(victim)


def test_a_new_folder_with_links_leads_nowhere(tmp_path: Path, victim: Path) -> None:
    """``run_dir`` may hold the files of a run that was killed at its start."""
    folder = runs.new_folder(tmp_path / "run", "run")
    for name in (runs.LOCK, f".{runs.DESCRIPTION}.0a1b"):
        (folder / name).symlink_to(victim / "thesis.txt")
    assert runs.new_folder(folder, "run") == folder
    with pytest.raises(RunFolderError, match="is a link"), runs.locked(folder):
        pass
    runs.write_json(folder / runs.DESCRIPTION, {})
    assert not (folder / runs.DESCRIPTION).is_symlink()
    assert untouched(victim)


def test_a_lock_that_is_a_pipe_holds_nobody_up(run: Path) -> None:
    (run / runs.LOCK).unlink()
    os.mkfifo(run / runs.LOCK)
    assert not runs.is_locked(run)
    with pytest.raises(RunFolderError, match=runs.LOCK), runs.locked(run):
        pass


@pytest.mark.parametrize("place", ["a", "a/b/c/d"])
def test_a_link_at_any_level_is_refused(place: str, run: Path, victim: Path, capsys: Any) -> None:
    link = run / place
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(victim)
    evaluation = checkpoint.load(run).meta["config"]["evaluation"]
    choose(run, evaluation={**evaluation, "instances": 1, "plan": f"{place}/.bashrc"})
    assert train(f"resume={run}", MORE) == 2
    assert f"{link} is a link" in "".join(capsys.readouterr().err.split("\n"))
    assert untouched(victim)


def test_links_inside_a_run_stay(run: Path) -> None:
    """Weights & Biases makes such links: ``wandb/latest-run``."""
    (run / "wandb" / "run-1").mkdir(parents=True)
    (run / "wandb" / "latest-run").symlink_to("run-1")
    check_links(run)


def test_circles_of_links_are_refused(run: Path) -> None:
    (run / "a").symlink_to("b")
    (run / "b").symlink_to("a")
    with pytest.raises(FolderError, match="is a link"):
        check_links(run)


@pytest.mark.parametrize("option", ["picture", "plan"])
def test_a_file_of_an_evaluation_is_not_written_through_a_link(
    option: str, run: Path, victim: Path
) -> None:
    """The link may appear after the check of the run."""
    (run / "a").mkdir()
    (run / "a" / "b").symlink_to(victim)
    with pytest.raises(FolderError, match="is a link"):
        runs.place(run, f"a/b/c/{option}.png")
    assert runs.place(run, f"a/c/{option}.png") == run / "a" / "c" / f"{option}.png"
    assert (run / "a" / "c").is_dir()
    own = victim.parent / "own" / "plan.json"
    assert runs.place(run, str(own)) == own  # which only this user's command can name
    assert untouched(victim)


def test_a_log_is_not_appended_through_a_link(tmp_path: Path, victim: Path) -> None:
    logger = CSVLogger(tmp_path)
    logger.log(1, {"a": 1.0})
    (tmp_path / "metrics.csv").unlink()
    (tmp_path / "metrics.csv").symlink_to(victim / "thesis.txt")
    logger.log(2, {"a": 1.0})
    logger.log(3, {"a": 1.0, "b": 1.0})
    logger.close()
    assert untouched(victim)
    assert (tmp_path / "metrics.csv").read_text().splitlines()[1:] == [
        "1,1.0,",
        "2,1.0,",
        "3,1.0,1.0",
    ]


def test_another_name_of_a_file_is_not_written(tmp_path: Path, victim: Path) -> None:
    (tmp_path / "run.lock").hardlink_to(victim / "thesis.txt")
    with pytest.raises(FolderError, match="another name"):
        folders.open_below(tmp_path, "run.lock", os.O_RDWR | os.O_APPEND)


# ---------------------------------------------------------------------- options


PLACES = {
    "items.cache_dir": "/somewhere",
    "env.items": {"source": "shapes", "cache_dir": "somewhere"},
    "env.items.cache_dir of the name": {"source": "shapes", "cache_dir": "${name}"},
    "env.generator": {"name": "catalogue_mix", "cache_dir": "/somewhere"},
    "env.cache_dir": "/somewhere",
    "agent.log_dir": "somewhere",
    "replay.folder": ["somewhere"],
    "trainer.out": "../somewhere",
    "network.parts": [[{"dir": "somewhere"}]],
    "logger.tracking_uri": "http://somewhere",
    "logger.settings": {"base_url": "http://somewhere"},
    "logger.project_of_mine": "anything that a service reads",
    "distributed.address": "ray://somewhere:10001",
    "evaluation.plan": ["plan.json"],
    "curve": {"a": "curve.png"},
}


@pytest.mark.parametrize("key", PLACES)
def test_no_section_of_a_run_names_a_place(
    key: str, composed: DictConfig, saved: dict[str, Any]
) -> None:
    foreign = OmegaConf.create(saved)
    place = PLACES[key]
    key = key.partition(" ")[0]
    if key.endswith("cache_dir") and isinstance(place, dict):
        key = key.removesuffix(".cache_dir")
    OmegaConf.update(foreign, key, place, force_add=True)
    plain = OmegaConf.to_container(foreign, resolve=False)
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        resume.run_config(composed, plain, [], [])


@pytest.mark.parametrize("command", ["play", "eval", "render", "resume"])
def test_no_command_makes_a_folder_that_a_run_names(
    command: str, run: Path, tmp_path: Path, capsys: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    env = checkpoint.load(run).meta["config"]["env"]
    choose(run, env={**env, "items": {"source": "shapes", "cache_dir": str(tmp_path / "made")}})
    words = {
        "resume": ["train", f"resume={run}", MORE],
        "eval": ["eval", f"checkpoint={run}", "run_dir=out"],
    }.get(command, [command, f"checkpoint={run}"])
    assert cli.main(words) == 2
    assert "env.items.cache_dir" in capsys.readouterr().err
    assert not (tmp_path / "made").exists()


def test_places_that_are_read_stay_the_runs(saved: dict[str, Any]) -> None:
    items = {"source": "meshes", "paths": ["/parts/of/mine"], "unit": "mm"}
    taken = resume.run_config(compose("train"), {**saved, "items": items}, [], [])
    assert taken["items"] == items
