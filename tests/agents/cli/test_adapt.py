"""`packing adapt`: new weights are saved only if they pack the held-out orders better."""

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from tests.commands import refused

from agents.cli import main as cli
from agents.training import checkpoint

pytestmark = pytest.mark.usefixtures("elsewhere")

TRAIN = [
    "train", "env=cuboid_online", "agent=afterstate", "env.num_envs=16", "env.num_items=40",
    "env.container=[5.0,5.0,5.0]", "generator.high=3", "agent.lr=1e-2", "agent.lr_end=1e-2",
    "env.observation=[heightmap,item_id,drop_height]", "network.width=16", "network.hidden=8",
    "trainer.frames=256", "curve=null",
]  # fmt: skip
"""A run whose training is too short to learn anything."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert cli.main([*TRAIN, f"run_dir={folder}"]) == 0
    return folder


@pytest.fixture
def run(trained: Path, elsewhere: Path) -> Path:
    """A copy of the run for one test, in its working folder."""
    shutil.copytree(trained, elsewhere / "run")
    return Path("run")


@pytest.fixture
def bad_run(run: Path) -> Path:
    """A run whose values are random numbers, which pack badly."""
    saved = checkpoint.load(run)
    torch.manual_seed(0)
    weight = saved.state["agent"]["policy"]["value.last.weight"]
    weight.copy_(5.0 * torch.randn_like(weight))
    checkpoint.write(saved.path, saved.state, saved.meta)
    return run


def history(count: int = 80, sides: tuple[int, ...] = (1, 2, 3)) -> Path:
    """Write orders of 40 boxes with random sides, in cells."""
    draw = random.Random(0)
    orders = [[[draw.choice(sides) for _ in range(3)] for _ in range(40)] for _ in range(count)]
    return written(orders)


def written(orders: list) -> Path:
    Path("orders.json").write_text(json.dumps(orders))
    return Path("orders.json")


def adapted(run: Path, orders: Path, frames: int) -> dict:
    command = ["adapt", str(run), "--history", str(orders), "--frames", str(frames)]
    assert cli.main([*command, "--out", "adapted"]) == 0
    return json.loads(Path("adapted/results.json").read_text())


def test_weights_that_gain_are_saved(bad_run: Path, capsys) -> None:
    results = adapted(bad_run, history(), frames=12_000)
    said = capsys.readouterr().out
    assert "56 orders to learn from, 24 held out" in said
    gain = results["paired_difference_in_utilization"]["new - old"]
    assert gain["mean"] > gain["half_width"]
    assert results["num_instances"] == 24
    assert "checkpoint=adapted" in said

    # The saved weights are the new ones, on the same held-out orders.
    command = ["eval", "checkpoint=adapted", "evaluation.heuristics=[]", "run_dir=played"]
    assert cli.main([*command, "evaluation.instances=24"]) == 0
    played = json.loads(Path("played/results.json").read_text())["policies"]["afterstate"]
    assert played["instances"] == results["policies"]["new"]["instances"]


def test_a_history_that_teaches_nothing_keeps_the_old_weights(bad_run: Path, capsys) -> None:
    """All boxes of every order fit however they are placed, so no weights can gain."""
    order = [[1, 1, 1], [2, 1, 1], [2, 2, 1], [3, 1, 1], [3, 2, 1], [3, 3, 1]]
    results = adapted(bad_run, written(80 * [order]), frames=2048)
    assert results["training"]["frames"] == 2048
    gain = results["paired_difference_in_utilization"]["new - old"]
    assert gain == {"mean": 0.0, "half_width": 0.0}
    assert not Path("adapted/checkpoints").exists()
    assert "checkpoint=run" in capsys.readouterr().out


def test_boxes_of_other_footprints_can_be_learned_from(run: Path) -> None:
    """The run has six footprints; sides of 2 and 3 have three, and sides of 2 to 5 have ten."""
    for sides in ((2, 3), (2, 3, 4, 5)):
        results = adapted(run, history(sides=sides), frames=256)
        assert results["policies"]["old"]["summary"]["utilization"]["mean"] > 0.3
        shutil.rmtree("adapted")


@pytest.mark.usefixtures("run")
def test_bad_input_is_refused_before_training(capsys) -> None:
    def said(run: str, orders: Path) -> str:
        return refused(capsys, "adapt", run, "--history", str(orders), "--out", "adapted")

    capsys.readouterr()
    assert "at least 67 orders" in said("run", history(count=40))
    assert "irregular" in said("pretrained/irregular", history())
    assert "cannot be read" in said("run", Path("nowhere.json"))
    assert not Path("adapted").exists()
    assert "--minutes=0.0" in refused(capsys, "adapt", "run", "--history", "h", "--minutes", "0")
