"""The policy whose plan and picture `packing eval` writes without an agent: the best heuristic."""

import json
from pathlib import Path

import pytest
from tests.agents.conftest import TINY_OVERRIDES

from agents.cli import main as cli


@pytest.mark.usefixtures("elsewhere")
def test_without_an_agent_the_plan_is_that_of_the_best_heuristic(capsys):
    task = [*TINY_OVERRIDES, "env.num_items=40", "evaluation.instances=3"]
    heuristics = "evaluation.heuristics=[random_legal,first_fit,lowest_z]"
    files = ["run_dir=run", "plan=plan.json", "evaluation.picture=packed.png"]
    assert cli.main(["eval", *task, heuristics, *files]) == 0
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
