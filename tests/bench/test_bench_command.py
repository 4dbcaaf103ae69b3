"""``packing bench``: what it measures, writes and refuses."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf
from tensordict import TensorDictBase
from tests.agents.conftest import TINY_OVERRIDES

from agents.bench.baselines import jumanji_bin_pack
from agents.bench.baselines.problems import Size
from agents.bench.command import settings
from agents.bench.compare import Compare
from agents.bench.reports.record import FORMAT, read
from agents.bench.workloads.learner import build_trainer
from agents.cli import main as cli
from agents.config.compose import compose
from agents.config.folders import ConfigError, config_folder, groups
from packing_env import kernels, make_env

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


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def bench(*arguments: str) -> dict[str, Any]:
    """What the command wrote."""
    assert cli.main(["bench", *arguments, "out=folder/file.json"]) == 0
    return json.loads(Path("folder/file.json").read_text())


def values_of(report: dict[str, Any], **case: Any) -> dict[str, Any]:
    """Those of the one measurement with these entries."""
    found = [row["values"] for row in report["results"] if case.items() <= row["case"].items()]
    assert len(found) == 1
    return found[0]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert cli.main(["bench", *arguments]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith("packing: ")
    assert "\n" not in said
    return said


# ---------------------------------------------------------------------- what is measured


def test_step_sweeps_rows_kernels_and_interfaces() -> None:
    chosen = ["bench.rows=[2,1]", "bench.through=[env,vector_env]", "bench.modes=[placement]"]
    chosen.append("bench.actions=[first_legal]")
    report = bench("step", *TINY_OVERRIDES, "env=irregular", *chosen, *QUICK, "threads=1")
    cases = [row["case"] for row in report["results"]]
    assert len(cases) == len({json.dumps(case) for case in cases}) == 2 * 2 * 2
    assert {case["kernel"] for case in cases} == {"eager", "numba"}
    assert report["left_out"] == []
    one = values_of(
        report, kernel="numba", actions="first_legal", through="env", rows=1, mode="placement"
    )
    assert one["p50_ms"] <= one["p95_ms"] <= one["p99_ms"]
    assert one["step_p50_ms"] <= one["step_p95_ms"] <= one["step_p99_ms"]
    two = values_of(report, kernel="numba", actions="first_legal", through="env", rows=2)
    assert "p50_ms" not in two
    assert two["decisions_per_second"] == pytest.approx(2e3 / two["wall_ms"])
    assert two["dispatches"] == one["dispatches"] > 10
    assert two["repeats"] == 2
    # everything a number depends on
    assert report["what"] == "step"
    assert report["command"][:3] == ["packing", "bench", "step"]
    assert report["machine"]["torch_threads"] == 1
    assert report["versions"]["torch"] == torch.__version__
    assert report["configuration"]["env"]["cell"] == 0.02
    assert report["configurations"]["env.action_mode=placement"]["env"]["num_items"] == 6
    assert {"revision", "kernels", "seconds"} <= set(report)


def test_step_measures_the_core_and_sweeps_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(jumanji_bin_pack, "find_spec", lambda name: None)
    drawn = tmp_path / "steps.png"
    chosen = ["env=cuboid_online", "env.pool_size=4", "bench.kernels=[numba]", *QUICK]
    chosen += ["bench.actions=[first_legal]", "bench.rows=[1,2]", "bench.through=[core,env]"]
    sweep = ["bench.sweep=[[env.num_items,20,30]]", "bench.sweep_rows=2", f"bench.plot='{drawn}'"]
    report = bench("step", *chosen, *sweep, "bench.beside=[jumanji]")
    cases = [row["case"] for row in report["results"]]
    assert [case["rows"] for case in cases] == [1, 2, 1, 2] + 4 * [2]
    assert [case.get("env.num_items") for case in cases] == 4 * [None] + [20, 20, 30, 30]
    assert {case["through"] for case in cases} == {"core", "env"}
    (absent,) = report["left_out"]
    assert "pip install packing-env[bench]" in absent["reason"]
    assert drawn.read_bytes().startswith(b"\x89PNG")
    other = ["env.action_mode=candidate", "env.candidate_generator=corner_points"]
    said = refused(capsys, "step", *chosen[1:], "env=cuboid_buffer", *other)
    assert "bench.through=[core] needs the compiled engine" in said
    said = refused(capsys, "step", *chosen[:-1], "bench.through=[captured]")
    assert "bench.through=[captured] records a CUDA graph, but this runs on cpu" in said


def test_step_plays_every_mode_and_leaves_out_what_cannot_be(
    capsys: pytest.CaptureFixture[str],
) -> None:
    chosen = [*TINY_OVERRIDES, "env=irregular", "bench.kernels=[numba]", "bench.rows=[1]", *QUICK]
    modes = ("candidate", "multi_head", "hierarchical", "continuous")
    report = bench("step", *chosen, f"bench.modes=[{','.join(modes)}]")
    played = {(row["case"]["mode"], row["case"]["actions"]) for row in report["results"]}
    left_out = {(row["case"]["mode"], row["case"]["actions"]) for row in report["left_out"]}
    assert left_out == {(mode, "first_legal") for mode in ("hierarchical", "continuous")}
    assert len(played) == 6
    assert {mode for mode, _ in played} == set(modes)
    assert all("needs one mask over all actions" in row["reason"] for row in report["left_out"])
    assert "left out: " in capsys.readouterr().out
    chosen += ["bench.actions=[first_legal]", "clock.longest=1e-9"]
    assert "more than longest=1e-09" in refused(capsys, "step", *chosen)


def test_kernels_are_compared_with_both_baselines(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {
        "A": Size(1, 30, 2, ((5, 7), (7, 5))),
        "batch": Size(3, 20, 1, ((4, 4),), baseline_rows=1),
    }
    monkeypatch.setattr("agents.bench.kernel.SIZES", small)
    report = bench(
        "kernel", "bench.problems=[A,batch]", "bench.cases=8", "bench.visible=[]", *QUICK
    )
    for problem in small:
        for method in ("numpy", "unfold", "eager", "numba"):
            assert values_of(report, problem=problem, method=method)["same_bits"] is True
    values = values_of(report, problem="A", method="numba")
    numpy = values_of(report, problem="A", method="numpy")
    assert values["times_numpy"] == pytest.approx(numpy["thread_cpu_ms"] / values["thread_cpu_ms"])
    assert {"times_unfold", "ns_per_operation", "wall_range_ms"} <= set(values)
    assert values_of(report, problem="batch", method="numpy")["baseline_share"] == pytest.approx(
        1 / 3
    )
    found = values_of(report, problem="random", method="numba")
    assert found["cases"] == 8
    assert found["differences"] == 0


def test_maps_are_updated_beside_maps_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(make_env, resolution=40, num_items=5)
    monkeypatch.setattr("agents.bench.workloads.visible.make_env", small)
    report = bench("kernel", "bench.problems=[]", "bench.cases=0", "bench.visible=[3]", *QUICK)
    anew, updated = (values_of(report, maps=maps) for maps in ("recomputed", "updated"))
    assert anew["decisions"] == updated["decisions"] > 1
    assert updated["same_bits"] is True
    assert 0 < updated["pairs_computed"] < anew["pairs_computed"] < 1
    ratio = anew["thread_cpu_ms"] / updated["thread_cpu_ms"]
    assert updated["times_recomputed"] == pytest.approx(ratio)


def test_a_kernel_with_other_bits_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("agents.bench.kernel.SIZES", {"A": Size(1, 12, 1, ((3, 3),))})
    exact = kernels.drop_height
    monkeypatch.setattr(kernels, "drop_height", lambda *given, **kw: exact(*given, **kw) + 1e-6)
    report = bench("kernel", "bench.problems=[A]", "bench.cases=0", "bench.visible=[]", *QUICK)
    assert values_of(report, method="unfold")["same_bits"] is True
    assert values_of(report, method="numba")["same_bits"] is False
    assert "NO" in capsys.readouterr().out


def test_training_taken_apart() -> None:
    report = bench("train", *LEARNER, "bench.frames=8")
    values = values_of(report, agent="dqn", preset="irregular", mode="placement", rows=4)
    rates = [values[f"{p}frames_per_second"] for p in ("environment_", "inference_")]
    assert rates[0] > rates[1] > 0
    assert rates[1] == pytest.approx(
        1e6 / (values["environment_us_per_frame"] + values["inference_us_per_frame"])
    )
    assert values["learning_us_per_frame"] > 0
    assert values["sampled_per_frame"] == 4 / 8
    assert values["parameters"] > 100
    assert 0 < values["environment_share"] < 1


def test_what_is_measured_is_written_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    small = {"A": Size(1, 12, 1, ((3, 3),))}
    monkeypatch.setattr("agents.bench.kernel.SIZES", small)

    def interrupted(*arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("agents.bench.kernel.compare_with_unfold", interrupted)
    chosen = ["bench.problems=[A]", "bench.cases=1", "bench.visible=[]", *QUICK, "out=half.json"]
    assert cli.main(["bench", "kernel", *chosen]) == 130
    report = json.loads(Path("half.json").read_text())
    assert report["complete"] is False
    assert len(report["results"]) == 4


def test_an_on_policy_agent_is_taken_apart() -> None:
    small = ["agent=ppo", "replay.horizon=4", "agent.batch_size=8", "bench.updates=1"]
    report = bench("train", *TINY_OVERRIDES, *small, *QUICK, "bench.frames=8")
    values = values_of(report, agent="ppo")
    assert values["sampled_per_frame"] == values["epochs"] == 4


def test_steady_training_reads_nothing_and_takes_the_same_memory() -> None:
    values = values_of(bench("sync", *LEARNER, "bench.cycles=2"), agent="dqn")
    assert values["host_reads"] == values["copies"] == 0
    assert values["steady"] is True
    assert values["cpu_step_counters"] > 0
    assert values["parameters_moving_mb"] == 0
    assert values["replay_fixed_mb"] > values["replay_moving_mb"]
    assert 100 < values["operations_per_step"] < 10_000
    sites = values["by_call_site"]["operations"]
    assert any(site.startswith("agents/dqn.py:") for site in sites) or len(sites) == 25
    assert sum(values["reads_per_log"].values()) == values["reads_per_log_total"] > 0
    assert all(site.startswith("agents/") for site in values["reads_per_log"])


def test_sync_finds_a_read(monkeypatch: pytest.MonkeyPatch) -> None:
    config = compose("bench", ["bench=sync", *LEARNER])
    trainer, sync = build_trainer(config), instantiate(config.bench)
    trainer.step()
    extend = trainer.replay.extend

    def reading(step: TensorDictBase) -> None:
        extend(step)
        float(trainer.agent.policy.epsilon)

    monkeypatch.setattr(trainer.replay, "extend", reading)
    assert sync.reads(trainer)["reading_operations"]["aten::item"] >= 4  # one in every step
    monkeypatch.setattr(trainer.replay, "extend", extend)
    assert sync.reads(trainer)["host_reads"] == 0


def test_the_protocol_of_one_episode() -> None:
    """The manager picks, the worker places, transitions are stored; a case learns from them."""
    small = [o for o in TINY_OVERRIDES if o != "env.num_envs=4"]
    paper = ["network=hrl_small", "env.grid_step=1", "bench.steps=3", "env.num_visible=2"]
    report = bench("seed", *small, *paper, "bench.learn_repeats=1", "agent.batch_size=4", *QUICK)
    acts = values_of(report, preset="irregular_paper", learns=False)
    learns = values_of(report, preset="irregular_paper", learns=True)
    parts = ("environment", "manager", "maps", "worker", "replay")
    for values in (acts, learns):
        assert values["steps"] == 3
        assert values["success"] == values["items_packed"] / 3
        assert all(values[f"{part}_seconds"] > 0 for part in parts)
        shares = sum(values[f"{part}_seconds"] for part in parts)
        assert shares < 1.01 * values["episode_seconds"]  # the rest: a reset, and this loop
        assert values["p50_ms"] <= values["p95_ms"] <= values["p99_ms"]
        assert "gpu_utilization_percent" not in values
    assert acts["elapsed_seconds"] >= acts["build_seconds"] + 0.9 * acts["episode_seconds"]
    spent = acts["elapsed_seconds"] - acts["build_seconds"]
    assert acts["steps_per_second"] == pytest.approx(3 / spent)
    assert "update_seconds" not in acts
    assert learns["repeats"] == 1
    assert (learns["skipped"], learns["batch_size"]) == (0, 4)
    assert 0 < learns["manager_update_seconds"] < learns["update_seconds"]
    assert 0 < learns["worker_update_seconds"] < learns["update_seconds"]
    assert learns["elapsed_seconds"] > learns["episode_seconds"] + learns["update_seconds"]


def test_the_protocol_needs_a_manager_that_decides(capsys: pytest.CaptureFixture[str]) -> None:
    small = [o for o in TINY_OVERRIDES if o != "env.num_envs=4"]
    tiny = ["network=hrl_small", "env.grid_step=1", "env.num_visible=2", *QUICK]
    assert cli.main(["bench", "seed", *small, *tiny, "agent.stage1_frames=100"]) == 2
    assert "agent.stage1_frames=0" in capsys.readouterr().err


def test_the_protocol_is_that_of_the_paper() -> None:
    config = compose("bench", ["bench=seed"])
    env, agent = config.env, config.agent
    assert (env.num_envs, env.num_items, env.num_visible, env.grid_step) == (1, 20, 20, 4)
    assert env.container[0] / env.cell == pytest.approx(200)
    assert (agent.batch_size, agent.stage1_frames, agent.epsilon_start) == (128, 0, 0.0)
    assert (config.network.joint, config.network.thumbnail) == (True, 0)
    assert (config.bench.steps, list(config.bench.learn)) == (10, [False, True])


def test_replay_operations() -> None:
    report = bench("replay", "bench.capacity=512", "bench.batch_size=16", *QUICK)
    names = {row["case"]["operation"] for row in report["results"]}
    assert {"sampler: sample", "DeviceReplay: sample"} <= names
    assert len(names) == 11
    assert values_of(report, operation="DeviceReplay: sample")["bytes_per_transition"] > 100


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
    assert "it's b.json is of a run that was stopped" in said


def test_what_cannot_be_compared() -> None:
    written("step.json")
    written("seed.json", what="seed")
    written("old.json", packing_bench=0)
    Path("other.json").write_text('{"results": []}')
    Path("text.json").write_text("hello")
    for name, expected in (
        ("nowhere", "nowhere.json cannot be read: No such file"),
        ("other", "other.json was not written by packing bench"),
        ("old", "old.json has format 0; this version reads 1"),
        ("text", "text.json is not a JSON file"),
    ):
        with pytest.raises(ConfigError, match=expected):
            read(Path(f"{name}.json"))
    (job,) = Compare(files=["step.json", "seed.json"], values=None).jobs(None)
    with pytest.raises(ConfigError, match="they have nothing in common"):
        list(job.work())


# ---------------------------------------------------------------------- the command line


def test_words_become_settings() -> None:
    assert settings(["step", "seed=1"]) == ["bench=step", "seed=1"]
    assert settings(["compare", "a.json", "it's.json"]) == [
        "bench=compare",
        "bench.files=['a.json','it\\'s.json']",
    ]


def test_help_says_what_each_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["bench", "--help"])
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    said = dict(line for line in lines if len(line) == 2)
    assert all(len(said[name]) > 20 for name in groups()["bench"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["stpe"], "did you mean step?; choose one of compare, kernel"),
        (["step", "bench.row=[1]"], "did you mean bench.rows"),
        (["step", "env=irregular", "bench.kernels=[cobol]"], "unknown kernel backend 'cobol'"),
        (["train", "agent=heuristic"], "does not learn"),
        (["step", "clock.repeats=0"], "clock.repeats=0 must be at least 1"),
        (["step", "threads=0"], "threads=0 must be at least 1"),
        (["step", "out=."], "out=. is a folder"),
    ],
    ids=lambda value: " ".join(value[:3]) if isinstance(value, list) else "",
)
def test_bad_input_gets_one_line(
    arguments: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert expected in refused(capsys, *arguments)


@pytest.mark.parametrize(
    ("name", "changes", "expected"),
    [
        ("step", {"rows": [0]}, "must be positive whole numbers"),
        ("step", {"actions": ["best"]}, "choose from first_legal, random_legal"),
        ("step", {"through": []}, "choose from core, env, captured"),
        ("step", {"beside": ["gym"]}, "choose from jumanji"),
        ("kernel", {"problems": ["Z"]}, "choose from A, A1, B, flat, batch"),
        ("train", {"updates": 0}, "bench.updates=0 must be at least 1"),
        ("sync", {"cycles": 1}, "bench.cycles=1 must be at least 2"),
        ("seed", {"steps": 0}, "bench.steps=0 must be at least 1"),
        ("compare", {"files": ["a.json"]}, "takes two files of packing bench, not 1"),
        ("replay", {"capacity": 4}, "must lie between 1 and bench.capacity=4"),
    ],
)
def test_impossible_settings_are_named(name: str, changes: dict[str, Any], expected: str) -> None:
    file = OmegaConf.load(config_folder() / "bench" / f"{name}.yaml")
    with pytest.raises(InstantiationException) as refusal:
        instantiate(file.bench, **changes)
    assert expected in str(refusal.value.__cause__)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "use device=cpu" in refused(capsys, "step", "device=cuda")
