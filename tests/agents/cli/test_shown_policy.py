"""The policy whose plan and picture `packing eval` writes: the best, named wherever it appears."""

import json
from pathlib import Path

import pytest
from tests.agents.conftest import TINY_OVERRIDES

from agents.cli import main as cli

EVAL = [
    "eval",
    *TINY_OVERRIDES,
    "evaluation.instances=3",
    "env.num_items=40",
    "run_dir=run",
    "plan=plan.json",
]
HEURISTICS = "evaluation.heuristics=[random_legal,first_fit,lowest_z]"


pytestmark = pytest.mark.usefixtures("elsewhere")


def test_without_an_agent_the_plan_is_that_of_the_best_heuristic(capsys):
    assert cli.main([*EVAL, HEURISTICS, "evaluation.picture=packed.png"]) == 0
    results = json.loads(Path("run/results.json").read_text())
    means = {
        name: entry["summary"]["utilization"]["mean"] for name, entry in results["policies"].items()
    }
    best = results["shown"]
    assert means[best] == max(means.values())
    assert best != "random_legal"
    assert json.loads(Path("plan.json").read_text())["policy"] == best
    assert f"the picture and the plan show {best}" in capsys.readouterr().out
    assert Path("run/packed.png").is_file()
    assert cli.main(["check", "plan.json"]) == 0
    assert "NOT CHECKED" not in capsys.readouterr().out


def test_the_plan_is_the_agents_if_there_is_one(capsys):
    assert cli.main([*EVAL, "agent=heuristic", "agent.name=first_fit", HEURISTICS]) == 0
    assert json.loads(Path("plan.json").read_text())["policy"] == "first_fit"
