"""``packing bench``: what it measures, writes and refuses."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.agents.conftest import TINY_OVERRIDES
from tests.commands import refused

from agents.bench import kernel as kernel_module
from agents.bench.kernel import Size
from agents.bench.measure import FORMAT
from agents.cli import main as cli
from packing_env import kernels

QUICK = ["clock.repeats=2", "clock.warmup=1", "clock.shortest=0", "clock.singles=2"]
LEARNER = [
    *TINY_OVERRIDES,
    *QUICK,
    "agent.batch_size=4",
    "network.channels=4",
    "replay.capacity=64",
    "trainer.warmup=8",
    "trainer.update_every=8",
    "bench.updates=2",
]


pytestmark = pytest.mark.usefixtures("elsewhere")


def bench(*arguments: str) -> dict[str, Any]:
    assert cli.main(["bench", *arguments, "out=folder/file.json"]) == 0
    return json.loads(Path("folder/file.json").read_text())


def values_of(report: dict[str, Any], **case: Any) -> dict[str, Any]:
    """Return the values of the only measurement with these entries."""
    found = [row["values"] for row in report["results"] if case.items() <= row["case"].items()]
    assert len(found) == 1
    return found[0]


# ---------------------------------------------------------------------- what is measured


def test_step_covers_presets_kernels_and_rows() -> None:
    small = ["bench.rows=[2,1]", "bench.actions=[first_legal]", "threads=1"]
    presets = "bench.presets=[irregular,irregular_com_hull]"
    report = bench("step", *TINY_OVERRIDES, presets, *small, *QUICK)
    cases = [row["case"] for row in report["results"]]
    assert len(cases) == len({json.dumps(case) for case in cases}) == 2 * 2 * 2
    assert {case["kernel"] for case in cases} == {"eager", "numba"}
    assert {case["preset"] for case in cases} == {"irregular", "irregular_com_hull"}
    assert report["left_out"] == []
    one = values_of(report, preset="irregular", kernel="numba", rows=1, mode="placement")
    assert one["p50_ms"] <= one["p95_ms"] <= one["p99_ms"]
    assert one["step_p50_ms"] <= one["step_p95_ms"] <= one["step_p99_ms"]
    two = values_of(report, preset="irregular", kernel="numba", rows=2)
    assert "p50_ms" not in two
    assert two["decisions_per_second"] == pytest.approx(2e3 / two["wall_ms"])
    assert two["dispatches"] == one["dispatches"] > 0
    assert two["repeats"] == 2
    # The file holds what a number depends on.
    assert report["what"] == "step"
    assert report["command"][:3] == ["packing", "bench", "step"]
    assert report["machine"]["torch_threads"] == 1
    assert report["versions"]["torch"] == torch.__version__
    assert report["configuration"]["env"]["cell"] == 0.02
    assert report["configurations"]["env=irregular_com_hull"]["env"]["num_items"] == 6
    assert {"revision", "kernels", "seconds", "load_average"} <= set(report)


def test_what_cannot_be_measured_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    chosen = [*TINY_OVERRIDES, "env=irregular", "bench.kernels=[numba]", "bench.rows=[1,2]", *QUICK]
    report = bench("step", *chosen, "env.action_mode=hierarchical")
    assert {row["case"]["actions"] for row in report["results"]} == {"random_legal"}
    (left_out,) = report["left_out"]  # the smallest batch, and none after it
    assert left_out["case"]["actions"] == "first_legal"
    assert "env.action_mode=hierarchical" in left_out["reason"]
    assert "longest=1e-09" in refused(capsys, "bench", "step", *chosen, "clock.longest=1e-9")
    assert "device=cuda" in refused(capsys, "bench", "step", *chosen, "bench.through=[captured]")


@pytest.fixture
def small_kernels(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Options of a quick `packing bench kernel`."""
    small = {"A": Size(1, 30, 2, ((5, 7), (7, 5))), "B": Size(2, 30, 2, ((5, 7), (7, 5)))}
    monkeypatch.setattr(kernel_module, "SIZES", small)
    return ["bench.problems=[A,B]", *QUICK]


