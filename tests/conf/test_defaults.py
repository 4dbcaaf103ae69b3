"""Defaults live in the constructors; the files of `conf/` repeat them, for Hydra and readers."""

import inspect
from typing import Any

import pytest
from omegaconf import OmegaConf
from tests.agents.algorithms.test_every_agent import LEARNERS

from agents.config.checks import files, load, locate
from agents.nested import targets
from agents.options import option_hints
from packing_env.values import Option, declared

OWN = {
    "network/hrl_paper.yaml": "the sizes of a paper",
    "trainer/quick.yaml": "a short training",
    "agent/heuristic.yaml": "a command needs a heuristic to play",
    "agent/search.yaml": "a command needs a policy to start from",
    "agent/beam.yaml": "a command needs a policy to start from",
    "agent/finalists.yaml": "a command needs a policy to start from",
}
"""Files that exist because their values differ, and why."""
PARTS = {"env", "agent", "collector", "replay", "network", "readout", "context", "self"}
"""Arguments that are other parts of a configuration."""


@pytest.mark.parametrize("group", ["agent", "network", "trainer", "collector"])
def test_every_file_repeats_the_defaults_of_its_constructor(group: str) -> None:
    for path in files(group, []):
        values: Any = OmegaConf.to_container(load(path), resolve=False)
        if "_target_" not in values or f"{group}/{path.name}" in OWN:
            continue
        values = {k: v for k, v in values.items() if not k.startswith("_") and k != "defaults"}
        arguments = inspect.signature(locate(load(path), group)).parameters
        empty = inspect.Parameter.empty
        defaults = {k: a.default for k, a in arguments.items() if a.default is not empty}
        values, defaults = (
            {k: v for k, v in d.items() if k not in PARTS} for d in (values, defaults)
        )
        assert values == defaults, path


@pytest.mark.parametrize(
    "group", ["agent", "network", "replay", "trainer", "collector", "distributed", "logger"]
)
def test_every_number_has_limits(group: str) -> None:
    for path in files(group, []):
        for place, node in targets(load(path)):
            hints = option_hints(locate(node, place))
            for key in hints.keys() & node.keys():  # none, if TorchRL wraps the constructor
                unlimited = declared(hints[key])[1] == Option()
                assert not (unlimited and is_number(node[key])) or key == "prior", (path, key)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def test_an_agent_in_python_has_the_network_of_the_command_line() -> None:
    networks = {
        path.stem: locate(load(path), "network")
        for path in files("network", [])
        if f"network/{path.name}" not in OWN
    }
    for path in files("agent", []):
        if path.stem not in LEARNERS:
            continue
        entries: Any = OmegaConf.to_container(load(path), resolve=False)
        chosen = {k: v for entry in entries["defaults"] for k, v in dict(entry).items()}
        agent = locate(load(path), "agent")
        own = inspect.signature(agent).parameters["network"].default or agent.own_network
        assert networks[chosen["override /network@_global_.network"]] is own, path
