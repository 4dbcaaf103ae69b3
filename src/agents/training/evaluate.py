"""Evaluation on held-out instances: the same ones for every policy, each once."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from rich import box
from rich.table import Column, Table
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from packing_env.core.metrics import NAMES
from packing_env.envs import PackingEnv
from packing_env.plan import Packing, read_state

NORMAL_95 = 1.959963984540054
"""Half-width of the 95 % interval of a standard normal variable."""

COLUMNS = (
    ("utilization", "utilization", 3),
    ("compactness", "compactness", 3),
    ("pyramidality", "pyramidality", 3),
    ("items_packed", "items\npacked", 1),
)
"""Columns of :func:`table`: metric, heading, decimals."""


LINE = box.Box("    \n    \n ── \n    \n    \n    \n    \n    \n")
"""A rule under the headings only: the table has to fit 80 characters."""
plain_table = partial(Table, box=LINE, pad_edge=False, padding=(0, 1, 0, 0))
"""A table in that style."""
number_column = partial(Column, justify="right", no_wrap=True)
"""A column of numbers."""


class StoppedError(RuntimeError):
    """A stop was requested before all instances were played."""


@dataclass(frozen=True)
class Estimate:
    """A mean and the half-width of its 95 % interval (normal approximation)."""

    mean: float
    half_width: float

    @classmethod
    def of(cls, values: Tensor) -> Estimate:
        """Compute it from independent samples ``[n]``; of one sample the half-width is infinite."""
        count = values.numel()
        spread = values.double().std().item() if count > 1 else math.inf
        return cls(values.double().mean().item(), NORMAL_95 * spread / math.sqrt(count))

    def __str__(self) -> str:
        return self.text(3)

    def text(self, decimals: int) -> str:
        """Format as ``mean±half-width``; of a single sample the mean alone."""
        if math.isinf(self.half_width):
            return f"{self.mean:.{decimals}f}"
        return f"{self.mean:.{decimals}f}±{self.half_width:.{decimals}f}"


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of a policy.

    Attributes:
        metrics: By name, ``[n]`` float64 on the host, entry i of instance i; ``return`` among them.
        decision_ms: Milliseconds of the policy per decision, at this number of rows.
        step_ms: The same with the environment's step.
        rows: Number of instances played at a time.
        states: Terminal states of the first instances, on the host, ``[keep]``.
    """

    metrics: Mapping[str, Tensor]
    decision_ms: Estimate
    step_ms: Estimate
    rows: int
    states: TensorDict | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return next(iter(self.metrics.values())).numel()

    def estimate(self, metric: str) -> Estimate:
        """Return mean and interval of a metric."""
        return Estimate.of(self.metrics[metric])

    def packings(self, env: PackingEnv) -> list[Packing]:
        """Return the finished packings of the instances whose states are kept."""
        if self.states is None:
            return []
        return [
            read_state(dict(self.states[i].items()), env.catalogue, env.params)
            for i in range(len(self.states))
        ]

    def to_json(self) -> dict[str, Any]:
        """Return means, half-widths and every instance's values."""
        summary = {name: vars(self.estimate(name)) for name in self.metrics}
        summary |= {"decision_ms": vars(self.decision_ms), "step_ms": vars(self.step_ms)}
        return {
            "rows": self.rows,
            "summary": summary,
            "instances": {name: values.tolist() for name, values in self.metrics.items()},
        }


def paired_difference(
    first: Evaluation, second: Evaluation, metric: str = "utilization"
) -> Estimate:
    """Estimate ``first - second``, paired by instance: both must have played the same ones."""
    a, b = first.metrics[metric], second.metrics[metric]
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} and {len(b)} instances cannot be paired")
    return Estimate.of(a - b)


def check_instances(env: PackingEnv, wanted: int) -> None:
    """Raise a ValueError if the environment has fewer instances than ``wanted``."""
    if not 1 <= wanted <= len(env.instances):
        raise ValueError(
            f"{wanted} instances cannot be evaluated; there are {len(env.instances)} held out "
            f"(env.pool_size, or the sequence file, says how many)"
        )


