"""A resumed run equals an uninterrupted one bit for bit; a run that could not is refused."""

import csv
import json
import math
import random
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.agents.algorithms.test_every_agent import CASES, often, small_config
from tests.agents.conftest import TINY_RUN

from agents.cli import main as cli
from agents.config.build import build_trainer
from agents.loggers.logging import CSVLogger
from agents.nested import walk
from agents.training import checkpoint, resume
from agents.training.trainer import Trainer
from packing_env import kernels

FRAMES = 400
CLOCKS = ("elapsed", "logged", "seconds", "frames_per_second")
"""Entries of a state that differ between any two runs."""


def trainer_of(case: str, *overrides: str, seed: int = 0) -> Trainer:
    """Return a training loop on the tiny task, from a configuration of the command line."""
    sizes = ["env.num_envs=20", f"trainer.frames={FRAMES}", "trainer.log_every=150"]
    config = small_config(case, *sizes, *overrides)
    if "horizon" in config.replay:
        config.replay.horizon = 6  # so that a rollout is under way at the break
        config.agent.batch_size = 60
    else:
        config.trainer.update({"warmup": 100, "update_every": 75})
        config.replay.capacity = 300  # the ring has come around at the break
        config.agent.batch_size = 8
    torch.manual_seed(seed)
    random.seed(seed)  # beartype draws from it where shapes are checked
    return build_trainer(config)


def differing(one: Any, other: Any) -> list[str]:
    """Return the places where two states differ in any bit, except in clocks."""
    found = [
        {
            place: bits(value)
            for place, value in walk(state, separator="/")
            if not isinstance(value, (dict, list, tuple)) and Path(place).name not in CLOCKS
        }
        for state in (one, other)
    ]
    return sorted({place for place, _ in found[0].items() ^ found[1].items()})


def bits(value: Any) -> Any:
    """Return a tensor's dtype, shape and bytes."""
    if not isinstance(value, torch.Tensor):
        return value
    whole = value.detach().cpu().contiguous().view(-1)
    return value.dtype, value.shape, whole.view(torch.uint8).numpy().tobytes()


