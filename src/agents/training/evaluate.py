"""Evaluation on held-out instances: every policy plays the same instances, each once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from rich.table import Table
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.estimate import Estimate
from agents.loggers.console import plain_table
from agents.training.process import StoppedError
from packing_env.core.metrics import NAMES
from packing_env.envs import PackingEnv
from packing_env.plan import Packing, read_state

COLUMNS = (
    ("utilization", "utilization", 3),
    ("compactness", "compactness", 3),
    ("pyramidality", "pyramidality", 3),
    ("items_packed", "items\npacked", 1),
)
"""Columns of :func:`table`: metric, heading, decimals."""
ROUND_STRIDE = 1_000_003
"""Difference between the seeds of two consecutive rounds."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The results of a policy.

    Attributes:
        metrics: Metrics by name, including ``return``, ``[n]`` float64 on the host; entry i belongs
            to instance i.
        decision_ms: Milliseconds of the policy per decision, with ``rows`` instances at once.
        step_ms: Milliseconds per decision, including the environment's step.
        rows: Number of instances that are played at once.
        states: Terminal states of the first instances, on the host, ``[keep]``.
    """

    metrics: Mapping[str, Tensor]
    decision_ms: float
    step_ms: float
    rows: int
    states: TensorDict | None = field(default=None, repr=False)

    def __len__(self) -> int:
        return next(iter(self.metrics.values())).numel()

    def estimate(self, metric: str) -> Estimate:
        """Return the mean of a metric and its interval."""
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
        """Return means, half-widths and the values of every instance."""
        summary = {name: vars(self.estimate(name)) for name in self.metrics}
        times = {"decision_ms": self.decision_ms, "step_ms": self.step_ms}
        summary |= {name: {"mean": value} for name, value in times.items()}
        return {
            "rows": self.rows,
            "summary": summary,
            "instances": {name: values.tolist() for name, values in self.metrics.items()},
        }


def paired_difference(
    first: Evaluation, second: Evaluation, metric: str = "utilization"
) -> Estimate:
    """Estimate ``first - second``, paired by instance; both must have played the same instances."""
    a, b = first.metrics[metric], second.metrics[metric]
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} and {len(b)} instances cannot be paired")
    return Estimate.of(a - b)


def check_instances(env: PackingEnv, count: int) -> None:
    """Raise a ValueError if the environment has fewer than ``count`` instances."""
    if not 1 <= count <= len(env.instances):
        raise ValueError(
            f"{count} instances cannot be evaluated; {len(env.instances)} are held out "
            "(env.pool_size, or the sequence file, determines how many)"
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

    Row i plays instances i, i + B, i + 2 B, ..., one in each round. Rows that finish early wait for
    the others. Each round has its own random numbers. Reads from the device after every step.

    Args:
        env: An environment made with ``draw="sequential"`` and, for held-out instances,
            ``split="test"``.
        policy: Writes ``action``.
        num_instances: Number of instances; None means one per row.
        keep: Number of terminal states to keep.
        seed: Seed of stochastic policies; the global generator's state is restored at the end.
        should_stop: Function that is called after every step; True stops the evaluation.

    Raises:
        ValueError: The environment draws at random, or has fewer instances.
        StoppedError: ``should_stop`` returned True.
    """
    # 1. Check the request.
    rows = env.batch_size.numel()
    total = rows if num_instances is None else int(num_instances)
    if env.draw != "sequential":
        raise ValueError("evaluation plays each instance once: make the env with draw='sequential'")
    check_instances(env, total)
    # 2. Prepare the policy: bind its tables to the items of this environment.
    if hasattr(policy, "bound_to"):
        policy = policy.bound_to(env)
    game = _Game(env, policy, should_stop)
    training = policy.training
    devices = [env.device] if env.device.type == "cuda" else []
    policy.eval()
    # 3. Play the rounds, then restore generators and policy.
    try:
        with torch.random.fork_rng(devices), set_exploration_type(ExplorationType.DETERMINISTIC):
            torch.manual_seed(seed)
            env.set_seed(seed, static_seed=True)
            rounds = [
                game.play(min(rows, total - start), number, seed)
                for number, start in enumerate(range(0, total, rows))
            ]
    finally:
        policy.train(training)
    # 4. Join the rounds in the order of the instances.
    metrics: TensorDictBase = torch.cat([metrics for metrics, _ in rounds])
    states = torch.cat([states[:keep] for _, states in rounds])[:keep] if keep else None
    values = {name: metrics[name].double() for name in metrics.keys()}  # noqa: SIM118
    decision_ms, step_ms = (1e3 * seconds / game.decisions for seconds in game.seconds)
    return Evaluation(values, decision_ms, step_ms, rows, states)


class _Game:
    def __init__(
        self, env: PackingEnv, policy: TensorDictModuleBase, should_stop: Callable[[], bool]
    ) -> None:
        self.env, self.policy, self.should_stop = env, policy, should_stop
        self.decisions, self.seconds = 0, [0.0, 0.0]  # policy alone; policy and step

    def play(self, count: int, number: int, seed: int) -> tuple[TensorDict, TensorDict]:
        """Play round ``number``; return metrics and states of the first ``count`` rows."""
        # 1. Start one instance per row. The policy's first call compiles and is not timed.
        root = self.env.reset()
        if not self.decisions:
            self.policy(root.clone())
        # 2. Seed the generators, so that a round does not depend on earlier ones.
        if number:
            torch.manual_seed(seed + number * ROUND_STRIDE)
            if hasattr(self.policy, "redraw"):  # the policy has its own generator
                self.policy.redraw(number)
        # 3. Play until every row is done; reading the count also waits for the device.
        live = root.numel()
        while live:
            start = self._now()
            acted = self.policy(root)
            decided = self._now()
            root = self.env.step_mdp(self.env.step(acted))
            remaining = int((~root.get("done")).sum())
            stepped = self._now()
            self.seconds[0] += decided - start
            self.seconds[1] += stepped - start
            self.decisions += live
            live = remaining
            if self.should_stop():
                raise StoppedError("the evaluation was stopped")
        # 4. Read the results.
        state = self.env.get_state().reshape(-1)[:count].cpu()
        return self._metrics(root)[:count], state

    def _metrics(self, root: TensorDictBase) -> TensorDict:
        metrics = root.get("metrics").reshape(-1).cpu()
        values = {name: metrics.get(name).squeeze(-1) for name in NAMES}
        # The return is the sum of the reward terms of the whole episode.
        terms = [v.squeeze(-1) for k, v in metrics.items() if k.startswith("reward/")]
        values["return"] = torch.stack(terms).sum(0)
        return TensorDict(values, metrics.batch_size)

    def _now(self) -> float:
        if self.env.device.type == "cuda":
            torch.cuda.synchronize(self.env.device)
        return time.perf_counter()


def table(evaluations: Mapping[str, Evaluation], title: str = "") -> Table:
    """Tabulate means and the half-widths of their 95 % intervals in 80 characters."""
    grid = plain_table(title=title or None, padding=0)
    grid.add_column("policy", overflow="fold")
    for heading in (*(heading for _, heading, _ in COLUMNS), "ms per\ndecision"):
        # A long name is wrapped, but numbers are not.
        width = max(8, *map(len, heading.split("\n")))
        grid.add_column(heading, justify="right", no_wrap=True, min_width=width)
    for name, evaluation in evaluations.items():
        cells = [evaluation.estimate(metric).text(n) for metric, _, n in COLUMNS]
        milliseconds = evaluation.decision_ms
        grid.add_row(name, *cells, f"{milliseconds:.{2 if milliseconds < 10 else 1}f}")
    return grid
