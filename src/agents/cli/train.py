"""The subcommand ``train``: train, save and evaluate an agent."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.eval import (
    INTERRUPTED,
    RESULTS,
    agent_name,
    check_picture,
    compare,
    describe,
    origin,
)
from agents.config import build
from agents.config.compose import Request
from agents.config.folders import ConfigError
from agents.diagnostics import black_box
from agents.loggers.console import PlainConsole
from agents.loggers.curve import save_curve
from agents.loggers.logging import NullLogger
from agents.loggers.progress import ProgressBar
from agents.training import checkpoint, distributed, imitation, resume, runs
from agents.training.distributed import World
from agents.training.evaluate import StoppedError
from agents.training.evaluate import evaluate as evaluate_policy
from agents.training.process import StopSignals, seed_everything
from agents.training.resume import Resumed
from agents.training.trainer import NonFiniteError, Trainer
from packing_env.envs import PackingEnv
from packing_env.extras import MissingPackageError
from packing_env.names import close_names
from packing_env.registration import ENVIRONMENT

_LOGGER = logging.getLogger("agents.cli.train")
HELD_OUT = "held_out/"
"""Prefix of the names of metrics of evaluations."""


def train(config: DictConfig, request: Request) -> int:
    """Train, save and evaluate.

    Raises:
        StoppedError: A signal requested a stop; everything so far is saved.
    """
    with distributed.joined(config.device) as world, ExitStack() as held:
        return _train(config, request, world, held)


def _train(config: DictConfig, request: Request, world: World, held: ExitStack) -> int:
    """Run the part of one process; ``held`` holds the run's folder."""
    place, resumed = config.resume, _resumed(config, request, world, held)
    if resumed is not None:
        config = resumed.config
    seed_everything(int(config.seed))
    check_picture(config)
    with build.as_config_errors():
        build.check_logger(config)
        env = build.build_env(config, **_shard(config, world))
        agent = build.build_agent(config, env)
        imitated = None if resumed else imitation.from_config(config.warm_start, agent, env)
        replay = build.build_replay(config, env, agent)
        collector = instantiate(config.collector)(env, agent.policy)
        trainer = instantiate(config.trainer)(agent, collector, replay)
        if config.evaluation.heuristics:
            build.build_heuristics(config.evaluation.heuristics, env)  # unknown names: errors now
    trainer.world = world
    seed_everything(int(config.seed) + world.rank)  # equal weights, separate draws
    if not world.leads:
        return _follow(trainer)
    folder = _folder(config, resumed, held)
    describe(folder, config, request, resumed)
    console = PlainConsole()
    say = partial(console.print, highlight=False, soft_wrap=True)
    if place is not None:
        say(_start_line(place, resumed))
    if resumed is not None:
        resume.load_state(trainer, resumed.found)
    say(
        f"{config.name}: {env.batch_size.numel()} rows of {env.params.num_items} items on "
        f"{env.device}, {env.mode.num_actions:,} actions (action_mode="
        f"{env.params.action_mode}); results in {folder}"
    )
    if imitated is not None:
        say(imitated)
    with StopSignals() as stop:
        start = None if resumed is None else int(resumed.found.meta["frames"])
        session = _Session(config, folder, env, trainer, stop.requested, start)
        try:
            finished = session.train(console)
        except NonFiniteError as error:
            saved = f"{session.checkpoints()}{session.save_black_box(error)}"
            say(f"packing: {error}; {saved}", style="bold")
            return 1
        finally:
            collector.close()
        state = {} if finished else {"interrupted": True}
        runs.write_json(folder / RESULTS, session.results() | state)
        if not finished:
            raise StoppedError(f"{INTERRUPTED}; to continue: packing train resume={folder}")
        if caveat := session.caveat():
            say(caveat, style="bold")
        return session.report(console)


def _shard(config: DictConfig, world: World) -> dict[str, Any]:
    """Return the per-rank environment arguments."""
    if world.size == 1:
        return {}
    rows = config.env.num_envs
    count = rows if isinstance(rows, int) else math.prod(rows)
    return {"row_offset": int(config.env.row_offset) + world.rank * count}


def _follow(trainer: Trainer) -> int:
    """Train in step with rank 0, which does everything else."""
    with StopSignals() as stop:
        trainer.run(NullLogger(Path()), should_stop=stop.requested)
    trainer.collector.close()
    return 0


