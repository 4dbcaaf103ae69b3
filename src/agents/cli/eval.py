"""The subcommand ``eval``, and the functions that other commands share with it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from tensordict.nn import TensorDictModuleBase

from agents.cli import shards
from agents.cli.shards import own_policy, workers_of
from agents.config import build
from agents.config.compose import Request
from agents.config.folders import ConfigError
from agents.config.saved import adopt
from agents.loggers.console import PlainConsole
from agents.training import checkpoint, runs
from agents.training.evaluate import (
    Evaluation,
    StoppedError,
    check_instances,
    paired_difference,
    table,
)
from agents.training.evaluate import evaluate as evaluate_policy
from agents.training.process import StopSignals
from agents.training.ray_workers import RayWorkers
from agents.training.resume import Resumed
from packing_env import extras
from packing_env.envs import PackingEnv
from packing_env.plan import save_plan, settle

FROM_RUN = ("items", "generator", "reward", "network", "env", "agent")
"""Sections of the configuration that a checkpoint brings."""
PICTURED = 9
"""Containers in the picture of an evaluation."""
RESULTS = "results.json"
INTERRUPTED = "stopped on request; everything so far is saved"


def evaluate(config: DictConfig, request: Request) -> int:
    """Compare policies on held-out instances."""
    if not (config.checkpoint or config.get("agent") or config.evaluation.heuristics):
        raise ConfigError(
            "nothing to evaluate; give checkpoint=RUN, agent=heuristic or evaluation.heuristics"
        )
    found, config = from_run(config, request)
    workers = workers_of(config)
    if config.plan is not None:
        config.evaluation.plan = str(Path(config.plan).absolute())
    with build.as_config_errors():
        env = build.build_held_out(config)
        policies = own_policy(config, found, env)
        policies |= build.build_heuristics(config.evaluation.heuristics, env)
        check_instances(env, int(config.evaluation.instances))
    check_picture(config)
    folder = runs.new_folder(config.run_dir, str(config.name))
    describe(folder, config, request)
    with StopSignals() as stop:
        return compare(
            config,
            env,
            policies,
            folder,
            results=origin(config) | ({"checkpoint": str(found.path)} if found else {}),
            should_stop=stop.requested,
            console=PlainConsole(),
            workers=workers,
        )


def check_picture(config: DictConfig) -> None:
    """Raise MissingPackageError if the evaluation's picture cannot be drawn here."""
    if config.evaluation.picture and int(config.evaluation.instances):
        extras.check("matplotlib", "pictures of several containers")


def from_run(
    config: DictConfig, request: Request
) -> tuple[checkpoint.Checkpoint | None, DictConfig]:
    """Load ``config.checkpoint``, if given; return it, and the configuration with its sections."""
    if config.checkpoint is None:
        return None, config
    found = checkpoint.load(config.checkpoint, device=config.device)
    saved = found.meta.get("config", {})
    return found, adopt(config, saved, FROM_RUN, request.overrides, request.folders)


