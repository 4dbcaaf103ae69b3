"""The configuration in a checkpoint is data: none of its targets runs."""

import re
from pathlib import Path
from typing import Any

import pytest
from omegaconf import DictConfig, OmegaConf
from tests.agents.conftest import TINY_OVERRIDES

from agents.cli.eval import FROM_RUN
from agents.config.build import build_agent, build_env
from agents.config.compose import compose
from agents.config.folders import ConfigError
from agents.config.saved import adopt, known_targets

DQN = "agents.algorithms.dqn.DQN"


@pytest.fixture(scope="module")
def trained() -> DictConfig:
    return compose("train", TINY_OVERRIDES)


@pytest.fixture(scope="module")
def evaluated() -> DictConfig:
    return compose("eval")


def plain(config: DictConfig) -> dict[str, Any]:
    return OmegaConf.to_container(config, resolve=False)


def test_an_honest_configuration_is_adopted(trained: DictConfig, evaluated: DictConfig) -> None:
    merged = adopt(evaluated, plain(trained), FROM_RUN, [])
    for section in FROM_RUN:
        assert plain(merged[section]) == plain(trained[section])
    env = build_env(merged)
    assert build_agent(merged, env).policy(env.reset())["action"].shape == (4,)


def test_a_run_may_have_values_beyond_later_limits(
    trained: DictConfig, evaluated: DictConfig
) -> None:
    saved = plain(trained)
    saved["agent"]["lr"] = 0.0
    assert adopt(evaluated, saved, FROM_RUN, []).agent.lr == 0.0
    overrides = ["checkpoint=RUN", "agent.lr=0"]
    with pytest.raises(ConfigError, match=r"agent\.lr=0"):
        adopt(compose("eval", overrides), saved, FROM_RUN, overrides)


@pytest.mark.parametrize("command", ["eval", "play", "render"])
def test_options_of_the_run_s_agent_are_set_without_naming_it(
    command: str, trained: DictConfig
) -> None:
    overrides = ["checkpoint=RUN", "agent.gamma=0.5", "network.precision=fp32"]
    overrides += ["out=a.png"] * (command == "render")
    merged = adopt(compose(command, overrides), plain(trained), FROM_RUN, overrides)
    assert plain(merged.agent) == plain(trained.agent) | {"gamma": 0.5}
    assert plain(merged.network) == plain(trained.network) | {"precision": "fp32"}


@pytest.mark.parametrize(
    ("override", "reason"),
    [
        ("agent.gama=0.5", "unknown key 'agent.gama', did you mean gamma?; agent of the run has"),
        ("agent.deep.lr=1", "unknown key 'agent.deep.lr'; the run has no such section"),
        ("agent.gamma.lr=1", "unknown key 'agent.gamma.lr'; the run has no such section"),
        ("agent.gamma=much", "agent.gamma='much' must be a number"),
        ("agent.gamma=7", "agent.gamma=7 "),
        ("agent.gamma=???", "agent.gamma is not given"),
    ],
)
def test_options_that_the_run_s_agent_does_not_have_are_refused(
    override: str, reason: str, trained: DictConfig
) -> None:
    overrides = ["checkpoint=RUN", override]
    with pytest.raises(ConfigError, match=re.escape(reason)):
        adopt(compose("eval", overrides), plain(trained), FROM_RUN, overrides)


@pytest.mark.parametrize("overrides", [["checkpoint=null", "agent.gamma=0.5"],
                                       ["checkpoint=RUN", "~agent.gamma"]])  # fmt: skip
def test_options_that_no_run_takes_are_not_dropped(overrides: list[str]) -> None:
    with pytest.raises(ConfigError, match="gamma"):
        compose("eval", overrides)


def test_entries_of_lists_of_the_run_are_set(trained: DictConfig) -> None:
    overrides = ["checkpoint=RUN", "env.container.2=0.25", "++agent.gamma=0.5"]
    saved = plain(trained)
    del saved["agent"]["gamma"]  # as of an older run
    merged = adopt(compose("eval", overrides), saved, FROM_RUN, overrides)
    assert (merged.env.container[2], merged.agent.gamma) == (0.25, 0.5)


def payloads(victim: Path) -> dict[str, dict[str, Any]]:
    """Sections of a foreign run, each of which would make a folder or read the environment.

    The payloads of `benchmarks/attacks.py` are tested in tests/attacks, for every section.
    """
    agent = {"_target_": DQN, "_partial_": True}
    return {
        "known target elsewhere": {
            "agent": agent | {"lr": {"_target_": "agents.loggers.logging.CSVLogger", "folder": "."}}
        },
        "target that is no name": {"agent": agent | {"lr": {"_target_": ["os.mkdir"]}}},
        "second interpolation": {"agent": agent | {"lr": "${seed}${oc.env:HOME}"}},
        "nested interpolation": {"agent": agent | {"lr": "${${items.which}:HOME}"}},
        "escaped": {"agent": agent | {"lr": "\\${oc.env:HOME}"}},
        "made of two": {"agent": agent | {"lr": "${items.dollar}{oc.env:HOME}"}},
        "in a list": {"items": {"paths": [["${seed} ${oc.env:HOME}"]]}},
        "text": {"agent": f"_target_: os.mkdir\n_args_: [{victim}]"},
        "no target": {"agent": {"lr": 1}},
    }


@pytest.mark.parametrize("case", payloads(Path("x")))
def test_what_could_run_is_refused(case: str, evaluated: DictConfig, tmp_path: Path) -> None:
    victim = tmp_path / "created"
    with pytest.raises(ConfigError, match="the checkpoint's"):
        adopt(evaluated, payloads(victim)[case], FROM_RUN, [])
    assert not victim.exists()


def test_a_configuration_that_is_no_mapping_is_refused(evaluated: DictConfig) -> None:
    with pytest.raises(ConfigError, match="not a mapping"):
        adopt(evaluated, ["agent"], FROM_RUN, [])


def test_targets_are_known_by_their_place(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "experiment").mkdir()
    (tmp_path / "agent/mine.yaml").write_text("_target_: a.A\nparts: [{_target_: a.B}]\n")
    (tmp_path / "experiment/mine.yaml").write_text(
        "# @package _global_\nnetwork: {_target_: a.C}\n"
    )
    added = known_targets((tmp_path,)) - known_targets()
    assert added == {("agent", "a.A"), ("agent.parts.0", "a.B"), ("network", "a.C")}
    assert ("agent", DQN) in known_targets()
