"""Everything under ``conf/`` composes, is built, and runs; presets equal those in Python."""

import itertools
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from tests.agents.conftest import TINY_OVERRIDES
from tests.conf.composed import NEEDED, composed, of_option

from agents.algorithms.base import Agent
from agents.config import compose as composition
from agents.config.build import build_env, build_trainer
from agents.config.compose import compose, expand
from agents.config.folders import ConfigError, config_folder, groups
from agents.config.grids import PREFIX, expanded
from agents.loggers.logging import NullLogger
from packing_env.constraints import Constraints
from packing_env.generators import GENERATORS, CuboidSource
from packing_env.tasks import CUBOIDS, PRESETS
from packing_env.types import PackingParams

GROUPS = groups()
NO_AGENT_YET = ("env=cuboid_continuous",)
"""Tasks whose action mode only heuristics play."""
GRIDS = [name for name in GROUPS["experiment"] if name.startswith(PREFIX)]
TOGETHER = ("agent", "collector", "distributed", "logger", "reward")
"""Groups whose options do not affect each other, so that one configuration tests one of each."""
RUN_BELOW = ("generator", "replay", "trainer")
"""Groups whose options the tests below run, after composing them."""
ALONE = [
    (group, option)
    for group in GROUPS
    for option in GROUPS[group]
    if group not in (*TOGETHER, *RUN_BELOW) and option not in GRIDS
]


def plain(value: Any) -> Any:
    """Return tuples as lists, and a single name as a mapping."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items()}
    return [plain(inner) for inner in value] if isinstance(value, (tuple, list)) else value


def command_for(preset: str) -> str:
    """A command that composes with a preset's action mode."""
    return "eval" if f"env={preset}" in NO_AGENT_YET else "train"


@pytest.mark.parametrize(("group", "option"), ALONE, ids=lambda value: value)
def test_every_option_composes_with_known_arguments(group: str, option: str) -> None:
    command = "bench" if group == "bench" else command_for(option)
    resolved(of_option(command, f"{group}={option}"))


@pytest.mark.parametrize("row", range(max(len(GROUPS[group]) for group in TOGETHER)))
def test_options_that_fit_each_other_compose_with_known_arguments(row: int) -> None:
    chosen = {group: GROUPS[group][row % len(GROUPS[group])] for group in TOGETHER}
    plays = chosen["agent"] in ("heuristic", "search", "beam", "finalists")
    groups_of_eval = ("agent", "reward")
    lines = [f"{g}={o}" for g, o in chosen.items() if not plays or g in groups_of_eval]
    resolved(composed("eval" if plays else "train", lines))


def resolved(config: DictConfig) -> None:
    """Raise unless every reference resolves and no value is missing."""
    OmegaConf.to_container(config, resolve=True, throw_on_missing=True)


@pytest.mark.parametrize("name", GRIDS)
def test_every_job_of_a_grid_composes(name: str) -> None:
    jobs = list(expand(expanded([f"experiment={name}", "evaluation.instances=4"])))
    assert len(jobs) > 1
    assert len({tuple(job) for job in jobs}) == len(jobs)
    further = {word.partition("=")[0] for job in jobs for word in job[1:]}
    assert further <= {"seed", "evaluation.instances"}  # of which no other key depends
    experiments = {job[0] for job in jobs}
    assert len({of_option("train", job).name for job in experiments}) == len(experiments)
    sole = list(expand(expanded([f"experiment={name}", "seed=7", "experiment=learn_dqn"])))
    assert sole == [["seed=7", "experiment=learn_dqn"]]


def test_a_grid_is_a_sweep(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="experiment=grid_cuts is a sweep: add --multirun"):
        compose("train", ["experiment=grid_cuts"])
    with pytest.raises(ConfigError, match=r"there is no file experiment/grid_cats\.yaml"):
        expanded(["experiment=grid_cats"])
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment/grid_none.yaml").write_text("seed: 3\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"must set hydra\.sweeper\.params"):
        expanded(["experiment=grid_none"], [tmp_path])


@pytest.mark.parametrize(
    "name", [name for name in GROUPS["experiment"] if name.startswith("learn_")]
)
def test_settings_of_a_learning_experiment_let_an_agent_be_judged(name: str) -> None:
    """Rewards are hardly discounted, budgets are decisions, and instances are fresh.

    Budgets were 150 s, in which machines made between 43 and 4,785 updates. Values of afterstates
    may play instances more often: their published runs did.
    """
    config = of_option("train", f"experiment={name}")
    assert config.agent.gamma >= 0.99  # 0.95 left a third of what 20 decisions give
    frames, minutes = config.trainer.frames, config.trainer.minutes
    if minutes is not None:  # to test that an agent learns at all
        assert config.name in ("learn_blobs", "learn_irregular")
    else:
        assert config.agent.get("lr_frames", frames) == frames
    decisions = 400 if config.agent._target_.endswith("Afterstate") else 16  # of each instance
    assert (config.trainer.redraw_every or frames) <= decisions * config.env.pool_size


