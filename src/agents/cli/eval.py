"""The subcommand ``eval``, and functions that other commands share with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf
from tensordict.nn import TensorDictModuleBase

from agents.config import build
from agents.config.folders import ConfigError, as_config_errors
from agents.config.imports import imported
from agents.config.keys import Request
from agents.config.outputs import check_output
from agents.config.saved import adopt
from agents.loggers.console import PlainConsole
from agents.training import checkpoint, runs
from agents.training.evaluate import Evaluation, check_instances, paired_difference, table
from agents.training.evaluate import evaluate as evaluate_policy
from agents.training.loading import FROM_RUN
from agents.training.process import StoppedError, StopSignals, seed_everything
from agents.training.resume import Resumed, load_policy
from packing_env import extras
from packing_env.envs import PackingEnv
from packing_env.plan import Packing, save_plan, settle

PICTURED = 9
"""Number of containers in the picture of an evaluation."""
INTERRUPTED = "stopped on request; everything so far is saved"


def evaluate(config: DictConfig, request: Request) -> int:
    """Compare policies on held-out instances."""
    if not (config.checkpoint or config.get("agent") or config.evaluation.heuristics):
        raise ConfigError(
            "nothing to evaluate; give checkpoint=RUN, agent=heuristic or evaluation.heuristics"
        )
    # 1. Build everything that may fail before a folder is made.
    if config.plan is not None:
        with as_config_errors():
            check_output(config.plan, "plan", ending=".json")
        config.evaluation.plan = str(Path(config.plan).absolute())
    trained, config = from_run(config, request)
    with as_config_errors():
        env = build.build_held_out(config)
        policies = own_policy(config, trained, env)
        policies |= build.build_heuristics(config.evaluation.heuristics, env)
        check_instances(env, int(config.evaluation.instances))
    check_picture(config)
    # 2. Play.
    folder = runs.new_folder(config.run_dir, str(config.name))
    describe(folder, config, request)
    with StopSignals() as stop:
        compare(
            config,
            env,
            policies,
            folder,
            results=origin(config) | ({"checkpoint": str(trained.path)} if trained else {}),
            should_stop=stop.requested,
            console=PlainConsole(),
        )
    return 0


def check_picture(config: DictConfig) -> None:
    """Raise MissingPackageError if the evaluation's picture cannot be drawn here."""
    if config.evaluation.picture and int(config.evaluation.instances):
        extras.check("matplotlib", "pictures of several containers")


def from_run(
    config: DictConfig, request: Request
) -> tuple[checkpoint.Checkpoint | None, DictConfig]:
    """Load ``config.checkpoint`` if it is set; return it and the configuration of its run.

    Sections that do not belong to the run are those of the command.
    """
    if config.checkpoint is None:
        return None, config
    trained = checkpoint.load(config.checkpoint, device=config.device)
    saved = trained.meta.get("config", {})
    return trained, adopt(config, saved, FROM_RUN, request.overrides, request.folders)


def compare(
    config: DictConfig,
    env: PackingEnv,
    policies: Mapping[str, TensorDictModuleBase],
    folder: Path,
    *,
    results: Mapping[str, Any],
    should_stop: Callable[[], bool],
    console: PlainConsole,
) -> dict[str, Evaluation]:
    """Evaluate every policy on the held-out instances; print the table and write the files.

    Args:
        config: The command's configuration, with the section ``evaluation``.
        env: The held-out environment.
        policies: The policies by name; the agent's comes first.
        folder: The run folder.
        results: Additional entries of ``results.json``.
        should_stop: Function that is called after every step; True stops the evaluation.
        console: Console for the table.

    Raises:
        StoppedError: ``should_stop`` returned True; completed policies are in ``results.json``.
    """
    options = config.evaluation
    settings = _physics(config)
    # 1. Play every policy; after a stop, keep the policies that are complete.
    evaluations: dict[str, Evaluation] = {}
    keep = PICTURED if settings is None else int(options.instances)
    held_out = f"{options.instances} held-out instances"
    try:
        for name, policy in policies.items():
            with console.working(f"evaluating {name} on {held_out}"):
                evaluations[name] = evaluate_policy(
                    env, policy, options.instances, keep=keep, should_stop=should_stop
                )
    except StoppedError:
        so_far = {**results, **_results(config, evaluations), "interrupted": True}
        runs.write_json(folder / runs.RESULTS, so_far)
        raise StoppedError(INTERRUPTED) from None
    # 2. Print the table, and write the numbers before anything slow is drawn.
    console.print(table(evaluations, title=f"{config.env.task}: {held_out}"))
    best = _shown(config, evaluations)
    pictured = bool(options.picture or options.plan)
    results = {**results, **_results(config, evaluations)} | ({"shown": best} if pictured else {})
    runs.write_json(folder / runs.RESULTS, results)
    written = [folder / runs.RESULTS]
    # 3. Simulate and draw what was packed.
    with as_config_errors():
        if settings is not None:
            from agents.cli import physics

            reports = physics.simulate_all(evaluations, env, settings, console, should_stop)
            written += physics.save_all(folder, reports, evaluations[best].packings(env)[0], best)
        if pictured:
            console.say(f"the picture and the plan show {best}")
            packings = [settle(each) for each in evaluations[best].packings(env)[:PICTURED]]
            written += _drawn(options, folder, packings, best)
    for path in written:
        console.say(f"wrote {path}")
    return evaluations