class _Session:
    """One training run with its files and evaluations."""

    def __init__(
        self,
        config: DictConfig,
        folder: Path,
        env: PackingEnv,
        trainer: Trainer,
        should_stop: Callable[[], bool],
        resumed_at: int | None,
    ) -> None:
        self.config, self.folder = config, folder
        self.env, self.trainer, self.should_stop = env, trainer, should_stop
        self.resumed_at = resumed_at
        self._failed: Path | None = None
        self._best = (config.checkpoint.best or "").removeprefix("-")
        self._warned = False

    def train(self, console: Console) -> bool:
        """Train, and save in any case; return whether the schedule ended."""
        with build.as_config_errors():
            logger = instantiate(self.config.logger)(self.folder)
        if self.resumed_at is not None:
            logger.resume(self.trainer.logged_frames)
        bar = ProgressBar(console, self.trainer.total, self.trainer.budget)
        try:
            return self.trainer.run(
                logger,
                bar,
                should_stop=self.should_stop,
                save=partial(self.save_meanwhile, console),
                evaluate=self.evaluate,
                save_evaluated=self._best.startswith(HELD_OUT),
            )
        finally:
            bar.close()
            logger.close()
            self.save()

    def save_meanwhile(self, console: Console) -> None:
        """Write a checkpoint; if that fails, as on a full disk, training continues."""
        try:
            self.save()
        except checkpoint.CheckpointError as error:
            console.print(f"packing: {error}; training continues", style="bold", soft_wrap=True)

    def save(self) -> None:
        """Write a checkpoint; one with NaN or Inf is named so that it is never the newest."""
        options = self.config.checkpoint
        try:
            self.trainer.check_finite()
            failed = False
        except NonFiniteError:
            failed = True
        meta = self._meta() | {"metrics": runs.finite(self.trainer.last)}
        self._check_best(meta["metrics"])
        state = self.trainer.state_dict(replay=bool(options.replay))
        path = checkpoint.save(self.folder, self.trainer.frames, state, meta, failed=failed)
        if failed:
            self._failed = path
        checkpoint.rotate(self.folder, options.keep, options.best)

    def _check_best(self, metrics: Mapping[str, Any]) -> None:
        """Warn once if the metric of ``checkpoint.best`` is not logged."""
        evaluated = any(key.startswith(HELD_OUT) for key in metrics)
        due = bool(metrics) and (evaluated or not self._best.startswith(HELD_OUT))
        if self._best and due and self._best not in metrics and not self._warned:
            self._warned = True
            near = close_names(self._best, list(metrics))
            _LOGGER.warning("checkpoint.best=%s is no metric of the log%s", self._best, near)

    def _meta(self) -> dict[str, Any]:
        """Return the description that is saved beside tensors."""
        config = OmegaConf.to_container(self.config, resolve=False)
        assert isinstance(config, dict)
        config["name"] = str(self.config.name)  # plain text, which a resume takes over
        return {
            "agent": self.config.agent["_target_"],
            "task": self.config.env.task,
            "config": config,
            "environment": ENVIRONMENT,
            "versions": runs.versions(),
        }

    def save_black_box(self, error: NonFiniteError) -> str:
        """Write the black box of a run with NaN or Inf; return how to inspect it."""
        if self.trainer.black_box is None:
            return ""
        meta = self._meta() | {"error": str(error), "frames": self.trainer.frames}
        try:
            place = self.folder / black_box.FOLDER
            contents = self.trainer.black_box.contents()
            checkpoint.write(place, contents, meta, kind=black_box.KIND)
        except checkpoint.CheckpointError as failure:
            return f"; {failure}"
        return f"; to diagnose it: packing inspect {place}"

    def checkpoints(self) -> str:
        """Return where the failed state and the newest intact checkpoint are."""
        try:
            intact = f"the newest intact checkpoint is {checkpoint.find(self.folder)}"
        except checkpoint.CheckpointError:
            intact = "there is no intact checkpoint"
        return f"the failed state is saved in {self._failed}, {intact}"

    @cached_property
    def held_out(self) -> PackingEnv:
        """The environment of evaluations, built on first use."""
        return build.build_held_out(self.config, self.env)

    def evaluate(self) -> dict[str, float]:
        """Return means on held-out instances, for the log."""
        count = max(1, int(self.config.evaluation.instances))
        try:
            found = evaluate_policy(
                self.held_out, self.trainer.agent.policy, count, should_stop=self.should_stop
            )
        except StoppedError:
            return {}
        return {f"{HELD_OUT}{name}": found.estimate(name).mean for name in found.metrics}

    def draw(self) -> str:
        """Draw the learning curve; return what to say of it."""
        if not self.config.curve:
            return ""
        path = self.folder / self.config.curve
        try:
            drawn = save_curve(self.folder / "metrics.csv", path, str(self.config.name))
        except (MissingPackageError, OSError) as error:
            return f"no learning curve: {error}"
        return f"wrote {path}" if drawn else ""

    def caveat(self) -> str | None:
        """Return a warning about a run that did not learn; None for any other."""
        trainer = self.trainer
        if trainer.frames == self.resumed_at:
            return (
                f"nothing was left to do: {trainer.frames:,} of trainer.frames={trainer.total:,} "
                f"are done, in {trainer.elapsed:.1f} s since the start of the run (from which "
                f"trainer.seconds and trainer.minutes count); raise the limit that is reached"
            )
        if not trainer.updates:
            return (
                f"nothing was learned: no update was made in {trainer.frames:,} frames "
                f"(trainer.warmup, replay.horizon and agent.n_steps say when the first is due)"
            )
        return None

    def results(self) -> dict[str, Any]:
        """Return the results at the end of training."""
        counters = ("frames", "updates", "elapsed", "last")
        training = {name: getattr(self.trainer, name) for name in counters}
        return {"training": training, **origin(self.config)}

    def report(self, console: Console) -> int:
        """Draw the curve, evaluate by ``config.evaluation``, and complete ``results.json``."""
        if drawn := self.draw():
            console.print(drawn, soft_wrap=True, highlight=False)
        if int(self.config.evaluation.instances) < 1:
            console.print(
                f"checkpoint, metrics and results in {self.folder}; to compare it with the "
                f"heuristics: packing eval checkpoint={self.folder}",
                soft_wrap=True,
                highlight=False,
            )
            return 0
        policies = {agent_name(self.config): self.trainer.agent.policy}
        policies |= build.build_heuristics(self.config.evaluation.heuristics, self.held_out)
        return compare(
            self.config,
            self.held_out,
            policies,
            self.folder,
            results=self.results(),
            should_stop=self.should_stop,
            console=console,
        )


