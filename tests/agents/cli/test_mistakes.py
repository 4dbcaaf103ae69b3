"""What newcomers mistype, on the command line and in Python, and the remedy that they read."""

import copy
import pickle
import re
import shlex
import subprocess
import warnings
from pathlib import Path

import gymnasium
import pytest
from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from tests.agents.conftest import TINY_OVERRIDES
from tests.commands import refused, run_program

import agents
import packing_env as pe
from agents.cli import main as cli
from agents.config.build import build_heuristics
from agents.config.compose import compose
from agents.config.folders import ConfigError
from agents.nested import walk
from packing_env.shells import torchrl_groups
from packing_env.types import ParameterError

ROOT = Path(__file__).resolve().parents[3]
SMALL = " ".join(TINY_OVERRIDES)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("train agent.learning_rate=1e-3", "did you mean agent.lr?"),
        ("train agent.lerning_rate=1e-3", "did you mean agent.lr?"),
        ("train agent.batchsize=8", "did you mean agent.batch_size?"),
        ("train '~agent' agent.lr=1e-3", "unknown key 'agent.lr'"),
        ("train evaluation.plan=results.json", "would overwrite results.json of a run"),
        ("train seed=-1", "seed=-1 must be an integer, at least 0"),
        (f"train seed={2**63}", f"seed={2**63} must be an integer, at least 0"),
        ("train evaluation=null", "evaluation.instances=..."),
        ("train agent.lr=-0.1", "agent.lr=-0.1 must be a finite number, more than 0"),
        ("train agent.lr=null", "agent.lr=None must be a finite number, more than 0"),
        ("train curve=3", "curve=3 must be a path; for the name 3, write curve=./3"),
        ("train curve=.", "curve=. must be the name of a file that ends in .png"),
        ("train curve=/dev/null/a.png", "you cannot write to /dev/null"),
        ("train evaluation.plan=", "evaluation.plan='' must be a path"),
        ("train evaluation.plan=./Checkpoints/plan.json", "would overwrite Checkpoints of a run"),
        ("train evaluation.picture=a.png curve=./a.png", "is also the curve; name another file"),
        ("train run_dir=/dev/null", "run_dir=/dev/null is a file"),
        ("train device=mps", "device=mps is not supported; use cpu, cuda or cuda:0"),
        ("train env.observation=[candidates]", "action_mode=candidate adds candidates"),
        ("train agent.batch_size=2.5", "agent.batch_size=2.5 must be an integer, at least 1"),
        ("train agent.double=maybe", "agent.double='maybe' must be true or false"),
        (
            "train env=cuboid_online env.geometry=boxes env.action_mode=candidate",
            "observation 'drop_height' needs geometry='maps'; leave it out",
        ),
        ("train agent=ppo trainer.warmup=5", "redraw_every, capture)"),
        ("train env.constraint.fragile=top", "did you mean env.constraints"),
        ("train my_config.yaml", "--config-dir FOLDER experiment=NAME"),
        ("render size=0", "size=0 must be a finite number, at least 16 and at most 8192"),
        ("train agent.hidden_size=256", "did you mean network.channels?"),
        ("train agent=DQN", "did you mean dqn"),
        ("eval agent=null", "agent is a group; choose one of ac_iqn"),
        ("train agent = dqn", "without spaces: agent=dqn"),
        ("eval my_run", "as in checkpoint=my_run"),
        ("train env.container=(0.3,0.3,0.3)", "'env.container=[0.3,0.3,0.3]'"),
        ("train env.generator=uniform", "set generator=OPTION"),
        ("train env.reward={utilization:1}", "reward.KEY=VALUE"),
        ("eval checkpoint=pretrained/cuboid_online env.generator=uniform", "set generator=OPTION"),
        ("train network=rows", "add --import PACKAGE"),
        ("train env.stability=half", "add --import PACKAGE"),
        ("train +reward.corner=0.1", "add --import PACKAGE"),
        ("train +reward.utilisation=1", "did you mean utilization?"),
        ("eval checkpoint=cuboid_online", "did you mean pretrained/cuboid_online?"),
        ("train 'env=[irregular]'", "env is a group; choose one of cuboid_buffer"),
        ("train 'experiment=[demo,learn_dq]'", "experiment='learn_dq' is unknown, did you mean"),
        ("train tranier=quick", "did you mean trainer"),
        ("train env.num_envs=many", "env.num_envs='many' must be a number"),
        ("train env.container=0.3", "env.container=0.3 must be a list"),
        ("train +trainer.foo=1", "unknown key 'trainer.foo'"),
        ("train +evaluation.foo=1", "does not read 'evaluation.foo'"),
        ("train ++foo=1", "does not read 'foo'"),
        ("train +tas=1 'name=${env.task}'", "does not read 'tas'"),
        ("eval agent=heuristic logger=wandb", "does not read the group 'logger'"),
        ("eval agent=heuristic +logger=wandb", "does not read 'logger'"),
        ("eval agent=heuristic +agent@other=dqn", "does not read 'other'"),
        ("train items=meshes items.paths=nowhere", "nowhere: no such file"),
        ("train agent=dqn,heuristic", "add --multirun"),
        ("train 'what is this'", "write key=value"),
        ("train agent=ppo network=score_maps", "network= one of: placement_actor_critic"),
        ("eval agent=heuristic network=score_maps", "uses no network; leave out network=..."),
        ("eval agent=search network.channels=8", "uses no network; leave out network=..."),
        ("train --config-dir nowhere", "there is no such folder"),
        (f"train {SMALL} replay.capacity=2", "less than one step"),
        (f"play {SMALL} instance=24", "instance=24 does not exist"),
        ("render out=film.avi", "must end in one of .png, .gif, .mp4, .html"),
        ("bench stpe", "did you mean step?; choose one of compare, kernel"),
        ("bench step bench.row=[1]", "did you mean bench.rows"),
        ("bench step bench.kernels=[cobol]", "unknown kernel backend 'cobol'"),
        ("bench step bench.actions=[best]", "choose one of first_legal, random_legal"),
    ],
)
def test_a_mistake_gets_the_key_and_the_remedy(line, remedy, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert remedy in refused(capsys, *shlex.split(line))
    assert not list(Path().iterdir())


def test_counts_may_be_written_as_floats():
    config = compose("train", ["agent.batch_size=1e2", "checkpoint.keep=null"])
    assert type(config.agent.batch_size) is int
    assert config.agent.batch_size == 100
    assert config.checkpoint.keep is None


VALUES = ("7", "text", "[1]", "true", "null", None)
"""Values that are no section; with None, the section is deleted."""
EVERY_VALUE = ("network", "evaluation", "env.constraints")
"""A group, a section of the command, and a nested section: refused by different checks."""


@pytest.mark.parametrize("command", ["train", "eval"])
def test_a_section_is_not_a_value(command):
    values = walk(compose(command), lists=False)
    sections = [key for key, value in values if key and isinstance(value, dict)]
    assert "env.constraints" in sections
    for number, key in enumerate(sections):
        every = command == "train" and key in EVERY_VALUE
        for value in VALUES if every else [VALUES[number % len(VALUES)]]:
            if value in ("null", None) and key in ("env.constraints", "env.handling"):
                continue  # no constraints
            if value is None and (command, key) == ("eval", "network"):
                continue  # of a policy without a network
            with pytest.raises(ConfigError, match=key.partition(".")[0]):
                compose(command, [f"~{key}" if value is None else f"{key}={value}"])


def test_a_typo_does_not_wait_for_torch():
    code = """
import sys
from agents.cli.main import main
for word in ("agent.lrr=3", "checkpoint.keep=-1"):
    assert main(["train", word]) == 2
assert "torch" not in sys.modules
"""
    assert run_program(code).stderr.startswith("packing: ")


def test_info_of_hydra(python):
    # In a process of its own: Hydra prints by loggers, which other tests have set.
    words = [python, "-m", "agents.cli", "train", "--info", "all", "agent=ppo"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "agent/ppo" in done.stdout  # of the defaults
    assert "clip_epsilon: 0.2" in done.stdout  # of the configuration


def test_references_are_filled_in_on_request(capsys):
    assert cli.main(["train", "--cfg", "job"]) == 0
    assert "name: ${env.task}" in capsys.readouterr().out
    assert cli.main(["train", "--cfg", "job", "--resolve"]) == 0
    assert "name: irregular" in capsys.readouterr().out


@pytest.mark.parametrize("torchrl", [False, True])
def test_a_hydra_program_of_a_user_finds_the_groups(torchrl, python, tmp_path):
    """The page's program runs in an editable installation, with and without TorchRL's groups."""
    page = (ROOT / "docs/how-to/command-line.md").read_text("utf-8")
    section = page.partition("### In your own Hydra program")[2]
    config, program = re.findall(r"^```\w+\n(.*?)^```", section, re.MULTILINE | re.DOTALL)[:2]
    (tmp_path / "conf").mkdir()
    if torchrl:
        config = config.replace(
            "  - override env", "  - env@training_env: packing\n  - override env"
        )
        program = program.replace('["action"])', '["action"], config.training_env.task)')
        registered = "from packing_env.shells import torchrl_groups\n\ntorchrl_groups.register"
        program = f"{registered}(loggers=False)\n{program}"
    (tmp_path / "conf/mine.yaml").write_text(config)
    (tmp_path / "mine.py").write_text(program)
    words = [python, "mine.py", "agent.lr=1e-4", "logger=csv"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("tensor(")
    assert not torchrl or "irregular" in done.stdout
    assert "not available" not in done.stderr  # Hydra's warning about a folder that is no package


def test_mistakes_about_parts_are_found_before_one_is_read(capsys, tmp_path):
    (tmp_path / "part.stl").write_text("solid part\nendsolid part\n")  # without faces
    words = ["pack", str(tmp_path), "--container", "240x180x150mm", "--unit", "furlong"]
    assert "unit='furlong' is unknown" in refused(capsys, *words)


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("train --agent=dqn", "KEY=VALUE without dashes: agent=dqn"),
        ("train --imprt my_pkg", "did you mean --import?"),
        ("train --num-envs 4", "KEY=VALUE without dashes: num_envs=4"),
        ("trian", "did you mean train?"),
    ],
)
def test_a_mistake_in_the_form_of_the_line(line, remedy, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(shlex.split(line))
    assert remedy in capsys.readouterr().err


def test_keys_of_hydra_alone_are_not_offered(capsys):
    assert cli.main(["train", "trainer.warmpu=3"]) == 2
    assert "_target_" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "near"),
    [
        ({"num_env": 4}, "num_envs"),
        ({"bin_size": 4}, "container"),
        ({"action_mode": "placment"}, "placement"),
        ({"generator": "catalog_mix"}, "catalogue_mix"),
        ({"items": {"source": "shapes", "family": 1}}, "families"),
    ],
)
def test_the_python_interface_suggests_names_too(options, near):
    with pytest.raises(ValueError, match=f"did you mean {near}"):
        pe.make_env(**options)


