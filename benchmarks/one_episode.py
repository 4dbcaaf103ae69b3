"""Time of each part of one short episode, with the protocol of `experiment=seed_benchmark`.

    python benchmarks/one_episode.py [--repeats 5] [--learn-repeats 1] [--out ...] [KEY=VALUE ...]

The manager chooses an item, the worker its place, the environment takes the step, and the replay
stores the transition. In the first case nothing is learned. In the second case, the worker and the
manager then make one update each, from a batch of the replay, drawn with replacement. KEY=VALUE
changes the experiment, as for `packing train`.

`elapsed_seconds` includes everything except imports. It is reported for the first run, which may
have to build catalogues and compile kernels. It is also reported as the median of the repeats,
which build the task and the agent again. `steps_per_second` includes the decisions and the update,
but not the building.
"""

from __future__ import annotations

import argparse
import statistics
import time
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from omegaconf import DictConfig
from provenance import provenance, write_json

from agents.algorithms.hierarchical import Hierarchical
from agents.bench.measure import percentiles
from agents.bench.train import Stopwatch
from agents.config import build
from agents.config.compose import compose
from agents.training.rollout import DeviceCollector

METRICS = ("utilization", "compactness", "pyramidality", "items_packed", "illegal_actions")
PARTS = ("environment", "manager", "maps", "worker", "replay")
"""Parts of a decision."""
UPDATES = ("update", "worker_update", "manager_update")
"""Parts of learning; the first includes the others."""


def timed(watch: Stopwatch, part: str, owner: Any, name: str) -> None:
    """Add the time of a method to a part."""
    setattr(owner, name, partial(watch.run, part, getattr(owner, name)))


def times(watch: Stopwatch, parts: tuple[str, ...]) -> dict[str, float]:
    """Return wall-clock and CPU seconds of some parts."""
    clocks = {"seconds": watch.seconds, "cpu_seconds": watch.thread_seconds}
    return {f"{part}_{unit}": spent[part] for unit, spent in clocks.items() for part in parts}


def play(config: DictConfig, *, learns: bool) -> dict[str, Any]:
    """Build everything, play one episode and perhaps learn; return times and results."""
    # 1. Build the task and the agent, and time their parts.
    torch.manual_seed(int(config.seed))
    start, start_cpu = time.perf_counter(), time.thread_time()
    env: Any = build.build_env(config)
    agent: Any = build.build_agent(config, env)
    if env.batch_size.numel() != 1 or not isinstance(agent, Hierarchical) or agent.stage == 1:
        raise SystemExit("one container and a manager that decides: env.num_envs=1 "
                         "agent=hierarchical agent.stage1_frames=0")  # fmt: skip
    replay = build.build_replay(config, env, agent)
    watch = Stopwatch(lambda: None)
    timed(watch, "environment", env, "step_and_maybe_reset")
    for part in ("manager", "maps", "worker"):
        timed(watch, part, getattr(agent.policy, part), "forward")
    timed(watch, "replay", replay, "extend")
    timed(watch, "worker_update", agent, "update_worker")
    timed(watch, "manager_update", agent, "update_manager")
    collector = DeviceCollector(env, agent.policy)
    # 2. Play; an episode that ends earlier is not continued.
    ends = [time.perf_counter()]
    watch.runs = True
    steps: list[Any] = []
    while len(steps) < config.trainer.frames and not (steps and bool(steps[-1]["next", "done"])):
        steps.append(collector.step())
        replay.extend(steps[-1])
        ends.append(time.perf_counter())
    values: dict[str, Any] = times(watch, PARTS)
    # 3. Learn.
    if learns:
        losses = watch.run("update", agent.update, replay.sample(agent.batch_size))
        values |= times(watch, UPDATES)
        values |= {name: float(losses[name]) for name in ("loss", "manager_loss", "skipped")}
    values |= {name: float(steps[-1]["next", "metrics"][name]) for name in METRICS}
    return values | {
        "cpu_seconds": time.thread_time() - start_cpu,
        "elapsed_seconds": time.perf_counter() - start,
        "build_seconds": ends[0] - start,
        "episode_seconds": ends[-1] - ends[0],
        "step_ms": [1e3 * (end - begin) for begin, end in pairwise(ends)],
        "steps": len(steps),
        "reward": sum(float(step["next", "reward"]) for step in steps),
        "success": values["items_packed"] / len(steps),
        "parameters": sum(weight.numel() for weight in agent.policy.parameters()),
        "batch_size": agent.batch_size,
    }


def measure(config: DictConfig, repeats: int, *, learns: bool) -> dict[str, Any]:
    """Return medians of the repeats, and the seconds of the first run."""
    first = play(config, learns=learns)
    played = [play(config, learns=learns) for _ in range(repeats)]
    last = played[-1]
    seconds = [name for name in last if name.endswith("_seconds")]
    values = last | {name: statistics.median(one[name] for one in played) for name in seconds}
    values |= percentiles([ms for one in played for ms in one["step_ms"]])
    values["first_elapsed_seconds"] = first["elapsed_seconds"]
    values["steps_per_second"] = last["steps"] / (
        values["elapsed_seconds"] - values["build_seconds"]
    )
    values["repeats"] = repeats
    del values["step_ms"]
    return values


def main() -> None:
    """Measure both cases, print, and write the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--learn-repeats", type=int, default=1, help="repeats with learning")
    parser.add_argument("--out", default="benchmarks/results/bench_seed.json")
    args = parser.parse_intermixed_args()
    config = compose("train", ["experiment=seed_benchmark", *args.overrides])
    report = {}
    for name, repeats in (("acts", args.repeats), ("learns", args.learn_repeats)):
        report[name] = measure(config, repeats, learns=name == "learns")
        print(name, report[name])
    write_json(args.out, provenance(args) | report)


if __name__ == "__main__":
    main()