def compare(
    config: DictConfig,
    env: PackingEnv,
    policies: Mapping[str, TensorDictModuleBase],
    folder: Path,
    *,
    results: Mapping[str, Any],
    should_stop: Callable[[], bool],
    console: Console,
    workers: RayWorkers | None = None,
) -> int:
    """Evaluate every policy on the held-out instances; print the table and write the files.

    Args:
        config: Of the command; its section ``evaluation`` applies.
        env: The held-out environment.
        policies: By name; pictures and plans are of the agent, without one of the best.
        folder: The run folder.
        results: Further entries of ``results.json``.
        should_stop: Called after every step; True stops the evaluation.
        console: Where the table is printed.
        workers: Play the instances; None: this process does.

    Raises:
        StoppedError: ``should_stop`` returned True; completed policies are in ``results.json``.
    """
    options = config.evaluation
    settings = _physics(config)
    found: dict[str, Evaluation] = {}
    keep = PICTURED if settings is None else int(options.instances)
    played = _played(config, env, policies, keep, should_stop, workers)
    try:
        with closing(played):
            for name in policies:
                line = f"evaluating {name} on {options.instances} held-out instances"
                with console.status(console.render_str(line)):
                    found[name] = next(played)
    except StoppedError:
        so_far = {**results, **_results(config, found), "interrupted": True}
        runs.write_json(folder / RESULTS, so_far)
        raise StoppedError(INTERRUPTED) from None
    console.print(table(found, title=f"{config.env.task}: {options.instances} held-out instances"))
    runs.write_json(folder / RESULTS, {**results, **_results(config, found)})
    written = [folder / RESULTS]
    chosen = _shown(config, found)
    if settings is not None:
        written += _simulate(found, env, settings, folder, chosen, console, should_stop)
    shown = found[chosen].packings(env)[:PICTURED] if options.picture or options.plan else []
    packings = [settle(packing) for packing in shown]
    if packings:
        results = {**results, "shown": chosen}
        runs.write_json(folder / RESULTS, {**results, **_results(config, found)})
        console.print(f"the picture and the plan are of {chosen}", highlight=False)
    if options.picture:
        from packing_env.render import save_grid, title_of

        with build.as_config_errors():
            written.append(runs.place(folder, options.picture))
            titles = [f"{chosen}: {title_of(packing)}" for packing in packings]
            save_grid(written[-1], packings, titles=titles)
    if options.plan:
        with build.as_config_errors():
            written.append(runs.place(folder, options.plan))
            save_plan(written[-1], packings[0], policy=chosen)
    for path in written:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _played(
    config: DictConfig,
    env: PackingEnv,
    policies: Mapping[str, TensorDictModuleBase],
    keep: int,
    should_stop: Callable[[], bool],
    workers: RayWorkers | None,
) -> Generator[Evaluation, None, None]:
    """Yield the evaluation of each policy, played here or by workers."""
    if workers is not None:
        rows = env.batch_size.numel()
        names = list(policies)
        yield from shards.play(workers, config, names, rows, keep=keep, should_stop=should_stop)
        return
    for policy in policies.values():
        yield evaluate_policy(
            env, policy, config.evaluation.instances, keep=keep, should_stop=should_stop
        )


def _physics(config: DictConfig) -> Any:
    """Return the settings of the simulation, or None; checked before anything is played."""
    value = config.get("physics")
    if value is None or value is False:
        return None
    if isinstance(value, DictConfig):
        value = OmegaConf.to_container(value)
    from packing_env.physics import load_mujoco, read_settings

    with build.as_config_errors():
        load_mujoco()
        return read_settings(value)


def _simulate(
    found: Mapping[str, Evaluation],
    env: PackingEnv,
    settings: Any,
    folder: Path,
    chosen: str,
    console: Console,
    should_stop: Callable[[], bool],
) -> list[Path]:
    """Simulate what was packed; write ``physics.json`` and a page of the first packing."""
    from agents.cli import physics

    with build.as_config_errors():
        reports = physics.simulate_all(found, env, settings, console, should_stop)
        written = [folder / "physics.json", folder / "physics.html"]
        runs.write_json(written[0], physics.to_json(reports))
        first = settle(found[chosen].packings(env)[0])
        physics.save_page(written[1], first, reports[chosen][0])
    return written


def _shown(config: DictConfig, found: Mapping[str, Evaluation]) -> str:
    """Return the policy of pictures and plans: the agent, without one the best heuristic."""
    if config.get("agent") is not None:
        return next(iter(found))
    return max(found, key=lambda name: found[name].estimate("utilization").mean)


def _results(config: DictConfig, found: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Return the comparison as JSON: every policy, and the first minus each of the others."""
    names = list(found)
    return {
        "task": config.env.task,
        "split": "test",
        "num_instances": config.evaluation.instances,
        "instances_seed": config.evaluation.seed,
        "interval": "95 %, normal approximation, half-width",
        "policies": {name: evaluation.to_json() for name, evaluation in found.items()},
        "paired_difference_in_utilization": {
            f"{names[0]} - {name}": vars(paired_difference(found[names[0]], found[name]))
            for name in names[1:]
        },
    }


# ---------------------------------------------------------------------- description of a run


def describe(
    folder: Path, config: DictConfig, request: Request, resumed: Resumed | None = None
) -> None:
    """Write ``config.yaml`` and ``run.json``."""
    content = {"command": ["packing", request.command, *request.overrides], **origin(config)}
    if resumed is not None:
        content["resumed"] = {"from": str(resumed.found.path), **resumed.found.meta["versions"]}
    runs.write_json(folder / runs.DESCRIPTION, content)  # first: it tells what the folder is
    runs.write_text(folder / "config.yaml", OmegaConf.to_yaml(config, resolve=True))


def origin(config: DictConfig) -> dict[str, Any]:
    """Return the seed, device, versions and machine that results depend on."""
    return {
        "seed": config.seed,
        "device": config.device,
        "versions": runs.versions(),
        "machine": runs.machine(config.device),
    }
