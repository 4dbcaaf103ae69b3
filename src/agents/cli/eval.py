"""The subcommand ``eval``, and what other commands share with it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from tensordict.nn import TensorDictModuleBase

from agents.config import build
from agents.config import compose as composition
from agents.config.checks import ConfigError
from agents.training import checkpoint, runs
from agents.training.evaluate import (
    Evaluation,
    StoppedError,
    check_instances,
    paired_difference,
    table,
)
from agents.training.evaluate import evaluate as play_instances
from agents.training.resume import Resumed
from packing_env.envs import PackingEnv
from packing_env.plan import Packing, save_plan

if TYPE_CHECKING:
    from agents.cli.main import Request

FROM_RUN = ("items", "generator", "reward", "network", "env", "agent")
"""Sections of the configuration that a checkpoint brings."""
DRAWN = 9
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
    if config.plan is not None:
        config.evaluation.plan = str(Path(config.plan).absolute())
    with build.said_plainly():
        env = build.build_held_out(config)
        policies = own_policy(config, found, env)
        policies |= build.build_heuristics(config.evaluation.heuristics, env)
        check_instances(env, int(config.evaluation.instances))
    folder = runs.new_folder(config.run_dir, str(config.name))
    describe(folder, config, request)
    with runs.StopSignals() as stop:
        return compare(
            config,
            env,
            policies,
            folder,
            results=origin(config) | ({"checkpoint": str(found.path)} if found else {}),
            should_stop=stop.requested,
            console=Console(),
        )


def from_run(
    config: DictConfig, request: Request
) -> tuple[checkpoint.Checkpoint | None, DictConfig]:
    """The checkpoint that was asked for, and the configuration with its run's sections."""
    if config.checkpoint is None:
        return None, config
    found = checkpoint.load(config.checkpoint, device=config.device)
    merged = composition.adopt(
        config, found.meta.get("config", {}), FROM_RUN, request.overrides, request.folders
    )
    return found, merged


def own_policy(
    config: DictConfig, found: checkpoint.Checkpoint | None, env: PackingEnv
) -> dict[str, TensorDictModuleBase]:
    """The policy of the checkpoint, or of ``agent=...``."""
    if found is not None:
        return {agent_name(config): build.load_policy(config, found, env)}
    if config.get("agent") is not None:
        return {agent_name(config): build.policy_of(build.build_agent(config, env))}
    return {}


def compare(
    config: DictConfig,
    env: PackingEnv,
    policies: Mapping[str, TensorDictModuleBase],
    folder: Path,
    *,
    results: Mapping[str, Any],
    should_stop: Callable[[], bool],
    console: Console,
) -> int:
    """Play the held-out instances with every policy; print the table and write the files.

    Args:
        config: Of the command; ``evaluation`` says what is played, compared and written.
        env: The held-out environment.
        policies: By name; pictures and plans are of the first.
        folder: Where files go.
        results: What else ``results.json`` says.
        should_stop: Asked after every step.
        console: Where the table goes.

    Raises:
        StoppedError: It was asked to stop; what was played to the end is in ``results.json``.
    """
    options = config.evaluation
    found: dict[str, Evaluation] = {}
    try:
        for name, policy in policies.items():
            with console.status(f"evaluating {name} on {options.instances} held-out instances"):
                found[name] = play_instances(
                    env, policy, options.instances, keep=DRAWN, should_stop=should_stop
                )
    except StoppedError:
        said = {**results, **_results(config, found), "interrupted": True}
        runs.write_json(folder / RESULTS, said)
        raise StoppedError(INTERRUPTED) from None
    console.print(table(found, title=f"{config.env.task}: {options.instances} held-out instances"))
    runs.write_json(folder / RESULTS, {**results, **_results(config, found)})
    written = [folder / RESULTS]
    shown = next(iter(found.values()))
    first = shown.packings(env) if options.picture or options.plan else []
    if options.picture:
        written.append(folder / options.picture)
        _draw(written[-1], first)
    if options.plan:
        written.append(folder / options.plan)
        with build.said_plainly():
            save_plan(written[-1], first[0])
    for path in written:
        console.print(f"wrote {path}", highlight=False, soft_wrap=True)
    return 0


def _results(config: DictConfig, found: Mapping[str, Evaluation]) -> dict[str, Any]:
    """The comparison as JSON: every policy, and how the first differs from each other."""
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


def _draw(path: Path, packings: list[Packing]) -> None:
    from packing_env.render import save_grid

    with build.said_plainly():
        path.parent.mkdir(parents=True, exist_ok=True)
        save_grid(path, packings)


# ---------------------------------------------------------------------- what a run says of itself


def describe(
    folder: Path, config: DictConfig, request: Request, resumed: Resumed | None = None
) -> None:
    """``config.yaml`` and ``run.json``."""
    resolved = OmegaConf.to_yaml(config, resolve=True)
    (folder / "config.yaml").write_text(resolved, encoding="utf-8")
    said = {"command": ["packing", request.command, *request.overrides], **origin(config)}
    if resumed is not None:
        said["resumed"] = {"from": str(resumed.found.path), **resumed.found.meta["versions"]}
    runs.write_json(folder / "run.json", said)


def origin(config: DictConfig) -> dict[str, Any]:
    """What numbers were made with."""
    return {
        "seed": config.seed,
        "device": config.device,
        "versions": runs.versions(),
        "machine": runs.machine(config.device),
    }


def agent_name(config: DictConfig) -> str:
    """A short name for tables."""
    name = config.agent.get("name")
    return str(name) if name else str(config.agent["_target_"]).rpartition(".")[2].lower()