def _resumed(config: DictConfig, request: Request, world: World, held: ExitStack) -> Resumed | None:
    """Load the run to continue, if ``resume`` names one, and lock its folder."""
    if config.resume is not None and world.size > 1:
        raise ConfigError(
            f"resume={config.resume}: a checkpoint holds the environment and the replay of one "
            f"process, and {world.size} are running; start one"
        )
    if config.resume is None:
        return None
    place = resume.find(str(config.resume), config.run_dir)
    if place is None:
        return None
    run = place.parent.parent
    if _goes_on(config, run):
        held.enter_context(runs.locked(run))
        runs.check_own(run)
    if config.resume == resume.AUTO:
        place = checkpoint.find(run)  # again: another process may have saved before the lock
    return resume.from_config(config, place, request.overrides, request.folders)


def _goes_on(config: DictConfig, run: Path) -> bool:
    """Return whether results go into the folder of the run that is continued."""
    return config.run_dir in (None, str(run))


def _folder(config: DictConfig, resumed: Resumed | None, held: ExitStack) -> Path:
    """Return the folder for results, held: a new one, or that of the continued run.

    With ``resume=auto`` a run that was killed before its first checkpoint starts again in its
    folder.
    """
    if resumed is not None and _goes_on(config, resumed.folder):
        return resumed.folder
    given = Path(config.run_dir) if config.run_dir is not None else None
    if config.resume == resume.AUTO and given and runs.never_saved(given, checkpoint.FOLDER):
        folder = given
        runs.check_own(folder)
    else:
        folder = runs.new_folder(given, str(config.name))
    held.enter_context(runs.locked(folder))
    return folder


def _start_line(place: str, resumed: Resumed | None) -> str:
    """Return where training starts."""
    if resumed is None:
        return f"resume={place}: no checkpoint was found, training starts from nothing"
    held = "" if "replay" in resumed.found.state else "; it has no replay, which is refilled"
    frames = resumed.found.meta["frames"]
    return f"continuing from {resumed.found.path}, after {frames:,} frames{held}"