def rows_of(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [{key: value for key, value in row.items() if key not in CLOCKS} for row in rows]


def check_halves(folder: Path, case: str, *overrides: str) -> None:
    """Check that a resumed run ends and logs as the uninterrupted one."""
    long = f"trainer.frames={2 * FRAMES}"
    whole = trainer_of(case, long, *overrides)
    (folder / "whole").mkdir()
    whole.run(CSVLogger(folder / "whole"))
    assert whole.frames == 2 * FRAMES
    assert whole.updates > 4

    first = trainer_of(case, *overrides)
    (folder / "run").mkdir()
    first.run(CSVLogger(folder / "run"))
    place = checkpoint.save(folder / "run", first.frames, first.state_dict(), {})
    torch.manual_seed(99)
    second = trainer_of(case, long, *overrides, seed=5)
    second.load_state_dict(checkpoint.load(place).state)
    logger = CSVLogger(folder / "run")
    logger.resume(second.logged_frames)
    second.run(logger)

    assert differing(whole.state_dict(), second.state_dict()) == []
    assert rows_of(folder / "run") == rows_of(folder / "whole")


@pytest.mark.parametrize("case", often(CASES, "ppo", "sac", "hierarchical"))
def test_a_resumed_run_is_the_uninterrupted_one(case: str, tmp_path: Path) -> None:
    """`test_distributed.py` resumes Rainbow."""
    check_halves(tmp_path, case)


def test_so_it_is_with_the_replay_and_the_collector_of_torchrl(tmp_path: Path) -> None:
    check_halves(tmp_path, "dqn", "replay=torchrl", "collector=torchrl", "replay.n_steps=3")


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:.*deterministic:UserWarning")
@pytest.mark.parametrize("case", CASES)
def test_so_it_is_on_a_gpu(case: str, tmp_path: Path, monkeypatch) -> None:
    """Operations use deterministic kernels if CUDA has one."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        check_halves(tmp_path, case, "device=cuda")
    finally:
        torch.use_deterministic_algorithms(False)


# ---------------------------------------------------------------------- the command

RUN = [*TINY_RUN, "env.num_envs=8", "trainer.log_every=64"]


def train(*arguments: str) -> int:
    return cli.main(["train", *arguments])


def test_the_command_goes_on_in_the_runs_folder(tmp_path: Path, capsys) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    assert train(*RUN, "trainer.frames=200", f"run_dir={other}") == 0
    assert train(*RUN, "trainer.frames=104", f"run_dir={one}") == 0
    assert train(f"resume={one}", "trainer.frames=200") == 0
    assert f"continuing from {one}/checkpoints/000000000104, after 104 frames" in (
        "".join(capsys.readouterr().out.split("\n"))
    )
    assert differing(checkpoint.load(one).state, checkpoint.load(other).state) == []
    assert rows_of(one) == rows_of(other)
    assert json.loads((one / "run.json").read_text())["resumed"]["from"].endswith("000000000104")


def test_a_new_folder_a_new_logger_and_a_small_checkpoint(tmp_path: Path, capsys) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    small = ["checkpoint.replay=false", f"run_dir={one}"]
    assert train(*RUN, "trainer.frames=200", *small) == 0
    found = checkpoint.load(one)
    assert "replay" not in found.state
    changes = ["logger=none", f"run_dir={other}", "trainer.frames=264"]
    assert train(f"resume={found.path}", *changes) == 0
    assert "the replay was not saved and refills" in capsys.readouterr().out
    assert checkpoint.load(other).state["waiting"]["collected"] == 64
    assert not (other / "metrics.csv").exists()
    assert checkpoint.find(one) == found.path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    assert train(*RUN, "trainer.frames=40", f"run_dir={folder}") == 0
    return folder


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("agent=ppo", "agent._target_=agents.algorithms.dqn.DQN and not agents.algorithms.ppo.PPO"),
        ("env=sls_nesting", "env.cell=0.02 and not 0.005"),
        ("seed=3", "seed=0 and not 3"),
    ],
)
def test_other_settings_are_refused(run: Path, capsys, change: str, said: str) -> None:
    before = sorted(run.rglob("*"))
    assert train(f"resume={run}", "trainer.frames=80", change) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert sorted(run.rglob("*")) == before


def test_auto_takes_the_newest_whole_one(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    assert train(*RUN, "trainer.frames=40", "resume=auto") == 0
    assert "no checkpoint was found, so training starts from nothing" in capsys.readouterr().out
    (first,) = Path("runs").iterdir()
    assert train(*RUN, "trainer.frames=80", "run_dir=later") == 0
    assert train("resume=auto", "trainer.frames=120") == 0  # only what is in runs/
    assert checkpoint.find(first).name == f"{120:012d}"
    (checkpoint.find(first) / "tensors.pt").write_bytes(b"cut off")
    assert resume.find("auto", None) == checkpoint.find(first)
    assert checkpoint.find(first).name == f"{40:012d}"
    assert train("resume=auto", "trainer.frames=160", "run_dir=later") == 0
    assert checkpoint.find("later").name == f"{160:012d}"


def test_the_best_checkpoint_of_an_evaluation_is_kept(tmp_path: Path, capsys) -> None:
    """No save is due at an evaluation's frames; later saves and rows of the log have no score."""
    run = ["trainer.frames=200", "trainer.log_every=32", "trainer.evaluate_every=64"]
    run += ["trainer.save_every=40", "evaluation.instances=4", "checkpoint.keep=1"]
    best = "checkpoint.best=held_out/utilization"
    assert train(*RUN, *run, best, f"run_dir={tmp_path}") == 0
    with (tmp_path / "metrics.csv").open() as file:
        rows = [(row["held_out/utilization"], row["frames"]) for row in csv.DictReader(file)]
    scores = {int(frames): float(score) for score, frames in rows if score not in ("", "nan")}
    assert len(scores) == 3
    kept = {int(path.name) for path in (tmp_path / "checkpoints").iterdir()}
    assert kept - {200} <= {f for f in scores if scores[f] == max(scores.values())}
    assert not any("held_out" in key for key in checkpoint.read_meta(tmp_path)["metrics"])
    assert len(kept) == 2
    assert train(*RUN, best, "trainer.frames=10") == 2
    assert "set trainer.evaluate_every=FRAMES" in capsys.readouterr().err


def test_checkpoints_rotate(tmp_path: Path) -> None:
    for frames, score in ((1, 0.2), (2, 0.9), (3, 0.1), (4, math.nan), (5, 0.3)):
        meta = {"metrics": {} if math.isnan(score) else {"util": score}}
        checkpoint.save(tmp_path, frames, {}, meta)
    checkpoint.save(tmp_path, 6, {}, {}, failed=True)
    left = tmp_path / "checkpoints"
    checkpoint.rotate(tmp_path, None)
    assert len(list(left.iterdir())) == 6
    checkpoint.rotate(tmp_path, 2, "util")
    assert sorted(int(p.name.removeprefix("failed-")) for p in left.iterdir()) == [2, 4, 5, 6]
    checkpoint.rotate(tmp_path, 1, "-util")
    assert sorted(int(p.name.removeprefix("failed-")) for p in left.iterdir()) == [5, 6]


def test_compiling_takes_nothing_of_the_time(tmp_path: Path, capsys, monkeypatch) -> None:
    """The first run on a machine spent all of `trainer.minutes` on kernels and learned nothing."""
    step = Trainer.step

    def compiled(trainer: Trainer) -> None:
        if not trainer.frames:  # the first step: a day of compiling
            kernels.compile_seconds(86_400.0)
            now = time.perf_counter
            monkeypatch.setattr(time, "perf_counter", lambda: now() + 86_400.0)
        step(trainer)

    monkeypatch.setattr(Trainer, "step", compiled)
    run = tmp_path / "run"
    assert train(*RUN, "trainer.frames=40", "trainer.minutes=60", f"run_dir={run}") == 0
    assert checkpoint.find(run).name == f"{40:012d}"
    short = ("trainer.minutes=1e-5", "trainer.warmup=1000")
    assert train(*RUN, "trainer.frames=1000000", *short, f"run_dir={tmp_path / 'short'}") == 0
    assert "the 0.0006 s of trainer.minutes" in capsys.readouterr().out
