"""The subcommand ``train``: train, save and evaluate an agent."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from agents.cli import start
from agents.cli.eval import (
    INTERRUPTED,
    agent_name,
    check_picture,
    compare,
    describe,
    origin,
)
from agents.config import build
from agents.config.folders import as_config_errors
from agents.config.keys import Request
from agents.estimate import Estimate
from agents.loggers.console import PlainConsole
from agents.loggers.curve import save_curve
from agents.loggers.logging import NullLogger
from agents.loggers.progress import ProgressBar
from agents.process_group import from_first, leads, part, processes, rank
from agents.training import checkpoint, fine_tuning, resume, runs
from agents.training.distributed import evaluate_part
from agents.training.evaluate import check_instances
from agents.training.process import StoppedError, StopSignals, seed_everything
from agents.training.trainer import NonFiniteError, Trainer
from packing_env.envs import PackingEnv
from packing_env.extras import MissingPackageError
from packing_env.names import close_names
from packing_env.registration import ENVIRONMENT

_LOGGER = logging.getLogger("agents.cli.train")
HELD_OUT = "held_out/"
"""Prefix of the names of evaluation metrics."""


def train(config: DictConfig, request: Request) -> int:
    """Train, save and evaluate.

    Raises:
        StoppedError: A signal requested a stop; everything so far is saved.
    """
    # Train in all processes; rank 0 evaluates when the others have ended.
    with ExitStack() as locks:
        with instantiate(config.distributed)(config.device):
            session = _trained(config, request, locks)
        if isinstance(session, int):
            return session
        with StopSignals() as stop:
            return session.report(stop.requested)


def _trained(config: DictConfig, request: Request, locks: ExitStack) -> _Session | int:
    """Run one process of the training; ``locks`` keeps the run's folder locked.

    Returns:
        The session if there is something to report, otherwise the exit code.
    """
    # 1. Find the run to resume, and build everything that may fail, before a folder is made.
    place, resumed = config.resume, start.resumed_run(config, request, locks)
    if resumed is not None:
        config = resumed.config
    config, tuned = fine_tuning.source(config, request, resumes=resumed is not None)
    check_picture(config)
    with as_config_errors():
        logger = instantiate(config.logger)
        logger.func.check(**logger.keywords)  # raises if a package is missing
        trainer, started = build_trainer(config, tuned)
    # 2. Make the folder, describe the run in it, and print what is started.
    env = trainer.collector.env
    folder = Path(from_first(lambda: str(start.results_folder(config, resumed, locks))))
    console = PlainConsole(quiet=not leads())
    if leads():
        describe(folder, config, request, resumed)
    if place is not None:
        console.say(start.start_line(place, resumed))
    if resumed is not None:
        resume.load_state(trainer, resumed.saved)
    console.say(
        f"{config.name}: {_rows(env)} of {env.params.num_items} items on "
        f"{env.device}, {env.mode.num_actions:,} actions (action_mode="
        f"{env.params.action_mode}); results in {folder}"
    )
    line, fits = start.disk_use(trainer, config.checkpoint, folder)
    console.say(line, style="" if fits else "bold")
    if started is not None:
        console.say(started)
    # 3. Train; after NaN or Inf, save the failed state with the batch of the failed update.
    begun = None if resumed is None else int(resumed.saved.meta["frames"])
    with StopSignals() as stop:
        session = _Session(config, folder, trainer, stop.requested, begun, console)
        try:
            finished = session.train()
        except NonFiniteError as error:
            if leads():
                console.say(f"packing: {error}; {session.checkpoints()}", style="bold")
            return 1
        finally:
            trainer.collector.close()
    # 4. Write the results of training, before anything is evaluated.
    if not leads():
        return 0
    state = {} if finished else {"interrupted": True}
    runs.write_json(folder / runs.RESULTS, session.results() | state)
    if not finished:
        raise StoppedError(f"{INTERRUPTED}; to continue: packing train resume={folder}")
    return session


def build_trainer(
    config: DictConfig, tuned: checkpoint.Checkpoint | None
) -> tuple[Trainer, str | None]:
    """Build the trainer; return it, and a text on the weights taken over from ``tuned``."""
    seed_everything(int(config.seed))
    trainer: Trainer = build.build_trainer(config, **_shard(config))
    checkpoint.check_state(trainer.agent.state_dict(), config.agent["_target_"])
    started = None if tuned is None else fine_tuning.from_config(config, trainer.agent, tuned)
    # Unknown heuristics and missing instances raise errors now, not after the training.
    if config.evaluation.heuristics:
        build.build_heuristics(config.evaluation.heuristics, trainer.collector.env)
    if count := int(config.evaluation.instances):
        check_instances(build.build_held_out(config, trainer.collector.env, range(1)), count)
    seed_everything(int(config.seed) + rank())  # equal weights, but separate random draws
    return trainer, started


def _rows(env: PackingEnv) -> str:
    count = f"{env.batch_size.numel()} rows"
    return count if processes() == 1 else f"{processes()} processes with {count} each"


def _shard(config: DictConfig) -> dict[str, Any]:
    if processes() == 1:
        return {}
    rows = config.env.num_envs
    count = rows if isinstance(rows, int) else math.prod(rows)
    return {"row_offset": int(config.env.row_offset) + rank() * count}


def meta_of(config: DictConfig) -> dict[str, Any]:
    """Return the description of a run's checkpoints."""
    plain = OmegaConf.to_container(config, resolve=False)
    assert isinstance(plain, dict)
    plain["name"] = str(config.name)  # plain text, so that a resumed run can read it
    return {
        "agent": config.agent["_target_"],
        "task": config.env.task,
        "config": plain,
        "environment": ENVIRONMENT,
        "versions": runs.versions(),
    }