# ---------------------------------------------------------------------- presets


def test_every_preset_has_a_file() -> None:
    assert GROUPS["env"] == sorted(PRESETS)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_is_the_same_in_python_and_yaml(name: str) -> None:
    preset = PRESETS[name]
    config = OmegaConf.to_container(of_option(command_for(name), f"env={name}").env, resolve=True)
    assert config["_target_"] == "packing_env.make_env"
    assert config["task"] == name
    for field in fields(PackingParams):
        if field.name == "constraints":
            assert preset.params.constraints == Constraints.read(config["constraints"])
            continue
        assert config[field.name] == plain(getattr(preset.params, field.name)), field.name
    assert config["orientations"] == preset.orientations
    assert config["scales"] == (plain(preset.scales) if preset.scales == (1.0,) else None)
    if isinstance(preset.generator, str):
        assert config["generator"] == {"name": preset.generator}
    else:
        assert config["generator"].items() >= preset.generator.items()
    assert config["pool_size"] == preset.pool_size
    written = {key: value for key, value in config["items"].items() if value is not None}
    assert written == plain(dict(preset.items))
    shell = {"_target_", "_convert_", "task", "num_envs", "device", "seed", "resolution", "split"}
    shell |= {"pool_size", "pool_seed", "skip_infeasible", "autoreset", "draw", "row_offset"}
    rules = {field.name for field in fields(PackingParams)}
    items = {"items", "orientations", "scales", "generator", "handling"}
    assert set(config) == shell | rules | items


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_the_file_of_a_preset_builds_it(name: str) -> None:
    # coarse, a few items and rows: what is checked is that the values reach the environment
    if PRESETS[name].items == CUBOIDS:
        small = [f"env={name}", "env.num_envs=2", "env.pool_size=8"]
        env = build_env(compose(command_for(name), small))
        assert env.params == PRESETS[name].params
        assert env.step_and_maybe_reset(env.rand_action(env.reset()))[1]["action_mask"].any()
        return
    small = [f"env={name}", "items=example_cuboids", "env.num_envs=2", "env.num_items=8"]
    small += ["env.pool_size=8", "env.num_visible=2", "env.cell=0.05", "env.grid_step=1"]
    container = [math.floor(c / 0.05 + 0.5) * 0.05 for c in PRESETS[name].params.container]
    env = build_env(compose("train", [*small, f"env.container={container}"]))
    expected = PRESETS[name].params.evolve(
        container=container, cell=0.05, grid_step=1, num_items=8, num_visible=2
    )
    assert env.params == expected
    seen = env.step_and_maybe_reset(env.rand_action(env.reset()))[1]
    assert seen["action_mask"].any(-1).all()


def test_a_resolution_takes_the_place_of_the_cell() -> None:
    assert compose("train", ["env.resolution=64"]).env.cell is None
    assert compose("train", ["env.resolution=64", "env.cell=0.005"]).env.cell == 0.005
    assert compose("train").env.cell == PRESETS["irregular"].params.cell


def test_a_choice_of_items_or_reward_replaces_that_of_the_preset() -> None:
    config = compose("train", ["env=irregular_paper", "items=shapes", "reward=item"])
    assert OmegaConf.to_container(config.env, resolve=True)["items"]["families"] is None
    assert config.env.reward == {"item": 1.0}
    assert compose("train", ["env=irregular_paper"]).env.reward == {"objective": 1.0}


# ---------------------------------------------------------------------- what is built


def test_every_generator_has_a_file() -> None:
    assert GROUPS["generator"] == sorted(GENERATORS)


@pytest.mark.parametrize("generator", sorted(GENERATORS))
def test_every_generator_plays(generator: str, tmp_path: Path) -> None:
    orders = tmp_path / "orders.csv"
    orders.write_text("0.02x0.02x0.02,0.04x0.02x0.02\n0,1,1\n")
    boxes = tmp_path / "boxes.csv"
    boxes.write_text("1,1,1\n2,1,1,2\n")
    needed = {
        "sequence_file": [f"generator.path={orders}"],
        "cuboid_sequences": [f"generator.path={boxes}"],
        "uniform_cuboids": ["generator.high=2"],
    }
    chosen = NEEDED.get(f"generator={generator}", [])
    options = [*TINY_OVERRIDES, f"generator={generator}", *needed.get(generator, chosen)]
    if issubclass(GENERATORS[generator], CuboidSource):
        own = [option for option in options if not option.startswith("items")]
        options = ["items=cuboids", *own]
    env = build_env(compose("train", options))
    assert env.rollout(3, break_when_any_done=False).shape == (4, 3)


