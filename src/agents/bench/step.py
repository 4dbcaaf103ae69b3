"""Decisions per second of the environment, over rows, presets, kernels and action modes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch

from agents.bench.base import Job, LeftOut, Row, Session, check_choices, using
from agents.bench.baselines import jumanji_bin_pack
from agents.bench.measure.counting import dispatches
from agents.bench.measure.timing import TooLongError
from agents.bench.reports import plots
from agents.bench.workloads.step_loops import LOOPS
from agents.config import build
from packing_env import PackingEnv
from packing_env.kernels import available_backends
from packing_env.memory import free_memory

ACTIONS = ("first_legal", "random_legal")
BESIDE = ("jumanji",)
_COPIES = 8
"""Estimated memory of a step, as a multiple of the size of what it returns."""


class Step:
    """Speed of a decision in every row: choose, step, reset finished rows; exact masks included.

    The number of rows grows until a measurement would take too long (``longest``) or too much
    memory; skipped cases are listed. Every combination has its own environment and loop.

    Args:
        presets: Options of the group ``env``. A preset chosen by ``env=NAME`` is the only one.
        modes: Action modes; ``None`` means that of the preset.
        kernels: Backends of the hot operations; ``None`` means all that run on the device.
        actions: ``first_legal``, ``random_legal`` (uniform over the legal actions).
        through: ``env`` (``PackingEnv.step_and_maybe_reset``), ``captured`` (the same and the
            choice of actions as one CUDA graph), ``vector_env`` (Gymnasium's, NumPy in and out),
            ``core`` (the compiled engine alone: state, rewards, metrics and masks).
        rows: Batch sizes, ascending. A single row also gets percentiles of its decisions, and of
            ``step_and_maybe_reset`` without the choice of an action (``step_p50_ms``).
        sweep: Keys of the configuration, each followed by its values: ``[[env.grid_step, 1, 2]]``.
            Each value is measured on its own at ``sweep_rows``.
        sweep_rows: Batch size of the sweep.
        beside: Environments of other projects to measure as well: ``jumanji`` (its BinPack).
        plot: PNG file of decisions per second over rows and swept keys; ``None`` draws nothing.
    """

    measures = True
    columns: ClassVar[Mapping[str, str]] = {
        "wall_ms": "ms/step",
        "thread_cpu_ms": "CPU ms/step",
        "decisions_per_second": "decisions/s",
        "decisions_per_cpu_second": "per CPU s",
        "dispatches": "operations",
        "p99_ms": "p99 ms",
        "step_p50_ms": "step p50 ms",
    }

    def __init__(
        self,
        *,
        presets: Sequence[str],
        modes: Sequence[str] | None,
        kernels: Sequence[str] | None,
        actions: Sequence[str],
        through: Sequence[str],
        rows: Sequence[int],
        sweep: Sequence[Sequence[Any]] = (),
        sweep_rows: int = 64,
        beside: Sequence[str] = (),
        plot: str | None = None,
    ) -> None:
        check_choices("bench.actions", actions, ACTIONS, required=True)
        check_choices("bench.through", through, LOOPS, required=True)
        check_choices("bench.beside", beside, BESIDE)
        if not rows or any(not isinstance(count, int) or count < 1 for count in rows):
            raise ValueError(f"bench.rows={list(rows)} must be positive whole numbers")
        self.presets, self.modes, self.kernels = presets, modes, kernels
        self.actions, self.through, self.rows = actions, through, sorted(rows)
        self.swept, self.sweep_rows = {key: values for key, *values in sweep}, sweep_rows
        self.beside, self.plot = beside, None if plot is None else Path(plot)
        self._rates = _Rates()

    def jobs(self, session: Session) -> list[Job]:
        """Return a job per combination, which sweeps the rows; then comparisons and the plot."""
        presets: Sequence[str | None] = [None] if session.chosen("env") else self.presets
        modes: Sequence[str | None] = self.modes or [None]
        device = torch.device(session.config.device).type
        points = [{key: value} for key, values in self.swept.items() for value in values]
        made = []
        for preset in presets:
            for mode in modes:
                for kernel in self.kernels or available_backends(device):
                    for action in self.actions:
                        case = {"preset": preset or session.config.env.task, "mode": mode}
                        case |= {"kernel": kernel, "actions": action}
                        made += [
                            _job(case | own, partial(self._sweep, session, preset, case, own))
                            for own in ({}, *points)
                        ]
        if self.beside:
            made.append(_job(jumanji_bin_pack.CASE, partial(self._compare_jumanji, session)))
        if self.plot is not None:
            made.append(Job(f"plot {self.plot}", {}, self._draw))
        return made

    def _sweep(
        self, session: Session, preset: str | None, case: dict[str, Any], own: dict[str, Any]
    ) -> Iterator[Row | LeftOut]:
        choices = {key.replace(".", "__"): value for key, value in own.items()}
        config = session.variant(env=preset, env__action_mode=case["mode"], **choices)
        with using(case["kernel"]):
            torch.manual_seed(int(config.seed))
            like = build.build_env(config, num_envs=1)
            case = case | own | {"mode": like.params.action_mode}
            for through in self.through:
                for row in self._rows(session, like, case | {"through": through}, own):
                    if isinstance(row, Row):
                        self._rates.rows.append(row)
                    yield row

    def _compare_jumanji(self, session: Session) -> Iterator[Row | LeftOut]:
        """Measure Jumanji's environment and note how ours compare."""
        rates = _Rates()
        rows = [count for count in self.rows if 1 < count <= jumanji_bin_pack.MOST] or [1]
        for row in jumanji_bin_pack.measure(session.clock, rows):
            if isinstance(row, Row):
                rates.rows.append(row)
            yield row
        theirs = rates.best()
        for through in self.through if theirs else ():
            for action in self.actions:
                ours = self._rates.best(through=through, actions=action)
                session.notes.append(
                    f"through {through}, {action}: {ours:,.0f} decisions per CPU second, "
                    f"{ours / theirs:.0f} times those of {jumanji_bin_pack.CASE['preset']}"
                )

    def _draw(self) -> Iterator[Row | LeftOut]:
        assert self.plot is not None
        plots.draw_steps(self._rates.rows, self.swept, self.plot)
        yield from ()

    def _rows(
        self, session: Session, like: PackingEnv, case: dict[str, Any], own: dict[str, Any]
    ) -> Iterator[Row | LeftOut]:
        """Measure ascending batch sizes until one is too large."""
        last: tuple[int, float, int] | None = None  # rows, seconds and bytes of a step
        for rows in [self.sweep_rows] if own else self.rows:
            here = case | {"rows": rows}
            if last is not None:
                growth = rows / last[0]
                free = free_memory(session.clock.device)
                if free is not None and last[2] * growth * _COPIES > free:
                    yield LeftOut(here, f"a step returns {last[2] * growth / 1e9:.2g} GB")
                    return
            try:
                if last is not None:
                    session.clock.check(last[1] * growth)
                row, size = measure(session, like, here)
            except TooLongError as error:
                yield LeftOut(here, str(error))
                return
            last = (rows, row.values["wall_ms"] / 1e3, size)
            yield row


def measure(session: Session, like: PackingEnv, case: dict[str, Any]) -> tuple[Row, int]:
    """Measure one batch size; also return the bytes that a step returns."""
    rows = case["rows"]
    env = PackingEnv(
        like.params,
        like.catalogue,
        like.instances,
        num_envs=rows,
        device=like.device,
        seed=int(session.config.seed),
        autoreset=session.config.env.autoreset,
    )
    play = LOOPS[case["through"]](env, case["actions"])
    timing = session.clock.measure(play.step)
    values = timing.values()
    values["decisions_per_second"] = 1e3 * rows / values["wall_ms"]
    values["decisions_per_cpu_second"] = 1e3 * rows / values["thread_cpu_ms"]
    values["dispatches"] = dispatches(play.step, times=1)
    values["num_actions"] = int(env.mode.num_actions)
    if rows == 1:
        values |= session.clock.latencies(play.step)
        if case["through"] == "env":
            alone = session.clock.latencies(play.act, between=play.choose)
            values |= {f"step_{name}": value for name, value in alone.items()}
    return Row(case, values), play.num_bytes


@dataclass
class _Rates:
    """Results so far, for the picture and for the comparison with other environments."""

    rows: list[Row] = field(default_factory=list)

    def best(self, **case: Any) -> float:
        """Return the most decisions per CPU second among the rows with these entries, or 0."""
        rates = [
            row.values["decisions_per_cpu_second"]
            for row in self.rows
            if all(row.case.get(key) == value for key, value in case.items())
        ]
        return max(rates, default=0.0)


def _job(case: dict[str, Any], work: Callable[[], Iterator[Row | LeftOut]]) -> Job:
    return Job(" ".join(str(value) for value in case.values() if value), case, work)