@pytest.mark.parametrize("wrong", [False, True])
def test_kernels_are_compared(
    wrong: bool,
    small_kernels: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A kernel with other bits is reported."""

    def drop_height(*inputs: Any, backend: str) -> torch.Tensor:
        error = 1e-6 if wrong and backend == "numba" else 0.0
        return kernels.drop_height(*inputs, backend=backend) + error

    monkeypatch.setattr(kernel_module, "drop_height", drop_height)
    report = bench("kernel", *small_kernels)
    eager, numba = (values_of(report, problem="B", kernel=name) for name in ("eager", "numba"))
    assert eager["same_bits"] is True
    assert numba["same_bits"] is not wrong
    assert ("NO" in capsys.readouterr().out) == wrong
    ratio = eager["thread_cpu_ms"] / numba["thread_cpu_ms"]
    assert numba["times_eager"] == pytest.approx(ratio)
    assert {"ns_per_operation", "wall_range_ms"} <= set(numba)


def test_training_taken_apart() -> None:
    report = bench("train", *LEARNER, "bench.frames=8")
    values = values_of(report, agent="dqn", preset="irregular", mode="placement", rows=4)
    spent = values["environment_us_per_frame"] + values["inference_us_per_frame"]
    assert values["inference_frames_per_second"] == pytest.approx(1e6 / spent)
    assert values["environment_frames_per_second"] > values["inference_frames_per_second"] > 0
    assert values["learning_us_per_frame"] > 0
    assert values["sampled_per_frame"] == 4 / 8
    assert values["parameters"] > 0
    assert 0 < values["environment_share"] < 1


def test_what_is_measured_is_written_at_once(
    small_kernels: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = [kernel_module.random_problem]

    def interrupted(*arguments: Any) -> Any:
        if not drawn:
            raise KeyboardInterrupt
        return drawn.pop()(*arguments)

    monkeypatch.setattr(kernel_module, "random_problem", interrupted)
    assert cli.main(["bench", "kernel", *small_kernels, "out=half.json"]) == 130
    report = json.loads(Path("half.json").read_text())
    assert report["complete"] is False
    assert len(report["results"]) == 2


# ---------------------------------------------------------------------- two files


def written(name: str, **changes: Any) -> dict[str, Any]:
    """A file of two measurements."""
    report = {
        "packing_bench": FORMAT,
        "what": "step",
        "complete": True,
        "machine": {"cores": 2},
        "configuration": {"out": name, "env": {"cell": 0.01}},
        "results": [
            {"case": {"rows": rows}, "values": {"wall_ms": 1.0 * rows, "same_bits": True}}
            for rows in (1, 2)
        ],
    }
    Path(name).write_text(json.dumps(report | changes))
    return report


def test_two_files_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    written("a.json")
    results = [
        {"case": {"rows": rows}, "values": {"wall_ms": 3.0, "same_bits": True, "new": 1}}
        for rows in (2, 4)
    ]
    other = {"out": "b", "env": {"cell": 0.02}}
    changes = {"machine": {"cores": 8}, "configuration": other, "complete": False}
    written("it's b.json", results=results, **changes)
    found = bench("compare", "a.json", "it's b.json")
    assert found["results"] == [
        {"case": {"rows": 2, "value": "wall_ms"}, "values": {"before": 2, "after": 3, "ratio": 1.5}}
    ]
    assert found["left_out"] == [
        {"case": {"rows": 1}, "reason": "not in it's b.json"},
        {"case": {"rows": 4}, "reason": "not in a.json"},
    ]
    said = capsys.readouterr().out
    assert "differs: machine.cores: 2 | 8" in said
    assert "differs: configuration.env.cell: 0.01 | 0.02" in said
    assert "configuration.out" not in said
    assert "it's b.json comes from a run that was stopped" in said
    assert "thread(s)" not in said  # of this machine, which measured nothing