@pytest.mark.parametrize("reward", GROUPS["reward"])
def test_every_reward_plays(reward: str) -> None:
    env = build_env(compose("train", [*TINY_OVERRIDES, f"reward={reward}"]))
    assert env.rollout(3, break_when_any_done=False)["next", "reward"].isfinite().all()


OFF_POLICY = {
    "trainer": [name for name in GROUPS["trainer"] if name != "on_policy"],
    "replay": [name for name in GROUPS["replay"] if name != "rollout"],
}


LONGEST = max(map(len, (*OFF_POLICY.values(), GROUPS["collector"])))
PARTS = [
    (replay, collector, trainer)
    for _, replay, collector, trainer in zip(
        range(LONGEST),
        itertools.cycle(OFF_POLICY["replay"]),
        itertools.cycle(GROUPS["collector"]),
        itertools.cycle(OFF_POLICY["trainer"]),
        strict=False,
    )
]
"""Every part once."""


@pytest.mark.parametrize(("replay", "collector", "trainer"), PARTS)
def test_every_part_trains(replay: str, collector: str, trainer: str, tmp_path: Path) -> None:
    config = compose(
        "train",
        [
            *TINY_OVERRIDES,
            "agent=dqn",
            f"replay={replay}",
            f"collector={collector}",
            f"trainer={trainer}",
            "replay.capacity=64",
            "agent.batch_size=4",
            "trainer.frames=40",
            "trainer.warmup=16",
            "trainer.update_every=8",
        ],
    )
    loop = build_trainer(config)
    assert isinstance(loop.agent, Agent)
    loop.run(NullLogger(tmp_path))
    loop.collector.close()
    assert loop.frames == 40
    assert loop.updates > 0
    assert math.isfinite(loop.last["loss"])


OFFLINE = {"wandb": ["logger.offline=true"]}


@pytest.mark.parametrize("logger", GROUPS["logger"])
def test_every_logger_writes(logger: str, tmp_path: Path) -> None:
    if logger in ("wandb", "mlflow") and find_spec(logger) is None:
        pytest.skip(f"{logger} is not installed")
    made = instantiate(compose("train", [f"logger={logger}", *OFFLINE.get(logger, [])]).logger)(
        tmp_path
    )
    made.log(8, {"loss": 0.5, "return": math.nan})
    made.log(16, {"loss": 0.4, "utilization": 0.3})
    made.close()
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert bool(written) == (logger != "none")
    if logger != "none":
        lines = (tmp_path / "metrics.csv").read_text().splitlines()
        assert lines == ["frames,loss,return,utilization", "8,0.5,nan,", "16,0.4,,0.3"]
    assert any("events" in path.name for path in written) == (logger == "tensorboard")


# ---------------------------------------------------------------------- errors


def test_a_program_of_hydra_keeps_its_state() -> None:
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra

    with initialize_config_dir(str(config_folder()), "other", version_base="1.3"):
        compose("train")
        assert GlobalHydra.instance().is_initialized()
        assert hydra_compose("eval").name == "eval"


def test_threads_compose_one_after_another() -> None:
    """Sessions that overlapped restored each other's state, and Hydra found no files afterwards."""
    with ThreadPoolExecutor(2) as threads:
        one, _, other = threads.map(compose, ["eval", "play", "eval"])
    assert one == other == compose("eval")


@pytest.mark.parametrize(
    ("given", "surest"),
    [
        ([], ("com_hull_10", "com_hull_20")),
        (["env.surest=null"], ("com_hull_10", "com_hull_20")),
        (["env.stability=com_hull_strict"], ("com_hull_10", "com_hull_20")),
        (["env.stability=none"], ()),
        (["env.stability=com_hull", "env.surest=[com_hull_20]"], ("com_hull_20",)),
        (["env.surest=[]"], ()),
    ],
)
def test_another_rule_without_surest_is_meant_alone(given: list[str], surest: object) -> None:
    small = [
        "items=example_cuboids",
        "env.resolution=8",
        "env.num_items=3",
        "env.pool_size=2",
        "env.num_envs=1",
    ]
    assert build_env(compose("train", [*small, *given])).params.surest == surest


def test_a_saved_run_without_surest_takes_a_rule() -> None:
    config = OmegaConf.create({"env": {"stability": "none"}})
    OmegaConf.set_struct(config, True)
    composition.replace_preset_values(config, {"env.stability"})
    assert config.env == {"stability": "none"}
