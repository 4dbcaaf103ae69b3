"""The off-policy training loop. Frames are its clock; between two logs it reads nothing back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase

from agents.base import Agent, Collector, Replay
from agents.logging import Logger, Meter, ProgressBar

EPISODE_METRICS = ("utilization", "compactness", "pyramidality", "items_packed")
"""Metrics of finished episodes that are logged."""


class NonFiniteError(ArithmeticError):
    """The loss or a weight is NaN or infinite."""


class Trainer:
    """Collects, stores, updates, until the frames or the time are used up.

    Args:
        agent: What learns.
        collector: Where transitions come from.
        replay: Where they are kept.
        frames: Frames to train for: decisions, summed over the environment's rows.
        minutes: Wall-clock budget, besides ``frames``; ``None``: none.
        seconds: The same in seconds.
        warmup: Frames before the first update.
        update_every: Frames per update.
        log_every: Frames between two reads of the metrics.
        save_every: Frames between two calls of ``save``; ``None``: only the caller saves.
        evaluate_every: Frames between two calls of ``evaluate``; ``None``: never.
    """

    def __init__(
        self,
        agent: Agent,
        collector: Collector,
        replay: Replay,
        *,
        frames: float = 200_000,
        minutes: float | None = None,
        seconds: float | None = None,
        warmup: float = 2048,
        update_every: float = 64,
        log_every: float = 2048,
        save_every: float | None = None,
        evaluate_every: float | None = None,
    ) -> None:
        self.agent, self.collector, self.replay = agent, collector, replay
        self.total = _count("frames", frames)
        budgets = [_budget("minutes", minutes, 60.0), _budget("seconds", seconds, 1.0)]
        self.budget = min((budget for budget in budgets if budget is not None), default=None)
        self.warmup = int(warmup)
        self.update_every = _count("update_every", update_every)
        self.every = {
            "log": _count("log_every", log_every),
            "save": _count("save_every", save_every),
            "evaluate": _count("evaluate_every", evaluate_every),
        }
        self.frames = 0
        self.updates = 0
        self.elapsed = 0.0
        self.meter = Meter()
        self.last: dict[str, float] = {}
        self._since_update = 0
        self._since = dict.fromkeys(self.every, 0)
        self._logged = 0.0

    def run(
        self,
        logger: Logger,
        bar: ProgressBar | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        save: Callable[[], None] = lambda: None,
        evaluate: Callable[[], Mapping[str, float]] = dict,
    ) -> bool:
        """Train on; calling it again continues.

        Args:
            logger: Takes a row per log interval.
            bar: Shows it.
            should_stop: Asked after every step of the environment.
            save: Called every ``save_every`` frames.
            evaluate: Called every ``evaluate_every`` frames; its numbers join the row.

        Returns:
            Whether it came to its end (otherwise ``should_stop`` said so).

        Raises:
            NonFiniteError: The loss or a weight is no number any more; found when metrics are read,
                before anything is saved, and at the end.
        """
        start = time.perf_counter() - self.elapsed
        stopped = False
        while not (self._finished() or stopped):
            self.step()
            self.elapsed = time.perf_counter() - start
            if bar is not None:
                bar.advance(self.frames, self.elapsed)
            stopped = should_stop()
            if self._due("log"):
                row = evaluate() if self._due("evaluate") and not stopped else {}
                self._log(logger, bar, row)
            if self._due("save"):
                self._since["save"] = 0
                self.check_finite()
                save()
        if self._since["log"]:
            self._log(logger, bar, {})
        self.check_finite()
        return not stopped

    def step(self) -> None:
        """One decision of every row, and the updates that fall due. No host read."""
        self.agent.set_frames(self.frames)
        transition = self.collector.step()
        self.replay.extend(transition)
        self._measure(transition)
        count = transition.batch_size.numel()
        self.frames += count
        for name in self._since:
            self._since[name] += count
        if self.frames < self.warmup or not len(self.replay):
            return
        self._since_update += count
        for _ in range(self._since_update // self.update_every):
            for name, value in self.agent.update(self.replay.sample(self.agent.batch_size)).items():
                self.meter.add(name, value)
            self.updates += 1
        self._since_update %= self.update_every

    def check_finite(self) -> None:
        """Raise a :class:`NonFiniteError` if what was learned is broken; reads from the device."""
        for values in (self.last, self.meter.peek()):
            self._check_loss(values.get("loss", 0.0))
        weights = [weight.detach().isfinite().all() for weight in self.agent.policy.parameters()]
        if weights and not bool(torch.stack(weights).all()):
            raise NonFiniteError(f"weights are NaN or infinite {self._when()}")

    def _check_loss(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise NonFiniteError(f"the loss is {loss} {self._when()}")

    def _when(self) -> str:
        return (
            f"after {self.frames} frames and {self.updates} updates; lower agent.lr, or look at "
            f"agent.max_grad_norm and the rewards"
        )

    def state_dict(self) -> dict[str, Any]:
        """Where training stands: the agent and the counters."""
        counters = {"frames": self.frames, "updates": self.updates, "elapsed": self.elapsed}
        waiting = {"since_update": self._since_update, "since": dict(self._since)}
        return {"agent": self.agent.state_dict(), "counters": counters, "waiting": waiting}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        self.agent.load_state_dict(state["agent"])
        self.frames = state["counters"]["frames"]
        self.updates = state["counters"]["updates"]
        self.elapsed = self._logged = state["counters"]["elapsed"]
        self._since_update = state["waiting"]["since_update"]
        self._since = dict(state["waiting"]["since"])

    def _finished(self) -> bool:
        late = self.budget is not None and self.elapsed >= self.budget
        return self.frames >= self.total or late

    def _due(self, what: str) -> bool:
        every = self.every[what]
        return every is not None and self._since[what] >= every

    def _measure(self, transition: TensorDictBase) -> None:
        """Count finished episodes and the values of the chosen actions, on the device."""
        following = transition.get("next")
        finished = following.get("done")
        metrics = following.get("metrics")
        terms = [value for name, value in metrics.items() if name.startswith("reward/")]
        self.meter.add("return", sum(terms[1:], start=terms[0]), finished)
        for name in EPISODE_METRICS:
            self.meter.add(name, metrics.get(name), finished)
        self.meter.add("episodes", finished)
        chosen = transition.get("chosen_action_value", None)
        if chosen is not None:
            self.meter.add("q", chosen)

    def _log(self, logger: Logger, bar: ProgressBar | None, extra: Mapping[str, float]) -> None:
        """The one host read of the interval."""
        frames = self._since["log"]
        values = self.meter.read()
        values["episodes"] = round(values.get("episodes", 0.0) * frames)
        values["frames_per_second"] = frames / max(1e-9, self.elapsed - self._logged)
        values |= {"updates": self.updates, "seconds": self.elapsed, **extra}
        self._since["log"] = 0
        if extra:
            self._since["evaluate"] = 0
        self._logged = self.elapsed
        self.last = values
        logger.log(self.frames, values)
        if bar is not None:
            bar.show(self.frames, self.elapsed, values)
        self._check_loss(values.get("loss", 0.0))


def _count(name: str, value: float | None) -> int | None:
    """A positive number of frames; ``None`` stays."""
    if value is None:
        return None
    if not value >= 1:
        raise ValueError(f"trainer.{name}={value} must be at least 1")
    return int(value)


def _budget(name: str, value: float | None, unit: float) -> float | None:
    """A positive time in seconds; ``None`` stays."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(
            f"trainer.{name}={value!r} must be a positive number, or null for no limit"
        )
    return value * unit