@torch.no_grad()
def evaluate(
    env: PackingEnv,
    policy: TensorDictModuleBase,
    num_instances: int | None = None,
    *,
    keep: int = 0,
    seed: int = 0,
    should_stop: Callable[[], bool] = lambda: False,
) -> Evaluation:
    """Evaluate on the first ``num_instances`` of the pool, each once, without exploration.

    Row i plays instances i, i + B, i + 2 B, ...; rows that finish early wait for the others. Reads
    from the device after every step.

    Args:
        env: Made with ``draw="sequential"`` and, for held-out instances, ``split="test"``.
        policy: Writes ``action``.
        num_instances: None: one per row.
        keep: Number of terminal states to keep.
        seed: For stochastic policies; the global generator is left as it was.
        should_stop: Called after every step; True stops the evaluation.

    Raises:
        ValueError: The environment draws at random, or has fewer instances.
        StoppedError: ``should_stop`` returned True.
    """
    rows = env.batch_size.numel()
    wanted = rows if num_instances is None else int(num_instances)
    if env.draw != "sequential":
        raise ValueError("evaluation plays each instance once: make the env with draw='sequential'")
    check_instances(env, wanted)
    if hasattr(policy, "bound_to"):  # it keeps tables of the items of its environment
        policy = policy.bound_to(env)
    game = _Game(env, policy, should_stop)
    training = policy.training
    devices = [env.device] if env.device.type == "cuda" else []
    policy.eval()
    try:
        with torch.random.fork_rng(devices), set_exploration_type(ExplorationType.DETERMINISTIC):
            torch.manual_seed(seed)
            env.set_seed(seed, static_seed=True)
            rounds = [game.play(min(rows, wanted - start)) for start in range(0, wanted, rows)]
    finally:
        policy.train(training)
    metrics: TensorDictBase = torch.cat([metrics for metrics, _ in rounds])
    states = torch.cat([states[:keep] for _, states in rounds])[:keep] if keep else None
    values = {name: metrics[name].double() for name in metrics.keys()}  # noqa: SIM118
    return Evaluation(values, game.clock("policy"), game.clock("all"), rows, states)


class _Game:
    """A player of rounds of one instance per row, with a clock."""

    def __init__(
        self, env: PackingEnv, policy: TensorDictModuleBase, should_stop: Callable[[], bool]
    ) -> None:
        self.env, self.policy, self.should_stop = env, policy, should_stop
        self._decisions: list[int] = []
        self._seconds: dict[str, list[float]] = {"policy": [], "all": []}

    def play(self, count: int) -> tuple[TensorDict, TensorDict]:
        """Play until all rows are finished; return metrics and states of the first ``count``."""
        root = self.env.reset()
        if not self._decisions:
            self.policy(root.clone())  # compilation is not timed
        live = root.numel()
        while live:
            start = self._now()
            acted = self.policy(root)
            decided = self._now()
            root = self.env.step_mdp(self.env.step(acted))
            remaining = int((~root.get("done")).sum())
            stepped = self._now()
            self._decisions.append(live)
            self._seconds["policy"].append(decided - start)
            self._seconds["all"].append(stepped - start)
            live = remaining
            if self.should_stop():
                raise StoppedError("the evaluation was stopped")
        state = self.env.get_state().reshape(-1)[:count].cpu()
        return self._metrics(root)[:count], state

    def _metrics(self, root: TensorDictBase) -> TensorDict:
        """Return the metrics ``[B]`` of the finished rows."""
        metrics = root.get("metrics").reshape(-1).cpu()
        found = {name: metrics.get(name).squeeze(-1) for name in NAMES}
        terms = [v.squeeze(-1) for k, v in metrics.items() if k.startswith("reward/")]
        found["return"] = torch.stack(terms).sum(0)
        return TensorDict(found, metrics.batch_size)

    def _now(self) -> float:
        if self.env.device.type == "cuda":
            torch.cuda.synchronize(self.env.device)
        return time.perf_counter()

    def clock(self, what: str) -> Estimate:
        """Estimate milliseconds per decision: a ratio of sums over steps, with its error."""
        seconds = torch.tensor(self._seconds[what], dtype=torch.float64) * 1e3
        decisions = torch.tensor(self._decisions, dtype=torch.float64)
        ratio = seconds.sum() / decisions.sum()
        count = len(seconds)
        if count < 2:
            return Estimate(ratio.item(), math.inf)
        residual = (seconds - ratio * decisions).square().sum() * count / (count - 1)
        return Estimate(ratio.item(), NORMAL_95 * residual.sqrt().item() / decisions.sum().item())


def table(evaluations: Mapping[str, Evaluation], title: str = "") -> Table:
    """Tabulate means and half-widths of their 95 % intervals; 80 characters wide."""
    grid = plain_table(title=title or None, title_justify="left", padding=0)
    grid.add_column("policy", overflow="fold")
    for heading in (*(heading for _, heading, _ in COLUMNS), "ms per\ndecision"):
        width = max(8, *map(len, heading.split("\n")))  # a long name folds, not the numbers
        grid.add_column(heading, justify="right", no_wrap=True, min_width=width)
    for name, evaluation in evaluations.items():
        cells = [evaluation.estimate(metric).text(n) for metric, _, n in COLUMNS]
        milliseconds = evaluation.decision_ms
        grid.add_row(name, *cells, milliseconds.text(2 if milliseconds.mean < 10 else 1))
    return grid
