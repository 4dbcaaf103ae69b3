"""The subcommand ``train``."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from rich.console import Console

from agents.cli.eval import INTERRUPTED, RESULTS, agent_name, compare, describe, origin
from agents.config import build
from agents.config.checks import ConfigError, close_names
from agents.diagnostics import black_box
from agents.loggers.logging import NullLogger, ProgressBar
from agents.training import checkpoint, distributed, imitation, resume, runs
from agents.training.distributed import World
from agents.training.evaluate import StoppedError
from agents.training.evaluate import evaluate as play_instances
from agents.training.resume import Resumed
from agents.training.trainer import NonFiniteError, Trainer
from packing_env.envs import PackingEnv
from packing_env.registration import ENVIRONMENT

if TYPE_CHECKING:
    from agents.cli.main import Request

_LOGGER = logging.getLogger("agents.cli.train")
HELD_OUT = "held_out/"
"""Before the names of metrics of evaluations."""


def train(config: DictConfig, request: Request) -> int:
    """Train, save, evaluate.

    Raises:
        StoppedError: It was asked to stop; everything so far is saved.
    """
    with distributed.joined(config.device) as world:
        return _train(config, request, world)


def _train(config: DictConfig, request: Request, world: World) -> int:
    """One process's part of it."""
    asked, resumed = config.resume, _resumed(config, request, world)
    if resumed is not None:
        config = resumed.config
    seed_everything(int(config.seed))
    with build.said_plainly():
        env = build.build_env(config, **_shard(config, world))
        agent = build.build_agent(config, env)
        imitated = None if resumed else imitation.from_config(config.warm_start, agent, env)
        replay = build.build_replay(config, env, agent)
        collector = instantiate(config.collector)(env, agent.policy)
        trainer = instantiate(config.trainer)(agent, collector, replay)
        build.build_heuristics(config.evaluation.heuristics, env)  # names that do not exist, now
    trainer.world = world
    seed_everything(int(config.seed) + world.rank)  # the same weights, draws of their own
    if not world.leads:
        return _follow(trainer)
    folder = _folder(config, resumed)
    describe(folder, config, request, resumed)
    console = Console()
    if asked is not None:
        console.print(_origin_of(asked, resumed), highlight=False, soft_wrap=True)
    if resumed is not None:
        trainer.load_state_dict(resumed.found.state)
        resumed.found.state.clear()  # the replay is large, and is in its place now
    console.print(
        f"{config.name}: {env.batch_size.numel()} rows of {env.params.num_items} items on "
        f"{env.device}, {env.mode.num_actions:,} actions (action_mode="
        f"{env.params.action_mode}); results in {folder}",
        highlight=False,
        soft_wrap=True,
    )
    if imitated is not None:
        console.print(imitated, highlight=False, soft_wrap=True)
    with runs.StopSignals() as stop:
        began = None if resumed is None else int(resumed.found.meta["frames"])
        session = _Session(config, folder, env, trainer, stop.requested, began)
        try:
            finished = session.train(console)
        except NonFiniteError as error:
            said = f"packing: {error}; {session.whereabouts()}{session.keep_evidence(error)}"
            console.print(said, style="bold", highlight=False, soft_wrap=True)
            return 1
        finally:
            collector.close()
        session.note(interrupted=not finished)
        if not finished:
            raise StoppedError(f"{INTERRUPTED}; to go on: packing train resume={folder}")
        if caveat := session.caveat():
            console.print(caveat, style="bold", highlight=False, soft_wrap=True)
        return session.report(console)


def _shard(config: DictConfig, world: World) -> dict[str, Any]:
    """What the environment of this process has of its own."""
    if world.size == 1:
        return {}
    rows = config.env.num_envs
    count = rows if isinstance(rows, int) else math.prod(rows)
    return {"row_offset": int(config.env.row_offset) + world.rank * count}


def _follow(trainer: Trainer) -> int:
    """Train in step with rank 0, which does everything else."""
    with runs.StopSignals() as stop:
        trainer.run(NullLogger(Path()), should_stop=stop.requested)
    trainer.collector.close()
    return 0