@dataclass
class _Session:
    """A training run with its files and evaluations.

    Several processes share the work of evaluations and checkpoints; rank 0 does the rest.
    """

    config: DictConfig
    folder: Path
    trainer: Trainer
    should_stop: Callable[[], bool]
    resumed_at: int | None
    console: PlainConsole

    def __post_init__(self) -> None:
        self.env = self.trainer.collector.env
        self._failed: Path | None = None
        self._best = (self.config.checkpoint.best or "").removeprefix("-")
        self._warned = False

    def train(self) -> bool:
        """Train, then save, also after NaN or Inf; return whether the schedule has ended.

        A single process saves after any error. If only one of several processes fails, nothing is
        saved, because saving needs all of them.
        """
        with as_config_errors():
            build_logger = instantiate(self.config.logger) if leads() else NullLogger
            logger = build_logger(self.folder)
        if self.resumed_at is not None:
            logger.resume(self.trainer.logged_frames)
        bar = ProgressBar(self.console, self.trainer.total, self.trainer.budget)
        saves = processes() == 1
        try:
            finished = self.trainer.run(
                logger,
                bar,
                should_stop=self.should_stop,
                save=self.save_meanwhile,
                evaluate=self.evaluate,
                save_evaluated=self._best.startswith(HELD_OUT),
            )
            saves = True
        except NonFiniteError:  # raised in all processes, because the checked values are shared
            saves = True
            raise
        finally:
            bar.close()
            logger.close()
            if saves:
                self.save()
        return finished

    def save_meanwhile(self) -> None:
        """Write a checkpoint; if that fails, for example on a full disk, training continues."""
        try:
            self.save()
        except checkpoint.CheckpointError as error:
            text = f"packing: {error}; training continues"
            self.console.say(text, style="bold")

    def save(self) -> None:
        """Write a checkpoint; a failed state gets another name, so it is never the newest one."""
        # 1. Describe the state: the metric for comparison, and whether the state is finite.
        options = self.config.checkpoint
        try:
            self.trainer.check_finite()
            failed = False
        except NonFiniteError:
            failed = True
        metrics = runs.finite(self.trainer.last)
        if self.trainer.frames > self.trainer.logged_frames:  # other weights were evaluated
            metrics = {key: v for key, v in metrics.items() if not key.startswith(HELD_OUT)}
        meta = meta_of(self.config) | {"metrics": metrics}
        self._check_best(meta["metrics"])
        # 2. Write the checkpoint; rank 0 removes old checkpoints.
        state = self.trainer.state_dict(replay=bool(options.replay))
        if failed:
            state["failed_batch"] = self.trainer.recent.failed()
        if not leads():
            state.pop("agent")  # equal in all processes
        frames = self.trainer.frames
        path = checkpoint.save(self.folder, frames, state, meta, failed=failed)
        if failed:
            self._failed = path
        if leads():
            checkpoint.rotate(self.folder, options.keep, options.best)

    def _check_best(self, metrics: Mapping[str, Any]) -> None:
        evaluated = any(key.startswith(HELD_OUT) for key in metrics)
        due = bool(metrics) and (evaluated or not self._best.startswith(HELD_OUT))
        if self._best and due and self._best not in metrics and not self._warned:
            self._warned = True
            near, known = close_names(self._best, list(metrics)), ", ".join(sorted(metrics))
            message = "checkpoint.best=%s is not a metric of the log%s; its metrics are %s"
            _LOGGER.warning(message, self._best, near, known)

    def checkpoints(self) -> str:
        try:
            intact = f"the newest intact checkpoint is {checkpoint.find(self.folder)}"
        except checkpoint.CheckpointError:
            intact = "there is no intact checkpoint"
        return (
            f"the failed state and the batch of the failed update are saved in {self._failed}; "
            f"agents.training.loading.load_failed repeats the update; {intact}"
        )

    @cached_property
    def held_out(self) -> PackingEnv:
        return build.build_held_out(self.config, self.env)

    @cached_property
    def shard(self) -> PackingEnv:
        """This process's environment for its part of evaluations, built on first use."""
        if processes() == 1:
            return self.held_out
        own = part(max(1, int(self.config.evaluation.instances)))
        return build.build_held_out(self.config, self.env, own)

    def evaluate(self) -> dict[str, float]:
        count = max(1, int(self.config.evaluation.instances))
        stop = self.should_stop if processes() == 1 else lambda: False
        try:
            metrics = evaluate_part(self.shard, self.trainer.agent.policy, count, should_stop=stop)
        except StoppedError:
            return {}
        return {f"{HELD_OUT}{name}": Estimate.of(metrics[name]).mean for name in metrics}

    def draw(self, lines: Mapping[str, float] | None = None) -> str:
        """Draw the learning curve, with horizontal lines; return a message about it."""
        if not self.config.curve:
            return ""
        try:
            path = runs.place(self.folder, self.config.curve)
            title = str(self.config.name)
            drawn = save_curve(self.folder / "metrics.csv", path, title, lines or {})
        except (MissingPackageError, OSError) as error:
            return f"no learning curve: {error}"
        return f"wrote {path}" if drawn else ""

    def caveat(self) -> str | None:
        """Return a warning about a run that did not learn; None if it did."""
        trainer = self.trainer
        if trainer.frames == self.resumed_at:
            return (
                f"nothing was left to do: the run has done {trainer.frames:,} of trainer.frames="
                f"{trainer.total:,} in {trainer.elapsed:.1f} s (trainer.minutes counts from the "
                "start of the run); raise the limit that was reached"
            )
        if trainer.updates:
            return None
        text = (
            f"nothing was learned: no update was made in {trainer.frames:,} frames "
            "(trainer.warmup, replay.horizon and agent.n_steps determine when the first is due)"
        )
        if trainer.budget is not None and trainer.elapsed >= trainer.budget:
            text += f"; the {trainer.budget:g} s of trainer.minutes were over"
        return text

    def results(self) -> dict[str, Any]:
        counters = ("frames", "updates", "elapsed", "last")
        training = {name: getattr(self.trainer, name) for name in counters}
        return {"training": training, **origin(self.config)}

    def report(self, should_stop: Callable[[], bool]) -> int:
        console = self.console
        if caveat := self.caveat():
            console.say(caveat, style="bold")
        if drawn := self.draw():
            console.say(drawn)
        if int(self.config.evaluation.instances) < 1:
            console.say(
                f"checkpoint, metrics and results in {self.folder}; to compare it with the "
                f"heuristics: packing eval checkpoint={self.folder}",
            )
            return 0
        policies = {agent_name(self.config): self.trainer.agent.policy}
        policies |= build.build_heuristics(self.config.evaluation.heuristics, self.held_out)
        played = compare(
            self.config,
            self.held_out,
            policies,
            self.folder,
            results=self.results(),
            should_stop=should_stop,
            console=console,
        )
        means = {name: each.estimate("utilization").mean for name, each in played.items()}
        self.draw(dict(list(means.items())[1:]))
        return 0
