"""The ``packing`` command: what it does, and what it says to bad input."""

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.agents.conftest import TINY, TINY_OVERRIDES, TINY_RUN
from tests.commands import refused, run_program
from tests.mesh_files import write_stl
from torch import Tensor

import agents
from agents.cli import export
from agents.cli import main as cli
from agents.config.compose import compose
from agents.config.folders import ConfigError
from agents.networks import CandidateScores
from agents.training.trainer import Trainer
from packing_env import PackingEnv, extras

pytestmark = pytest.mark.usefixtures("elsewhere")
TRAIN = ["train", *TINY_RUN, "trainer.frames=96"]


# ---------------------------------------------------------------------- help


def test_help_imports_nothing_heavy() -> None:
    """Help is shown at once: neither torch nor Hydra is imported for it."""
    program = (
        "import sys; from agents.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'hydra', 'omegaconf', 'numpy', 'numba', 'rich', 'gymnasium'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    assert run_program(program, "train", "--help").stdout


def test_runs_are_listed_without_torch() -> None:
    run = Path("runs/one")
    run.mkdir(parents=True)
    (run / "run.json").write_text('{"command": ["packing", "train", "seed=1"]}', encoding="utf-8")
    program = (
        "import sys; from agents.cli.main import main\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code\n"
        "assert 'torch' not in sys.modules\n"
    )
    assert "one" in run_program(program, "runs", "runs").stdout


# ---------------------------------------------------------------------- bad input


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said(capsys) -> None:
    assert "use device=cpu" in refused(capsys, "train", *TINY_OVERRIDES, "device=cuda")


def test_the_device_is_a_gpu_that_works(monkeypatch) -> None:
    def broken(*_: Any, device: str) -> Tensor:
        assert device == "cuda"
        raise RuntimeError("no kernel image is available")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert compose("train", ["device=auto"]).env.device == "cpu"
    assert compose("train", ["device=cuda"]).env.device == "cuda"  # a job may run elsewhere
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    for zeros, device in ((lambda *_, device: torch.empty(1), "cuda"), (broken, "cpu")):
        monkeypatch.setattr(torch, "zeros", zeros)
        assert compose("train").env.device == device


# ---------------------------------------------------------------------- what it does


def test_train_then_eval_play_render(capsys) -> None:
    heuristics = "evaluation.heuristics=[random_legal,lowest_z/largest_first]"
    files = ["curve=learning_curve.png", "evaluation.picture=packed.png", "run_dir=run"]
    files.append("evaluation.plan=plan.json")
    assert cli.main([*TRAIN, "evaluation.instances=3", heuristics, *files]) == 0
    said = capsys.readouterr().out
    assert "lowest_z/largest_first" in said
    assert "packed.png" in said
    run = Path("run")
    assert {path.name for path in run.iterdir()} == {
        "checkpoints", "config.yaml", "learning_curve.png", "metrics.csv", "packed.png",
        "plan.json", "results.json", "run.lock", "run.json",
    }  # fmt: skip
    results = json.loads((run / "results.json").read_text())
    assert set(results["policies"]) == {"dqn", "random_legal", "lowest_z/largest_first"}
    assert len(results["policies"]["dqn"]["instances"]["utilization"]) == 3
    assert results["machine"]["device"] == "cpu"
    assert results["seed"] == 0
    assert results["training"]["frames"] == 96
    assert "interrupted" not in results
    assert json.loads((run / "run.json").read_text())["versions"]["torch"] == torch.__version__
    plan = json.loads((run / "plan.json").read_text())
    assert plan["items"]
    assert plan["policy"] == "dqn"  # the agent's, whichever is the best

    # the same policy on the same instances, from the run alone
    command = ["eval", "checkpoint=run", "evaluation.instances=3", "run_dir=again"]
    assert cli.main([*command, "evaluation.heuristics=[random_legal]", "plan=mine.json"]) == 0
    again = json.loads(Path("again/results.json").read_text())
    for policy in ("dqn", "random_legal"):
        expected = results["policies"][policy]["instances"]
        assert again["policies"][policy]["instances"] == expected
    assert json.loads(Path("mine.json").read_text())["items"]
    said = refused(capsys, "eval", "checkpoint=run", "network.channels=8")
    assert "does not fit agent agents.algorithms.dqn.DQN" in said
    said = refused(capsys, "eval", "checkpoint=run", "agent=heuristic")
    assert "agents.heuristics.build has none; leave out agent=..." in said

    capsys.readouterr()
    assert cli.main(["play", "checkpoint=run", "instance=2", "frames=frames"]) == 0
    said = capsys.readouterr().out
    utilization = results["policies"]["dqn"]["instances"]["utilization"][2]
    assert f"utilization {utilization:.3f}" in said
    assert len(list(Path("frames").glob("*.png"))) > 1
    assert cli.main(["render", "checkpoint=run", "out=pictures/a.gif", "size=80"]) == 0
    assert Path("pictures/a.gif").read_bytes().startswith(b"GIF8")


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


def test_a_folder_of_parts(capsys) -> None:
    Path("parts").mkdir()
    for name, side in (("small", 25), ("large", 55)):
        write_stl(Path("parts", f"{name}.stl"), (side, side, side))
    task = ["env.container=[0.08,0.08,0.06]", "env.cell=0.02", "env.num_items=4"]
    mine = ["items=meshes", "items.paths=parts", "items.unit=mm", *task]
    assert cli.main(["items", *mine]) == 0
    said = capsys.readouterr().out
    assert "small" in said
    assert "55x55x55" in said
    kept = [o for o in TRAIN if not o.startswith(("items", "env.con", "env.cell", "env.num_items"))]
    assert cli.main([*kept, *mine, "items.holdout=0.5", "run_dir=run"]) == 0
    assert "held" not in capsys.readouterr().err
    wrong = [o if o != "items.unit=mm" else "items.unit=m" for o in mine]
    assert "unit" in refused(capsys, "train", *wrong)


def test_a_folder_of_ones_own_configuration(capsys) -> None:
    settings = fake_agent()[-3:]
    Path("mine/trainer").mkdir()
    Path("mine/trainer/tiny.yaml").write_text(
        "_target_: agents.training.trainer.Trainer\n_partial_: true\nframes: 16\nwarmup: 8\n"
    )
    assert "agent='fake' is unknown" in refused(capsys, "train", "agent=fake")
    own = ["train", "--config-dir", "mine", *TINY_OVERRIDES, "trainer=tiny", "replay.capacity=99"]
    assert "'agent.n_steps' not found" in refused(capsys, *own, "agent=fake")
    assert cli.main([*own, *settings, "run_dir=run"]) == 0
    chosen = ["eval", "checkpoint=run", "evaluation.instances=4", "evaluation.heuristics=[]"]
    assert "if you trust it" in refused(capsys, *chosen)
    assert cli.main([*chosen, "--config-dir", "mine", "run_dir=again"]) == 0
    Path("broken/agent").mkdir(parents=True)
    Path("broken/agent/other.yaml").write_text("lr: 1\n _partial_: true\n")
    both = ["--config-dir", "mine", "--config-dir", "broken"]
    assert "broken/agent/other.yaml" in refused(capsys, *chosen, *both)


OWN = """
from torch import nn
from tests.agents.conftest import FakeAgent

class NoState(FakeAgent):
    load_state_dict = property()

class NoModule(FakeAgent):
    def __init__(self, env, lr=0.1):
        super().__init__(env, lr)
        self.policy = nn.Linear(1, 1)

class NoEnv(FakeAgent):
    def __init__(self, environment, lr=0.1):
        super().__init__(environment, lr)

class Whole(FakeAgent):
    def state_dict(self):
        return {"optimizer": self.optimizer}
"""


@pytest.mark.parametrize(
    ("agent", "said"),
    [
        ("NoState", "has no load_state_dict"),
        ("NoModule", "is a Linear, but must be a module on TensorDicts"),
        ("NoEnv", "has no argument env"),
        ("Whole", "optimizer in the state of own_agents.Whole is a SGD"),
        ("FakeAgent", "agent has no _partial_: true"),
    ],
)
def test_what_an_agent_lacks_is_named_before_anything_is_written(
    agent: str, said: str, capsys, monkeypatch
) -> None:
    own = fake_agent(_target_=f"own_agents.{agent}")
    file = Path("mine/agent/fake.yaml")
    if agent == "FakeAgent":
        file.write_text(file.read_text().replace("_partial_: true", "_partial_: false"))
    Path("own_agents.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.delitem(sys.modules, "own_agents", raising=False)
    assert said in refused(capsys, *own, "run_dir=run")
    assert not Path("run").exists()


def fake_agent(**options: object) -> list[str]:
    """A configuration of one's own, whose agent is the fake one; arguments that choose it."""
    Path("mine/agent").mkdir(parents=True)
    settings = {"_target_": "tests.agents.conftest.FakeAgent", "_partial_": "true", "lr": "0.1"}
    lines = [f"{name}: {value}" for name, value in (settings | options).items()]
    Path("mine/agent/fake.yaml").write_text("\n".join(lines))
    kept = [o for o in TRAIN if not o.startswith(("agent.", "network."))]
    return [*kept, "--config-dir", "mine", "agent=fake", "replay.n_steps=1", "replay.gamma=0.9"]


@pytest.mark.parametrize("sound", [True, False])
def test_a_run_with_a_broken_loss_keeps_the_sound_checkpoint(sound: bool, capsys) -> None:
    arguments = fake_agent(fail_at=3)
    arguments += ["trainer.save_every=32" if sound else "trainer.save_every=null", "run_dir=run"]
    assert cli.main(arguments) == 1
    said = capsys.readouterr().out
    assert "the loss is nan" in said
    assert "saved in run/checkpoints/failed-0000000000" in said
    newest = "newest intact checkpoint is run/checkpoints/000000000032"
    assert (newest if sound else "there is no intact checkpoint") in said
    chosen = ["eval", "--config-dir", "mine", "checkpoint=run", "evaluation.heuristics=[]"]
    if sound:
        assert cli.main([*chosen, "evaluation.instances=2"]) == 0
    else:
        assert "no checkpoint there" in refused(capsys, *chosen)


@pytest.mark.usefixtures("spawned")
def test_a_run_that_is_stopped_is_saved(monkeypatch, capsys) -> None:
    """The workers also get the signal, and the command gets it twice: some launchers do that."""
    step, before = Trainer.step, set(multiprocessing.active_children())

    def stopped(trainer: Trainer) -> None:
        step(trainer)
        if trainer.frames == 48:
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # would end the tests
            children = set(multiprocessing.active_children()) - before
            assert len(children) >= 2
            for child in children:
                os.kill(child.pid, signal.SIGTERM)
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Trainer, "step", stopped)
    several = ["trainer.frames=1e9", "collector.num_workers=2", "run_dir=run"]
    assert cli.main([*TRAIN, *several]) == 0
    assert "everything so far is saved" in " ".join(capsys.readouterr().out.split())
    results = json.loads(Path("run/results.json").read_text())
    assert results["interrupted"]
    assert results["training"]["frames"] == 48
    arguments = ["eval", "checkpoint=run", "evaluation.instances=2", "evaluation.heuristics=[]"]
    assert cli.main(arguments) == 0


def test_ctrl_c_between_what_can_be_saved_ends_a_sweep(monkeypatch, capsys) -> None:
    def pressed(*arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("agents.cli.train.train", pressed)
    assert cli.main([*TRAIN, "-m", "seed=0,1", "hydra.sweep.dir=sweep"]) == 0
    assert "the sweep was stopped in job 1 of 2" in capsys.readouterr().out
    assert cli.main(TRAIN) == 130


# ---------------------------------------------------------------------- build_policy


def test_build_policy_by_name() -> None:
    import packing_env

    env: PackingEnv = packing_env.make_env("irregular", num_envs=2, **TINY)
    policy = agents.build_policy("dqn", env, channels=4, epsilon_start=0.5)
    assert isinstance(policy, agents.PolicyWrapper)
    assert float(policy.epsilon) == 0.5
    assert policy(env.reset())["action"].shape == (2,)
    policy = agents.build_policy("heuristic", env, name="first_fit")
    assert policy(env.reset())["action"].shape == (2,)
    with pytest.raises(ConfigError, match="unknown option 'chanels'"):
        agents.build_policy("dqn", env, chanels=4)
    with pytest.raises(ConfigError, match=r"'dqm' is unknown.*; choose one of .*, dqn, "):
        agents.build_policy("dqm", env)
    candidates = packing_env.make_env("irregular", action_mode="candidate", **TINY)
    policy = agents.build_policy("dqn", candidates)  # with a network for candidates
    assert isinstance(policy.network, CandidateScores)
    policy = agents.build_policy("dqn", candidates, network="candidate_scores", width=8)
    assert policy(candidates.reset())["action"].shape == candidates.batch_size
    with pytest.raises(ConfigError, match=r"network= one of: candidate_scores$"):
        agents.build_policy("dqn", candidates, network="candidate_actor_critic")


# ---------------------------------------------------------------------- export; also: test_imports


def test_a_file_that_cannot_be_written_is_refused_at_once(monkeypatch, capsys) -> None:
    monkeypatch.setattr(export, "load_run", None)  # nothing is loaded
    Path("taken").touch()
    for place in (".", "taken/mine.pt2"):
        assert cli.main(["export", "run", "--out", place]) == 2
        assert f"--out={place}" in capsys.readouterr().err


def test_a_file_that_fails_while_it_is_written_is_named(monkeypatch, capsys) -> None:
    monkeypatch.setattr(export, "load_run", lambda *_: SimpleNamespace(policy=None, env=None))
    monkeypatch.setattr(export, "export_policy", lambda policy, env: None)
    monkeypatch.setattr(export.torch.export, "save", lambda program, file: file.write(b"program"))
    assert cli.main(["export", "run", "--out", "/dev/full"]) == 2
    assert "--out=/dev/full cannot be written" in capsys.readouterr().err


def test_a_program_that_decides_otherwise_is_not_kept(monkeypatch, capsys) -> None:
    written = {"torch_export": (lambda program, path: path.write_text("program"), 20)}
    monkeypatch.setattr(export, "_FORMATS", written)
    monkeypatch.setattr(export, "load_run", lambda *_: SimpleNamespace(policy=None, env=None))
    monkeypatch.setattr(export, "export_policy", lambda policy, env: None)
    monkeypatch.setattr(export, "_compared", lambda run, decide: (19, 0.0))
    assert cli.main(["export", "run"]) == 2
    assert "only 19 of 20 decisions" in " ".join(capsys.readouterr().err.split())
    assert not Path("policy.pt2").exists()


def test_an_onnx_file_needs_its_extra(monkeypatch, capsys) -> None:
    """The error names the package, before anything is built."""
    monkeypatch.setattr(extras, "is_installed", lambda module: module != "onnxscript")
    arguments = ["export", "pretrained/cuboid_online", "--format", "onnx"]
    assert cli.main(arguments) == 2
    assert 'onnxscript, which is not installed: pip install "packing-env[onnx]"' in (
        " ".join(capsys.readouterr().err.split())
    )
