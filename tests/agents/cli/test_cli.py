"""The ``packing`` command: what it does, and what it says to bad input."""

import json
import multiprocessing
import os
import signal
import sys
from pathlib import Path
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


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run that no test changes."""
    folder = tmp_path_factory.mktemp("trained") / "run"
    assert cli.main([*TRAIN, f"run_dir={folder}", "device=cpu"]) == 0
    return str(folder)


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


# ---------------------------------------------------------------------- bad input


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_missing_gpu_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "use device=cpu" in refused(capsys, "train", *TINY_OVERRIDES, "device=cuda")


@pytest.mark.parametrize("works", [True, False])
def test_the_device_is_a_gpu_that_works(monkeypatch: pytest.MonkeyPatch, works: bool) -> None:
    def zeros(*_: Any, device: str) -> Tensor:
        assert device == "cuda"
        if not works:
            raise RuntimeError("no kernel image is available")
        return torch.empty(1)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert compose("train", ["device=auto"]).env.device == "cpu"
    assert compose("train", ["device=cuda"]).env.device == "cuda"  # a job may run elsewhere
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch, "zeros", zeros)
    assert compose("train").env.device == ("cuda" if works else "cpu")
    assert compose("train", ["device=cuda:1"]).env.device == "cuda:1"


def test_results_are_never_written_over(capsys: pytest.CaptureFixture[str]) -> None:
    Path("here").mkdir()
    Path("here/thesis.txt").write_text("precious")
    assert "not empty" in refused(capsys, *TRAIN, "run_dir=here")
    assert [path.name for path in Path("here").iterdir()] == ["thesis.txt"]


# ---------------------------------------------------------------------- what it does


def test_train_then_eval_play_render(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        *TRAIN,
        "curve=learning_curve.png",
        "run_dir=run",
        "evaluation.instances=3",
        "evaluation.heuristics=[random_legal,lowest_z/largest_first]",
        "evaluation.picture=packed.png",
        "evaluation.plan=plan.json",
    ]
    assert cli.main(arguments) == 0
    said = capsys.readouterr().out
    assert "lowest_z/largest_first" in said
    assert "packed.png" in said
    run = Path("run")
    found = {path.name for path in run.iterdir()}
    assert found == {
        "checkpoints",
        "config.yaml",
        "learning_curve.png",
        "metrics.csv",
        "packed.png",
        "plan.json",
        "results.json",
        "run.lock",
        "run.json",
    }
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

    capsys.readouterr()
    assert cli.main(["play", "checkpoint=run", "instance=2", "frames=frames"]) == 0
    said = capsys.readouterr().out
    utilization = results["policies"]["dqn"]["instances"]["utilization"][2]
    assert f"utilization {utilization:.3f}" in said
    assert len(list(Path("frames").glob("*.png"))) > 1
    for name, start in (("a.png", b"\x89PNG"), ("b.gif", b"GIF8"), ("c.html", b"<!")):
        assert cli.main(["render", "checkpoint=run", f"out=pictures/{name}", "size=80"]) == 0
        assert Path("pictures", name).read_bytes().lstrip()[:4].startswith(start)


def test_a_checkpoint_of_another_network_is_refused(
    trained: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    said = refused(capsys, "eval", f"checkpoint={trained}", "network.channels=8")
    assert "does not fit agent agents.algorithms.dqn.DQN" in said


def test_a_folder_of_parts(capsys: pytest.CaptureFixture[str]) -> None:
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


def test_a_folder_of_ones_own_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    Path("mine/trainer").mkdir(parents=True)
    Path("mine/agent").mkdir()
    Path("mine/trainer/tiny.yaml").write_text(
        "_target_: agents.training.trainer.Trainer\n_partial_: true\nframes: 16\nwarmup: 8\n"
    )
    Path("mine/agent/fake.yaml").write_text(
        "_target_: tests.agents.conftest.FakeAgent\n_partial_: true\nlr: 0.1\n"
    )
    assert "agent='fake' is unknown" in refused(capsys, "train", "agent=fake")
    own = ["train", "--config-dir", "mine", *TINY_OVERRIDES, "trainer=tiny", "replay.capacity=99"]
    assert "'agent.n_steps' not found" in refused(capsys, *own, "agent=fake")
    settings = ["replay.n_steps=1", "replay.gamma=0.9"]
    assert cli.main([*own, "agent=fake", *settings, "run_dir=run"]) == 0
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
    agent: str, said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    own = fake_agent_in("mine", _target_=f"own_agents.{agent}")
    file = Path("mine/agent/fake.yaml")
    if agent == "FakeAgent":
        file.write_text(file.read_text().replace("_partial_: true", "_partial_: false"))
    Path("own_agents.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(Path.cwd()))
    monkeypatch.delitem(sys.modules, "own_agents", raising=False)
    assert said in refused(capsys, *own, "run_dir=run")
    assert not Path("run").exists()


def fake_agent_in(folder: str, **options: object) -> list[str]:
    """A configuration of one's own, whose agent is the fake one; arguments that choose it."""
    Path(folder, "agent").mkdir(parents=True)
    settings = {"_target_": "tests.agents.conftest.FakeAgent", "_partial_": "true", "lr": "0.1"}
    lines = [f"{name}: {value}" for name, value in (settings | options).items()]
    Path(folder, "agent/fake.yaml").write_text("\n".join(lines))
    kept = [o for o in TRAIN if not o.startswith(("agent.", "network."))]
    return [*kept, "--config-dir", folder, "agent=fake", "replay.n_steps=1", "replay.gamma=0.9"]