class _Session:
    """One run of training, and what follows it."""

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
        self._held_out: PackingEnv | None = None
        self._broken: Path | None = None
        self._best = (config.checkpoint.best or "").removeprefix("-")
        self._warned = False

    def train(self, console: Console) -> bool:
        """Whether training came to its end; what was learned is saved in any case."""
        with build.said_plainly():
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
                evaluate=self.numbers,
                save_evaluated=self._best.startswith(HELD_OUT),
            )
        finally:
            bar.close()
            logger.close()
            self.save()

    def save_meanwhile(self, console: Console) -> None:
        """Write a checkpoint; where that fails, as on a full disk, training goes on."""
        try:
            self.save()
        except checkpoint.CheckpointError as error:
            console.print(f"packing: {error}; training goes on", style="bold", soft_wrap=True)

    def save(self) -> None:
        """Write a checkpoint; a broken one under a name that nothing takes for the newest."""
        options = self.config.checkpoint
        try:
            self.trainer.check_finite()
            failed = False
        except NonFiniteError:
            failed = True
        meta = self._meta() | {"metrics": runs.finite(self.trainer.last)}
        self._look_for_best(meta["metrics"])
        state = self.trainer.state_dict(replay=bool(options.replay))
        path = checkpoint.save(self.folder, self.trainer.frames, state, meta, failed=failed)
        if failed:
            self._broken = path
        checkpoint.rotate(self.folder, options.keep, options.best)

    def _look_for_best(self, metrics: Mapping[str, Any]) -> None:
        """Warn once where the metric of the best checkpoint is none."""
        evaluated = any(key.startswith(HELD_OUT) for key in metrics)
        there = bool(metrics) and (evaluated or not self._best.startswith(HELD_OUT))
        if self._best and there and self._best not in metrics and not self._warned:
            self._warned = True
            near = close_names(self._best, list(metrics))
            _LOGGER.warning("checkpoint.best=%s is no metric of the log%s", self._best, near)

    def _meta(self) -> dict[str, Any]:
        """What is written beside tensors, so that they can be used again."""
        return {
            "agent": self.config.agent["_target_"],
            "task": self.config.env.task,
            "config": OmegaConf.to_container(self.config, resolve=False),
            "environment": ENVIRONMENT,
            "versions": runs.versions(),
        }

    def keep_evidence(self, error: NonFiniteError) -> str:
        """Write the black box of a run that broke; how to look into it, in words."""
        if self.trainer.black_box is None:
            return ""
        meta = self._meta() | {"error": str(error), "frames": self.trainer.frames}
        try:
            place = black_box.save(self.folder, self.trainer.black_box.contents(), meta)
        except checkpoint.CheckpointError as failure:
            return f"; {failure}"
        return f"; to find what broke: packing inspect {place}"

    def whereabouts(self) -> str:
        """Where the broken state is, and what of the run can be used."""
        try:
            sound = f"the newest sound checkpoint is {checkpoint.find(self.folder)}"
        except checkpoint.CheckpointError:
            sound = "there is no sound checkpoint"
        return f"the broken state is kept in {self._broken}, {sound}"

    def held_out(self) -> PackingEnv:
        """The environment of evaluations, made when it is first needed."""
        if self._held_out is None:
            self._held_out = build.build_held_out(self.config, self.env)
        return self._held_out

    def numbers(self) -> dict[str, float]:
        """Means on held-out instances, for the log."""
        count = max(1, int(self.config.evaluation.instances))
        try:
            found = play_instances(
                self.held_out(),
                self.trainer.agent.policy,
                count,
                should_stop=self.should_stop,
            )
        except StoppedError:
            return {}
        return {f"{HELD_OUT}{name}": found.estimate(name).mean for name in found.metrics}

    def caveat(self) -> str | None:
        """What the numbers do not say by themselves."""
        trainer = self.trainer
        if trainer.frames == self.resumed_at:
            return (
                f"there was nothing left to do: of trainer.frames={trainer.total:,} "
                f"{trainer.frames:,} are done, in {trainer.elapsed:.1f} s since the run began "
                f"(trainer.seconds and trainer.minutes count from there); raise what is reached"
            )
        if not trainer.updates:
            return (
                f"nothing was learned: no update was made in {trainer.frames:,} frames "
                f"(trainer.warmup, replay.horizon and agent.n_steps say when the first is due)"
            )
        return None

    def results(self) -> dict[str, Any]:
        """What is known when training ends."""
        trainer = self.trainer
        counters = {
            "frames": trainer.frames,
            "updates": trainer.updates,
            "elapsed": trainer.elapsed,
        }
        return {"training": {**counters, "last": self.trainer.last}, **origin(self.config)}

    def note(self, *, interrupted: bool) -> None:
        """Write ``results.json`` as far as it is known."""
        said = {"interrupted": True} if interrupted else {}
        runs.write_json(self.folder / RESULTS, self.results() | said)

    def report(self, console: Console) -> int:
        """Evaluate as ``config.evaluation`` says; complete ``results.json``."""
        if int(self.config.evaluation.instances) < 1:
            console.print(
                f"checkpoint, metrics and results in {self.folder}; to compare it with the "
                f"heuristics: packing eval checkpoint={self.folder}",
                soft_wrap=True,
                highlight=False,
            )
            return 0
        env = self.held_out()
        own = {agent_name(self.config): self.trainer.agent.policy}
        return compare(
            self.config,
            env,
            own | build.build_heuristics(self.config.evaluation.heuristics, env),
            self.folder,
            results=self.results(),
            should_stop=self.should_stop,
            console=console,
        )


def seed_everything(seed: int) -> None:
    """The global generators; the environment has its own streams."""
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    torch.manual_seed(seed)


def _resumed(config: DictConfig, request: Request, world: World) -> Resumed | None:
    """The checkpoint to go on from, if one is asked for."""
    if config.resume is not None and world.size > 1:
        raise ConfigError(
            f"resume={config.resume}: a checkpoint holds the environment and the replay of one "
            f"process, and {world.size} are running; start one"
        )
    return resume.from_config(config, request.overrides, request.folders)


def _folder(config: DictConfig, resumed: Resumed | None) -> Path:
    """Where results go: a new folder, or that of the run that goes on."""
    if resumed is None or config.run_dir not in (None, str(resumed.folder)):
        return runs.new_folder(config.run_dir, str(config.name))
    return resumed.folder


def _origin_of(asked: str, resumed: Resumed | None) -> str:
    """Where training begins."""
    if resumed is None:
        return f"resume={asked}: no checkpoint was found, training begins anew"
    held = "" if "replay" in resumed.found.state else "; it holds no replay, which is filled anew"
    frames = resumed.found.meta["frames"]
    return f"going on from {resumed.found.path}, after {frames:,} frames{held}"