def test_options_of_another_interface_name_the_right_one():
    with pytest.raises(ValueError, match=r"gym\.make"):
        pe.make_env("cuboid_online", observation="flat")
    with pytest.raises(ParameterError, match="make_vec"):
        gymnasium.make("packing_env:PackingCuboid-v1", num_envs=3)
    with pytest.raises(ParameterError, match="'flat' or a list"):
        gymnasium.make("packing_env:PackingCuboid-v1", observation="flatt")
    with pytest.raises(ValueError, match="orientations=5"):
        pe.make_env("irregular", orientations=5)


def test_a_policy_refuses_an_environment_without_its_observations():
    env = pe.make_env("irregular", num_items=4, pool_size=4, observation=["heightmap"])
    with pytest.raises(ParameterError, match="drop_height"):
        agents.build_policy("dqn", env)


@pytest.mark.parametrize(
    "build",
    [
        lambda env: agents.build_policy("dqn", env),
        lambda env: agents.build_policy("ppo", env),
        lambda env: agents.load_policy("pretrained/cuboid_online", env),
        lambda env: agents.load_run("pretrained/cuboid_online", "env.pool_size=4").policy,
        lambda env: agents.heuristics.build("lowest_z", env),
    ],
)
def test_a_policy_names_the_observation_of_another_task(build):
    env = pe.make_env("cuboid_online", 2, pool_size=4)
    other = pe.make_env("cuboid_online", 3, pool_size=4, container=(12, 12, 12))
    policy = build(env)
    with pytest.raises(ParameterError, match=r"has shape .*12, 12\].*10, 10\]"):
        policy(other.reset())
    assert policy(copy.deepcopy(env).reset())["action"].shape == (2,)
    copied = pickle.loads(pickle.dumps(policy))
    with pytest.raises(ParameterError, match="12, 12"):
        copied(other.reset())


