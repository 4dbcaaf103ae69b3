"""The training loops. Intervals count frames; between two logs nothing is copied to the host."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from agents.algorithms.base import Agent
from agents.loggers.logging import Logger
from agents.loggers.meter import Meter
from agents.loggers.progress import ProgressBar
from agents.nested import named_tensors
from agents.options import option_groups
from agents.process_group import any_of, processes
from agents.replay import DeviceReplay, Rollout
from agents.training import process
from agents.training.captured_update import captured_update
from agents.training.recent import RecentBatches
from agents.training.rollout import DeviceCollector
from agents.training.schedule import Frames, Schedule
from packing_env.kernels import clock
from packing_env.values import NonNegative, ParameterError, read

EPISODE_METRICS = ("utilization", "compactness", "pyramidality", "items_packed")
"""Metrics of finished episodes that are logged."""
STRIKES = 3
"""Number of non-finite updates in a row that stop training."""


class NonFiniteError(ArithmeticError):
    """Updates or weights are NaN or infinite."""


class Trainer:
    """Off-policy loop: collect, store and update until the frames or the time are used up.

    Every ``update_every`` frames the agent learns from a sample of the replay. A non-finite update
    is skipped on the device and counted; three in a row stop training when the metrics are next
    read.

    Args:
        agent: The learner.
        collector: The source of transitions.
        replay: Stores them.
        warmup: Number of frames before the first update.
        update_every: Frames per update.
        schedule: Length and intervals; each field is also a keyword argument.
        capture: Whether to run each update as one CUDA graph
            (:class:`agents.training.captured_update.CapturedUpdate`); ``auto`` does so on CUDA.
    """

    on_policy = False

    @option_groups
    def __init__(
        self,
        agent: Agent,
        collector: DeviceCollector,
        replay: DeviceReplay | Rollout,
        *,
        warmup: NonNegative = 2048,
        update_every: Frames = 64,
        capture: bool | str = "auto",
        schedule: Schedule = Schedule(),
    ) -> None:
        # 1. The parts and their options.
        self.schedule, self.every = schedule, schedule.every
        self.total, self.budget = int(schedule.frames), schedule.budget
        self.warmup = int(read("trainer.warmup", warmup, NonNegative))
        self.update_every = int(read("trainer.update_every", update_every, Frames))
        self.agent, self.collector = agent, collector
        self.replay: Any = replay  # a DeviceReplay; in an on-policy loop a Rollout
        self.captured = captured_update(agent, capture)
        # 2. Counters. Frames are counted over all processes.
        self.frames = 0
        self.updates = 0
        self.elapsed = 0.0
        self.collected = 0  # frames that entered the replay
        self._pool = 0  # number of the current pool of instances
        if schedule.redraw_every is not None:
            collector.redraw(0)  # raises now if there is no other pool
        # 3. Metrics, and progress towards the next update, log or save.
        self.meter = Meter()
        self.last: dict[str, float] = {}
        self._since_update = 0
        self._since = dict.fromkeys(self.every, 0)
        self._logged = self._saved = 0.0
        self._worst: Tensor | None = None  # longest series of skipped updates since the last read
        # A rollout's memory is overwritten by the next one; a replay's batch is a copy.
        self.recent = RecentBatches(overwritten=self.on_policy)

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
        """Train until the schedule ends; calling it again continues.

        Args:
            logger: Logger that receives a row per log interval.
            bar: Displays the progress.
            should_stop: Function that is called after every step or, if processes learn together,
                at every log interval.
            save: Function that is called every ``save_every`` frames or ``save_minutes`` minutes.
            evaluate: Function that is called every ``evaluate_every`` frames; its numbers are added
                to the log row.
            save_evaluated: Whether to call ``save`` after each evaluation too, with the numbers of
                the evaluation in :attr:`last`.

        Returns:
            True if the schedule ended; False if ``should_stop`` returned True.

        Raises:
            NonFiniteError: The loss or a weight is NaN or infinite. This is checked when metrics
                are read, before anything is saved, and at the end.
        """
        # The clock continues from earlier calls and from a resumed run.
        start = clock() - self.elapsed
        stopped, timed_out, _ = self._agreed(False)
        while not (self.frames >= self.total or timed_out or stopped):
            # 1. A decision in every row, and the updates that are due.
            self.step()
            self.elapsed = clock() - start
            if bar is not None:
                bar.advance(self.frames, self.elapsed)
            # 2. The clock and signals; processes that learn together must decide alike.
            save_due = False
            if processes() == 1 or self._due("log"):
                stopped, timed_out, save_due = self._agreed(should_stop())
            # 3. The only host read of an interval.
            row: Mapping[str, float] = {}
            if self._due("log"):
                row = evaluate() if self._due("evaluate") and not stopped else {}
                self._log(logger, bar, row, ends=True)
            # 4. Save nothing that contains NaN or Inf.
            if self._save_due(save_due) or (row and save_evaluated):
                self.check_finite()
                save()
        # 5. Log the last, incomplete interval; a resumed run continues it.
        if self._since["log"]:
            self._log(logger, bar, {}, ends=False)
        self.check_finite()
        return not stopped

    def step(self) -> None:
        """Take one decision in every row and make the updates that are due, without a host read."""
        # 1. Schedules and instances follow the frames.
        self.agent.set_frames(self.frames)
        if (pool := self.schedule.pool(self.frames)) != self._pool:
            self.collector.redraw(pool)
            self._pool = pool
        # 2. Collect, store and measure.
        transition = self.collector.step()
        self.replay.extend(transition)
        self._measure(transition)
        # 3. Count, and learn.
        count = transition.batch_size.numel() * processes()
        self.frames += count
        self.collected += count
        for name in self._since:
            self._since[name] += count
        self._learn(count)

    def _learn(self, count: int) -> None:
        # The replay of a resumed run may start empty, so ``collected`` decides instead of
        # ``frames``.
        if self.collected < self.warmup or not len(self.replay):
            return
        # Remaining frames count towards the next update.
        self._since_update += count
        for _ in range(self._since_update // self.update_every):
            batch = self.replay.sample(self.agent.batch_size)
            self._update(batch)
            # Agents with TD errors store them in the batch, for prioritized replay.
            if "td_error" in batch.keys():  # noqa: SIM118
                self.replay.update_priority(batch.get("index"), batch.get("td_error"))
        self._since_update %= self.update_every

    def _update(self, batch: TensorDictBase) -> None:
        # Record the batch first, because an update may change it.
        self.recent.before(batch)
        update = self.agent.update if self.captured is None else self.captured
        metrics = update(batch)
        values = metrics if isinstance(metrics, Mapping) else {"no mapping": metrics}
        if "loss" not in values or not all(isinstance(v, Tensor) for v in values.values()):
            kinds = {name: type(value).__name__ for name, value in values.items()}
            raise ParameterError(
                f"{type(self.agent).__name__}.update must return a dictionary of tensors, one of "
                f"which is 'loss'; it returned {kinds}"
            )
        self.recent.after(metrics)
        self._note(metrics)

    def _note(self, metrics: Mapping[str, Tensor]) -> None:
        self.updates += 1
        metrics = dict(metrics)
        # Keep the longest series of skipped updates since the last read.
        streak = metrics.pop("skipped_in_a_row", None)
        if streak is not None:
            worst = self._worst
            self._worst = streak.clone() if worst is None else torch.maximum(worst, streak)
        # A skipped update counts, but its loss is left out of the means.
        failed = metrics.pop("skipped", None)
        if failed is None:
            self.meter.add_all(metrics)
        else:
            self.meter.add_all(metrics, failed == 0, everywhere={"skipped": failed})

    def check_finite(self) -> None:
        """Raise a NonFiniteError unless the agent and its updates are finite; reads the device."""
        for values in (self.last, self.meter.peek()):
            self._check_updates(values)
        # Check all tensors on the device, and read the results together.
        sound = [weight.detach().isfinite().all() for weight in self.agent.policy.parameters()]
        state = named_tensors(self.agent.state_dict())  # including critics, targets and moments
        sound += [~v.isnan().any() for v in state.values() if v.is_floating_point()]
        if sound and not bool(torch.stack(sound).all()):
            raise NonFiniteError(f"weights are NaN or infinite {self._when()}")

    def _check_updates(self, values: Mapping[str, float]) -> None:
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
        """Return everything that is needed to continue, including the global random generators.

        Without ``replay``, training continues with an empty replay and another ``warmup`` frames.
        """
        counters = {"frames": self.frames, "updates": self.updates, "elapsed": self.elapsed}
        state = {
            # State that all processes share.
            "agent": self.agent.state_dict(),
            "counters": counters,
            # Progress towards the next update, log or save.
            "waiting": {
                "since_update": self._since_update,
                "since": dict(self._since),
                "logged": self._logged,
                "collected": self.collected,
                "worst": self._worst,
                "meter": self.meter.state_dict(),
            },
            # State of each process.
            "collector": self.collector.state_dict(),
            "random": process.random_state(),
        }
        return state | ({"replay": self.replay.state_dict()} if replay else {})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue bit for bit from what :meth:`state_dict` returned.

        Parts of a single process (``collector``, ``random``, ``meter``, ``replay``) may be missing.
        Such parts keep their initial state, and the replay is filled for another ``warmup`` frames.
        """
        # 1. The agent. Graphs read the memory of the old weights, so they are recorded again.
        counters, waiting = state["counters"], state["waiting"]
        self.agent.load_state_dict(state["agent"])
        if self.captured is not None:
            self.captured.forget()
        # 2. Counters, and progress towards the next update, log or save.
        self.frames, self.updates = counters["frames"], counters["updates"]
        self.elapsed = self._saved = counters["elapsed"]
        self._since_update, self._logged = waiting["since_update"], waiting["logged"]
        self._since = dict(waiting["since"])
        self._worst = waiting["worst"]
        if "meter" in waiting:
            self.meter.load_state_dict(waiting["meter"])
        # 3. Episodes, replay and random streams.
        if "collector" in state:
            self.collector.load_state_dict(state["collector"])
        if "replay" in state:
            self.replay.load_state_dict(state["replay"])
            self.collected = waiting["collected"]
        else:
            self.collected = 0
        if "random" in state:
            process.load_random_state(state["random"])

    @property
    def logged_frames(self) -> int:
        """Frames at the end of the last complete log interval."""
        return self.frames - self._since["log"]

    def _agreed(self, stop: bool) -> tuple[bool, ...]:
        """Return ``(stop, timed_out, save_due)``, OR-ed over all processes."""
        minutes = self.schedule.save_minutes
        # Clocks differ between processes, so their decisions are shared as well.
        save = minutes is not None and self.elapsed - self._saved >= 60.0 * minutes
        return any_of(stop, self.budget is not None and self.elapsed >= self.budget, save)

    def _due(self, what: str) -> bool:
        every = self.every[what]
        return every is not None and self._since[what] >= every

    def _save_due(self, late: bool) -> bool:
        """Return whether a save is due, by frames or by time; if so, restart the timer."""
        if self._due("save"):
            self._since["save"] = 0
        elif not late:
            return False
        self._saved = self.elapsed
        return True

    def _measure(self, transition: TensorDictBase) -> None:
        """Add finished episodes and the values of the chosen actions, on the device."""
        following = transition.get("next")
        finished = following.get("done")
        metrics = dict(following.get("metrics").items())
        # The return of an episode is the sum of its reward terms.
        terms = [value for name, value in metrics.items() if name.startswith("reward/")]
        episodes = {"return": sum(terms[1:], start=terms[0])}
        episodes |= {name: metrics[name] for name in EPISODE_METRICS}
        # Metrics of episodes count where an episode ends; action values count in every row.
        chosen = transition.get("chosen_action_value", None)
        values = {"episodes": finished} | ({} if chosen is None else {"q": chosen})
        self.meter.add_all(episodes, finished, everywhere=values)

    def _log(
        self, logger: Logger, bar: ProgressBar | None, extra: Mapping[str, float], *, ends: bool
    ) -> None:
        """Read and log the metrics: the only host read of an interval.

        With ``ends=False`` the interval is incomplete, and a resumed run continues it.
        """
        frames = self._since["log"]
        # 1. Read the means, and convert shares of frames to counts and rates.
        values = self.meter.read() if ends else self.meter.peek()
        values["episodes"] = round(values.get("episodes", 0.0) * frames)
        values["frames_per_second"] = frames / max(1e-9, self.elapsed - self._logged)
        values |= {"updates": self.updates, "seconds": self.elapsed, **extra}
        # 2. Start the next intervals.
        if extra:
            self._since["evaluate"] = 0
        if ends:
            self._since["log"], self._logged = 0, self.elapsed
        # 3. Pass the numbers on, and stop if they show that learning failed.
        self.last = values
        logger.log(self.frames, values)
        if bar is not None:
            bar.show(self.frames, self.elapsed, values)
        self._check_updates(values)


class OnPolicyTrainer(Trainer):
    """On-policy loop: one update per rollout of the current policy; the rollout is then discarded.

    ``replay`` stores one rollout; the other arguments are those of :class:`Trainer`.
    """

    on_policy = True

    @option_groups
    def __init__(
        self,
        agent: Agent,
        collector: DeviceCollector,
        replay: Rollout,
        *,
        capture: bool | str = "auto",
        schedule: Schedule = Schedule(),
    ) -> None:
        super().__init__(agent, collector, replay, capture=capture, schedule=schedule)

    def _learn(self, count: int) -> None:
        if self.replay.full:
            self._update(self.replay.take())
