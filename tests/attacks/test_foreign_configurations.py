"""Whatever the configuration of a foreign run holds, `resume` executes none of it."""

import random
from pathlib import Path
from typing import Any

import pytest
from benchmarks.attacks import (
    NOT_TAKEN,
    attack_with_configurations,
    attack_with_tampered_files,
    make_run,
    payloads,
)
from omegaconf import DictConfig, OmegaConf
from tests.agents.conftest import TINY_OVERRIDES

from agents.cli.eval import FROM_RUN
from agents.config.compose import compose
from agents.config.folders import ConfigError
from agents.config.saved import adopt
from agents.training import checkpoint, resume

SECTIONS = (
    "items", "generator", "reward", "network", "env", "collector", "replay", "trainer", "agent",
    "logger", "seed", "device", "name", "checkpoint", "warm_start", "evaluation", "curve",
    "distributed",
)  # fmt: skip


def test_every_section_is_attacked(saved: dict[str, Any]) -> None:
    assert set(SECTIONS) == saved.keys() - NOT_TAKEN


@pytest.mark.parametrize("section", SECTIONS)
def test_no_section_brings_what_could_run(
    section: str, composed: DictConfig, saved: dict[str, Any], tmp_path: Path
) -> None:
    """`train resume=` takes over a run's configuration here."""
    marker = tmp_path / "executed"
    for seed in range(3):
        bad = payloads(saved[section], marker, tmp_path / "object.pt", random.Random(seed))
        for kind, payload in bad.items():
            if seed and "leaf" not in kind:
                continue  # the same as before
            foreign = {**saved, "name": "os.mkdir", section: payload}
            with pytest.raises(ConfigError):
                pytest.fail(f"{kind}: {resume.run_config(composed, foreign, [], [])[section]}")
    assert not marker.exists()


def test_an_honest_one_is_taken_over(composed: DictConfig, saved: dict[str, Any]) -> None:
    taken = resume.run_config(composed, saved, [], [])
    for section in SECTIONS:
        assert OmegaConf.to_container(taken, resolve=False)[section] == saved[section]


def test_the_commands_refuse_foreign_runs(tmp_path: Path) -> None:
    found = attack_with_configurations(tmp_path, 4, random.Random(7))
    assert found["otherwise"] == []
    assert (found["executed"], found["refused"]) == (0, 4)


def test_targets_that_the_user_names_are_taken(saved: dict[str, Any], tmp_path: Path) -> None:
    """The user names them on the command line or in a folder of --config-dir."""
    own = {**saved["agent"], "_target_": "tests.agents.conftest.FakeAgent"}
    kept = {key: own[key] for key in ("_target_", "_partial_", "lr")}
    foreign = {**saved, "agent": kept}
    with pytest.raises(ConfigError, match=r"the checkpoint's agent is made by 'tests.agents"):
        adopt(compose("train"), foreign, ["agent"], [])
    named = compose("eval")
    OmegaConf.update(named, "agent", kept, force_add=True)  # as `+agent._target_=...` does
    assert adopt(named, {"agent": {**kept, "lr": 0.5}}, FROM_RUN, []).agent.lr == 0.5
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent/mine.yaml").write_text("_target_: tests.agents.conftest.FakeAgent\n")
    assert adopt(compose("eval"), foreign, ["agent"], [], [tmp_path]).agent._target_ == (
        "tests.agents.conftest.FakeAgent"
    )


@pytest.mark.parametrize("folder", ["/tmp", "..", "a/../.."])
@pytest.mark.parametrize("key", ["evaluation.plan", "evaluation.picture", "curve"])
def test_a_stored_place_outside_the_run_is_refused(
    key: str, folder: str, composed: DictConfig, saved: dict[str, Any]
) -> None:
    place = f"{folder}/a.{'json' if key == 'evaluation.plan' else 'png'}"
    foreign = OmegaConf.create(saved)
    OmegaConf.update(foreign, key, place)
    plain = OmegaConf.to_container(foreign, resolve=False)
    with pytest.raises(ConfigError, match=f"{key} is .* outside the run's folder"):
        resume.run_config(composed, plain, [], [])


def test_a_place_that_this_user_chooses_is_taken(saved: dict[str, Any]) -> None:
    words = ["evaluation.plan=../a.json", "++items.cache_dir=/mine"]
    foreign = {**saved, "items": {**saved["items"], "cache_dir": "/mine"}}
    taken = resume.run_config(compose("train", [*TINY_OVERRIDES, *words]), foreign, words, [])
    assert taken.evaluation.plan == "../a.json"
    assert taken.env["items"].cache_dir == "/mine"


@pytest.mark.parametrize("name", ["${oc.env:HOME}", "${seed}", "a\x1b[2Jb", ["a"], {"a": 1}])
def test_a_stored_name_is_plain_text(
    name: Any, composed: DictConfig, saved: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match="the checkpoint's name is"):
        resume.run_config(composed, {**saved, "name": name}, [], [])


def test_a_run_stores_its_name_as_text(composed: DictConfig, tmp_path: Path) -> None:
    stored = checkpoint.load(make_run(tmp_path, "name=${env.task}_${seed}")).meta["config"]
    assert stored["name"] == "irregular_0"
    assert resume.run_config(composed, stored, [], []).name == "irregular_0"


def test_tampered_checkpoints_are_not_loaded(tmp_path: Path) -> None:
    found = attack_with_tampered_files(tmp_path, 20, random.Random(7))
    assert found["altered_and_loaded"] == 0
    assert found["the_one_before_was_loaded"] + found["said_the_same"] == 20


@pytest.mark.parametrize("packages", ["os", 3, {"os": 1}, ["os"], [["os"]], ["my\npkg"]])
def test_no_package_of_a_run_is_imported_unless_the_command_names_it(
    packages: Any, composed: DictConfig, saved: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=r"imports|--import"):
        resume.run_config(composed, {**saved, "imports": packages}, [], [])