@pytest.mark.parametrize("mode", ["candidate", "continuous"])
def test_a_heuristic_that_reads_the_state_needs_the_rows_of_its_environment(mode):
    env, other = (pe.make_env("cuboid_online", n, pool_size=4, action_mode=mode) for n in (2, 3))
    heuristic = agents.heuristics.build("lowest_z", env)
    with pytest.raises(ParameterError, match=r"has shape \[3, .*\[2, "):
        heuristic(other.reset())


@pytest.mark.parametrize("device", ["mps", "meta", "xpu"])
def test_an_environment_names_the_devices_that_it_supports(device):
    with pytest.raises(ParameterError, match="use cpu, cuda or cuda:0"):
        pe.make_env(device=device)
    with pytest.raises(ParameterError, match="use cpu, cuda or cuda:0"):
        pe.make_env("cuboid_online", pool_size=4).to(device)


@pytest.mark.parametrize("typo", ["row_ofset", "drow", "skip_infeasable", "autorest", "n_envs"])
def test_a_typo_in_any_argument_of_make_env_gets_a_suggestion(typo):
    with pytest.raises(ParameterError, match=f"the environment has no option {typo}, did you mean"):
        pe.make_env(**{typo: 1})


def test_options_of_a_policy_have_limits_in_python_too():
    env = pe.make_env("cuboid_online", pool_size=4)
    with pytest.raises(ConfigError, match=r"network\.depth=-1"):
        agents.build_policy("dqn", env, depth=-1)