@pytest.mark.parametrize("sound", [True, False])
def test_a_run_with_a_broken_loss_keeps_the_sound_checkpoint(
    sound: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = fake_agent_in("mine", fail_at=3)
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
@pytest.mark.parametrize("workers", [1, 2])
def test_a_run_that_is_stopped_is_saved(
    workers: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The workers also get the signal, and the command gets it twice: some launchers do that."""
    step, before = Trainer.step, set(multiprocessing.active_children())

    def stopped(trainer: Trainer) -> None:
        step(trainer)
        if trainer.frames == 48:
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL  # would end the tests
            children = set(multiprocessing.active_children()) - before if workers > 1 else ()
            assert workers == 1 or len(children) >= workers
            for child in children:
                os.kill(child.pid, signal.SIGTERM)
            for _ in range(2):
                signal.raise_signal(signal.SIGTERM)

    monkeypatch.setattr(Trainer, "step", stopped)
    several = [f"collector.num_workers={workers}", "run_dir=run"]
    assert cli.main([*TRAIN, "trainer.frames=1e9", *several]) == 0
    assert "everything so far is saved" in " ".join(capsys.readouterr().out.split())
    results = json.loads(Path("run/results.json").read_text())
    assert results["interrupted"]
    assert results["training"]["frames"] == 48
    arguments = ["eval", "checkpoint=run", "evaluation.instances=2", "evaluation.heuristics=[]"]
    assert cli.main(arguments) == 0


def test_ctrl_c_between_what_can_be_saved_ends_a_sweep(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def pressed(*arguments: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("agents.cli.train.train", pressed)
    assert cli.main([*TRAIN, "-m", "seed=0,1,2", "hydra.sweep.dir=sweep"]) == 0
    assert "the sweep was stopped in job 1 of 3" in capsys.readouterr().out
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


def test_a_policy_is_exported(trained: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["export", trained, "--rows", "2", "--out", "mine.pt2"]) == 0
    assert "decisions equal those of the policy" in capsys.readouterr().out
    assert Path("mine.pt2").stat().st_size > 0


def test_a_file_for_a_missing_folder_is_refused_at_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(export, "load_run", None)  # nothing is loaded
    assert cli.main(["export", "run", "--out", "nowhere/mine.pt2"]) == 2
    assert "there is no folder nowhere" in capsys.readouterr().err


def test_a_program_that_decides_otherwise_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    written = {"torch_export": (lambda program, path: path.write_text("program"), 20)}
    monkeypatch.setattr(export, "_FORMATS", written)
    monkeypatch.setattr(export, "export_policy", lambda policy, env: None)
    monkeypatch.setattr(export, "_compared", lambda run, decide: (19, 0.0))
    assert cli.main(["export", "pretrained/cuboid_online"]) == 2
    assert "only 19 of 20 decisions" in " ".join(capsys.readouterr().err.split())
    assert not Path("policy.pt2").exists()


def test_an_onnx_file_needs_its_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the package, before anything is built."""
    monkeypatch.setattr(extras, "is_installed", lambda module: module != "onnxscript")
    arguments = ["export", "pretrained/cuboid_online", "--format", "onnx"]
    assert cli.main(arguments) == 2
    assert 'onnxscript, which is not installed: pip install "packing-env[onnx]"' in (
        " ".join(capsys.readouterr().err.split())
    )
