"""The training loops. Frames are their clock; between two logs they read nothing back."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from agents.algorithms.base import Agent, Collector, Replay, RolloutBuffer
from agents.diagnostics.black_box import BlackBox
from agents.loggers.logging import Logger, Meter, ProgressBar
from agents.training import randomness
from agents.training.capture import CapturedUpdate
from agents.training.distributed import World
from agents.training.states import tensors

EPISODE_METRICS = ("utilization", "compactness", "pyramidality", "items_packed")
"""Metrics of finished episodes that are logged."""


STRIKES = 3
"""Updates in a row that may be left out for not being finite, before training stops."""


class NonFiniteError(ArithmeticError):
    """Updates, or a weight, are NaN or infinite."""


class Trainer:
    """Collects, stores, updates, until the frames or the time are used up.

    Off-policy: every ``update_every`` frames the agent learns from a sample of the replay. An
    update that is not finite is left out on the device and counted; after three in a row training
    stops, when the metrics are next read.

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
        save_every: Frames between two calls of ``save``; ``None``: see ``save_minutes``.
        save_minutes: Minutes between two calls of ``save``; ``None`` here too: only the caller
            saves.
        evaluate_every: Frames between two calls of ``evaluate``; ``None``: never.
        black_box: How many of the environment's last states, and with them the batch of a broken
            update, are kept in :attr:`black_box` to show why training broke; 0: nothing is.
        capture: Updates as one CUDA graph, :class:`agents.training.capture.CapturedUpdate`.
    """

    on_policy = False

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
        save_minutes: float | None = None,
        evaluate_every: float | None = None,
        black_box: int = 16,
        capture: bool = False,
    ) -> None:
        self.agent, self.collector, self.replay = agent, collector, replay
        self.captured = CapturedUpdate(agent) if capture else None
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
        self.save_seconds = _budget("save_minutes", save_minutes, 60.0)
        self.frames = 0
        self.updates = 0
        self.elapsed = 0.0
        self.collected = 0  # frames that entered the replay
        self._scheduled = 0  # frames that the agent's schedules are at
        self.meter = Meter()
        self.last: dict[str, float] = {}
        self._since_update = 0
        self._since = dict.fromkeys(self.every, 0)
        self._logged = self._saved = 0.0
        self.world = World()
        self._worst: Tensor | None = None  # most skipped updates in a row, since the last read
        self.black_box: BlackBox | None = None
        if black_box:
            self.black_box = BlackBox(
                agent, collector, states=black_box, strikes=STRIKES, copies=self.on_policy
            )

    def run(
        self,
        logger: Logger,
        bar: ProgressBar | None = None,
        *,
        should_stop: Callable[[], bool] = lambda: False,
        save: Callable[[], None] = lambda: None,
        evaluate: Callable[[], Mapping[str, float]] = dict,
        save_evaluated: bool = False,
    ) -> bool:
        """Train on; calling it again continues.

        Args:
            logger: Takes a row per log interval.
            bar: Shows it.
            should_stop: Asked after every step of the environment.
            save: Called every ``save_every`` frames.
            evaluate: Called every ``evaluate_every`` frames; its numbers join the row.
            save_evaluated: Call ``save`` after each evaluation, too, with its numbers in
                :attr:`last`.

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
            stopped = self.world.agree(should_stop())
            row: Mapping[str, float] = {}
            if self._due("log"):
                row = evaluate() if self._due("evaluate") and not stopped else {}
                self._log(logger, bar, row)
            if self._save_due() or (row and save_evaluated):
                self.check_finite()
                save()
        if self._since["log"]:
            self._log(logger, bar, {}, ends=False)
        self.check_finite()
        return not stopped

    def step(self) -> None:
        """One decision of every row, and the updates that fall due. No host read."""
        self.agent.set_frames(self.frames)
        self._scheduled = self.frames
        transition = self.collector.step()
        if self.black_box is not None:
            self.black_box.see(transition)
        self.replay.extend(transition)
        self._measure(transition)
        count = transition.batch_size.numel() * self.world.size
        self.frames += count
        self.collected += count
        for name in self._since:
            self._since[name] += count
        self._learn(count)

    def _learn(self, count: int) -> None:
        """The updates that fall due after ``count`` more frames."""
        if self.collected < self.warmup or not len(self.replay):
            return
        self._since_update += count
        for _ in range(self._since_update // self.update_every):
            batch = self.replay.sample(self.agent.batch_size)
            self._update(batch)
            if "td_error" in batch.keys():  # noqa: SIM118
                self.replay.update_priority(batch.get("index"), batch.get("td_error"))
        self._since_update %= self.update_every

    def _update(self, batch: TensorDictBase) -> None:
        """One update, watched."""
        if self.black_box is not None:
            self.black_box.before(batch, self.updates, self._scheduled)
        update = self.agent.update if self.captured is None else self.captured
        found = update(batch)
        if self.black_box is not None:
            self.black_box.after(found)
        self._note(found)

    def _note(self, found: Mapping[str, Tensor]) -> None:
        """Count what an update returned, on the device."""
        self.updates += 1
        found = dict(found)
        streak = found.pop("skipped_in_a_row", None)
        if streak is not None:
            worst = self._worst
            self._worst = streak.clone() if worst is None else torch.maximum(worst, streak)
        failed = found.pop("skipped", None)
        if failed is None:
            self.meter.add_all(found)
        else:
            self.meter.add_all(found, failed == 0, everywhere={"skipped": failed})

    def check_finite(self) -> None:
        """Raise a :class:`NonFiniteError` if what was learned is broken; reads from the device."""
        for values in (self.last, self.meter.peek()):
            self._check_updates(values)
        sound = [weight.detach().isfinite().all() for weight in self.agent.policy.parameters()]
        state = tensors(self.agent.state_dict())  # critics, targets and moments as well
        sound += [~value.isnan().any() for value in state if value.is_floating_point()]
        if sound and not bool(torch.stack(sound).all()):
            raise NonFiniteError(f"weights are NaN or infinite {self._when()}")

    def _check_updates(self, values: Mapping[str, float]) -> None:
        """Of an agent that leaves out broken updates, some may be broken; of another, none."""
        if self._worst is not None and int(self._worst) >= STRIKES:
            raise NonFiniteError(f"{STRIKES} updates in a row were not finite {self._when()}")
        loss = values.get("loss", 0.0)
        if not math.isfinite(loss) and not values.get("skipped"):
            raise NonFiniteError(f"the loss is {loss} {self._when()}")

    def _when(self) -> str:
        return (
            f"after {self.frames} frames and {self.updates} updates; lower agent.lr, or look at "
            f"agent.max_grad_norm and the rewards"
        )

    def state_dict(self, *, replay: bool = True) -> dict[str, Any]:
        """All that training continues from, bit for bit, the global random generators among it.

        Args:
            replay: Whether what the replay holds is part of it. Without it, training continues from
                an empty one, after another ``warmup`` frames.
        """
        counters = {"frames": self.frames, "updates": self.updates, "elapsed": self.elapsed}
        state = {
            "agent": self.agent.state_dict(),
            "counters": counters,
            "waiting": {
                "since_update": self._since_update,
                "since": dict(self._since),
                "logged": self._logged,
                "collected": self.collected,
                "worst": self._worst,
                "meter": self.meter.state_dict(),
            },
            "collector": self.collector.state_dict(),
            "random": randomness.state_dict(),
        }
        return state | ({"replay": self.replay.state_dict()} if replay else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Inverse of :meth:`state_dict`."""
        counters, waiting = state["counters"], state["waiting"]
        self.agent.load_state_dict(state["agent"])
        if self.captured is not None:
            self.captured.forget()
        self.frames, self.updates = counters["frames"], counters["updates"]
        self.elapsed = self._saved = counters["elapsed"]
        self._since_update, self._logged = waiting["since_update"], waiting["logged"]
        self._since = dict(waiting["since"])
        self._worst = waiting["worst"]
        self.meter.load_state_dict(waiting["meter"])
        self.collector.load_state_dict(state["collector"])
        if "replay" in state:
            self.replay.load_state_dict(state["replay"])
            self.collected = waiting["collected"]
        else:
            self.collected = 0
        randomness.load_state_dict(state["random"])
        if self.black_box is not None:
            self.black_box.clear()

    @property
    def logged_frames(self) -> int:
        """Frames at the end of the last whole log interval."""
        return self.frames - self._since["log"]

    def _finished(self) -> bool:
        late = self.budget is not None and self.world.agree(self.elapsed >= self.budget)
        return self.frames >= self.total or late

    def _due(self, what: str) -> bool:
        every = self.every[what]
        return every is not None and self._since[what] >= every

    def _save_due(self) -> bool:
        """Whether it is time to save; if so, the clock begins anew."""
        late = self.save_seconds is not None and self.elapsed - self._saved >= self.save_seconds
        if self._due("save"):
            self._since["save"] = 0
        elif not late:
            return False
        self._saved = self.elapsed
        return True

    def _measure(self, transition: TensorDictBase) -> None:
        """Count finished episodes and the values of the chosen actions, on the device."""
        following = transition.get("next")
        finished = following.get("done")
        metrics = dict(following.get("metrics").items())
        terms = [value for name, value in metrics.items() if name.startswith("reward/")]
        episodes = {"return": sum(terms[1:], start=terms[0])}
        episodes |= {name: metrics[name] for name in EPISODE_METRICS}
        chosen = transition.get("chosen_action_value", None)
        values = {"episodes": finished} | ({} if chosen is None else {"q": chosen})
        self.meter.add_all(episodes, finished, everywhere=values)

    def _log(
        self,
        logger: Logger,
        bar: ProgressBar | None,
        extra: Mapping[str, float],
        *,
        ends: bool = True,
    ) -> None:
        """The one host read of the interval; one that does not end here goes on after a resume."""
        frames = self._since["log"]
        values = self.meter.read() if ends else self.meter.peek()
        values["episodes"] = round(values.get("episodes", 0.0) * frames)
        values["frames_per_second"] = frames / max(1e-9, self.elapsed - self._logged)
        values |= {"updates": self.updates, "seconds": self.elapsed, **extra}
        if extra:
            self._since["evaluate"] = 0
        if ends:
            self._since["log"], self._logged = 0, self.elapsed
        self.last = values
        logger.log(self.frames, values)
        if bar is not None:
            bar.show(self.frames, self.elapsed, values)
        self._check_updates(values)


class OnPolicyTrainer(Trainer):
    """The same for agents that learn from what their present policy did, and then forget it.

    Args:
        agent: What learns: one ``update`` per rollout.
        collector: Where transitions come from.
        replay: Keeps one rollout, ``replay.horizon`` decisions of every row.
        frames: Like all that follow, as of :class:`Trainer`.
        minutes: See there.
        seconds: See there.
        log_every: See there.
        save_every: See there.
        save_minutes: See there.
        evaluate_every: See there.
        black_box: See there.
    """

    on_policy = True

    def __init__(
        self,
        agent: Agent,
        collector: Collector,
        replay: RolloutBuffer,
        *,
        frames: float = 200_000,
        minutes: float | None = None,
        seconds: float | None = None,
        log_every: float = 2048,
        save_every: float | None = None,
        save_minutes: float | None = None,
        evaluate_every: float | None = None,
        black_box: int = 16,
    ) -> None:
        super().__init__(
            agent,
            collector,
            replay,
            frames=frames,
            minutes=minutes,
            seconds=seconds,
            log_every=log_every,
            save_every=save_every,
            save_minutes=save_minutes,
            evaluate_every=evaluate_every,
            black_box=black_box,
        )

    def _learn(self, count: int) -> None:
        """An update when the rollout is complete."""
        if self.replay.full:
            self._update(self.replay.take())


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