@pytest.mark.parametrize(
    "use",
    [
        lambda env: agents.build_policy("dqn", env),
        lambda env: agents.load_policy("pretrained/cuboid_online", env),
        lambda env: agents.heuristics.build("lowest_z", env),
    ],
)
def test_policies_refuse_a_gymnasium_environment(use):
    env = gymnasium.make("packing_env:PackingCuboid-v1", pool_size=4)
    with pytest.raises((ParameterError, TypeError), match="PackingEnv"):
        use(env)


@pytest.mark.parametrize(
    ("agent", "text", "remedy"),
    [
        ("dqn", "_target_: [x", r"mine.yaml.*line 1"),
        ("dqn", "width: 16", "network has no _target_"),
        (
            "rainbow",
            "{_target_: torch.nn.Bilinear, _partial_: true}",
            "network= one of: score_maps",
        ),
    ],
)
def test_an_error_in_a_file_of_the_user_names_the_place(agent, text, remedy, capsys, tmp_path):
    (tmp_path / "network").mkdir()
    (tmp_path / "network" / "mine.yaml").write_text(text)
    words = ["train", f"agent={agent}", "network=mine", "--config-dir", str(tmp_path)]
    assert cli.main([*words, f"run_dir={tmp_path / 'run'}"]) == 2
    assert re.search(remedy, capsys.readouterr().err)


def test_one_name_need_not_be_a_list(monkeypatch):
    monkeypatch.setenv("PACKING_IMPORT", "")
    agents.import_packages("json")
    env = pe.make_env("cuboid_online", pool_size=4)
    assert list(build_heuristics("lowest_z", env)) == ["lowest_z"]


def test_an_added_key_may_be_referred_to():
    words = ["+own={frames: 64}", "own.frames=128", "trainer.frames=${own.frames}"]
    assert compose("train", words).trainer.frames == 128


def test_options_that_other_libraries_register_are_no_schemas():
    """TorchRL registers ``logger/csv``, which Hydra would merge with our file of this name."""
    before = Singleton.get_state()
    torchrl_groups.register()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            compose("train", ["logger=csv"])
        assert "csv.yaml" in ConfigStore.instance().repo["logger"]  # it stays registered
    finally:
        Singleton.set_state(before)