def _drawn(options: DictConfig, folder: Path, packings: list[Packing], policy: str) -> list[Path]:
    written = []
    if options.picture:
        from packing_env.render import save_grid, title_of

        written.append(runs.place(folder, options.picture))
        titles = [f"{policy}: {title_of(packing)}" for packing in packings]
        save_grid(written[-1], packings, titles=titles)
    if options.plan:
        written.append(runs.place(folder, options.plan))
        save_plan(written[-1], packings[0], policy=policy)
    return written


def _physics(config: DictConfig) -> Any:
    """Return the settings of the simulation, or None; they are checked before playing."""
    value = config.get("physics")
    if value is None or value is False:
        return None
    if isinstance(value, DictConfig):
        value = OmegaConf.to_container(value)
    from packing_env.physics import load_mujoco, read_settings

    with as_config_errors():
        load_mujoco()
        return read_settings(value)


def _shown(config: DictConfig, evaluations: Mapping[str, Evaluation]) -> str:
    """Return the name of the agent, or of the best heuristic if there is no agent."""
    if config.get("agent") is not None:
        return next(iter(evaluations))
    return max(evaluations, key=lambda name: evaluations[name].estimate("utilization").mean)


def _results(config: DictConfig, evaluations: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Return the comparison as JSON: every policy, and the lead of the first over the others."""
    names = list(evaluations)
    return {
        "task": config.env.task,
        "split": "test",
        "num_instances": config.evaluation.instances,
        "instances_seed": config.evaluation.seed,
        "interval": "95 %, normal approximation, half-width",
        "policies": {name: each.to_json() for name, each in evaluations.items()},
        "paired_difference_in_utilization": {
            f"{names[0]} - {name}": vars(paired_difference(evaluations[names[0]], each))
            for name, each in list(evaluations.items())[1:]
        },
    }


# ---------------------------------------------------------------------- policies


def own_policy(
    config: DictConfig, trained: checkpoint.Checkpoint | None, env: PackingEnv
) -> dict[str, TensorDictModuleBase]:
    """Build the policy of the checkpoint, or of ``agent=...``, under its name."""
    if trained is not None:
        return {agent_name(config): load_policy(config, trained, env)}
    if config.get("agent") is not None:
        seed_everything(int(config.seed))  # untrained weights depend on the seed alone
        return {agent_name(config): build.policy_of(build.build_agent(config, env))}
    return {}


def agent_name(config: DictConfig) -> str:
    """Return a short name of the agent for tables."""
    name = config.agent.get("name")
    *_, package, target = str(config.agent["_target_"]).split(".")
    if target == "build":
        target = package
    return str(name) if name else target.removeprefix("build_").lower()


# ---------------------------------------------------------------------- description of a run


def describe(
    folder: Path, config: DictConfig, request: Request, resumed: Resumed | None = None
) -> None:
    """Write ``config.yaml`` and ``run.json``."""
    packages = [f"--import={name}" for name in imported()]
    command = ["packing", request.command, *packages, *request.overrides]
    content = {"command": command, **origin(config)}
    if resumed is not None:
        content["resumed"] = {"from": str(resumed.saved.path), **resumed.saved.meta["versions"]}
    # This file comes first, because it marks the folder as a run.
    runs.write_json(folder / runs.DESCRIPTION, content)
    runs.write_text(folder / "config.yaml", OmegaConf.to_yaml(config, resolve=True))


def origin(config: DictConfig) -> dict[str, Any]:
    """Return the seed, device, versions and machine, which determine results.

    ``revision`` is the commit of the repository of the working directory, which holds the user's
    own code and settings.
    """
    return {
        "seed": config.seed,
        "revision": runs.revision(Path()),
        "device": config.device,
        "versions": runs.versions(),
        "machine": runs.machine(config.device),
    }
