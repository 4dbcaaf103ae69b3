"""Decisions per second of the environment, over rows, presets, kernels and action modes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, ClassVar

import torch

from agents.bench.base import Benchmark, Job, LeftOut, Row, Rows, Session, check_choices, using
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
_COPIES = 8
"""Estimated memory of a step, as a multiple of the size of what it returns."""


@dataclass(kw_only=True)
class Step(Benchmark):
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

    columns: ClassVar[Mapping[str, str]] = {
        "wall_ms": "ms/step",
        "thread_cpu_ms": "CPU ms/step",
        "decisions_per_second": "decisions/s",
        "decisions_per_cpu_second": "per CPU s",
        "dispatches": "operations",
        "p99_ms": "p99 ms",
        "step_p50_ms": "step p50 ms",
    }
    presets: Sequence[str]
    modes: Sequence[str | None] | None
    kernels: Sequence[str] | None
    actions: Sequence[str]
    through: Sequence[str]
    rows: Sequence[int]
    sweep: Sequence[Sequence[Any]] = ()
    sweep_rows: int = 64
    beside: Sequence[str] = ()
    plot: str | None = None

    def __post_init__(self) -> None:
        check_choices("bench.actions", self.actions, ACTIONS, required=True)
        check_choices("bench.through", self.through, LOOPS, required=True)
        check_choices("bench.beside", self.beside, ["jumanji"])
        if not self.rows or any(not isinstance(rows, int) or rows < 1 for rows in self.rows):
            raise ValueError(f"bench.rows={list(self.rows)} must be positive whole numbers")
        self.rows = sorted(self.rows)
        self._swept = {key: values for key, *values in self.sweep}
        self._measured: list[Row] = []

    def jobs(self, session: Session) -> list[Job]:
        """Return a job per combination, which sweeps the rows; then comparisons and the plot."""
        presets: Sequence[str | None] = [None] if session.chosen("env") else self.presets
        kernels = self.kernels or available_backends(torch.device(session.config.device).type)
        points = [{key: value} for key, values in self._swept.items() for value in values]
        made = []
        for preset, mode, kernel, action in product(
            presets, self.modes or [None], kernels, self.actions
        ):
            case = {"preset": preset or session.config.env.task, "mode": mode}
            case |= {"kernel": kernel, "actions": action}
            made += [
                Job(case | own, partial(self._sweep, session, preset, case, own))
                for own in ({}, *points)
            ]
        if self.beside:
            made.append(Job(jumanji_bin_pack.CASE, partial(self._compare_jumanji, session)))
        if self.plot is not None:
            made.append(Job({}, partial(self._draw, Path(self.plot)), f"plot {self.plot}"))
        return made

    def _sweep(
        self, session: Session, preset: str | None, case: dict[str, Any], own: dict[str, Any]
    ) -> Rows:
        choices = {key.replace(".", "__"): value for key, value in own.items()}
        config = session.variant(env=preset, env__action_mode=case["mode"], **choices)
        with using(case["kernel"]):
            torch.manual_seed(int(config.seed))
            like = build.build_env(config, num_envs=1)
            case = case | own | {"mode": like.params.action_mode}
            for through in self.through:
                yield from self._rows(session, like, case | {"through": through}, own)

    def _compare_jumanji(self, session: Session) -> Rows:
        """Measure Jumanji's environment and note how ours compare."""
        rows = [count for count in self.rows if 1 < count <= jumanji_bin_pack.MOST] or [1]
        theirs = 0.0
        for row in jumanji_bin_pack.measure(session.clock, rows):
            if isinstance(row, Row):
                theirs = max(theirs, row.values["decisions_per_cpu_second"])
            yield row
        for through, action in product(self.through if theirs else (), self.actions):
            case = {"through": through, "actions": action}.items()
            found = [row.values for row in self._measured if case <= row.case.items()]
            ours = max((values["decisions_per_cpu_second"] for values in found), default=0.0)
            session.notes.append(
                f"through {through}, {action}: {ours:,.0f} decisions per CPU second, "
                f"{ours / theirs:.0f} times those of {jumanji_bin_pack.CASE['preset']}"
            )

    def _draw(self, path: Path) -> tuple[()]:
        plots.draw_steps(self._measured, self._swept, path)
        return ()

    def _rows(
        self, session: Session, like: PackingEnv, case: dict[str, Any], own: dict[str, Any]
    ) -> Rows:
        """Measure ascending batch sizes until one is too large."""
        last, seconds, size = 1, 0.0, 0  # rows, seconds and bytes of the step before
        for rows in [self.sweep_rows] if own else self.rows:
            here = case | {"rows": rows}
            growth, free = rows / last, free_memory(session.clock.device)
            if free is not None and size * growth * _COPIES > free:
                yield LeftOut(here, f"a step returns {size * growth / 1e9:.2g} GB")
                return
            try:
                session.clock.check(seconds * growth)
                row, size = measure(session, like, here)
            except TooLongError as error:
                yield LeftOut(here, str(error))
                return
            last, seconds = rows, row.values["wall_ms"] / 1e3
            self._measured.append(row)
            yield row


@torch.no_grad()
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
