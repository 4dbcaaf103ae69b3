"""Host reads, copies, allocations and operations of a steady step of training.

    python benchmarks/host_reads.py [--agents dqn ppo ...] [--presets cuboid_online ...]
        [--device cpu] [--updates 1] [--cycles 3] [--out ...] [KEY=VALUE ...]

After a warm-up, the script counts over whole cycles of training, from update to update. By default
it does so for every agent on every preset that the agent supports. `host_reads` counts values that
are read back and sizes that depend on data, also inside torch's operations. `cpu_step_counters`
counts separately the step counters that Adam's kernel reads, on a CPU only. `copies` counts copies
between devices and tensors made of Python numbers. Training is `steady` if all cycles allocate the
same amount. KEY=VALUE changes all tasks.
"""

from __future__ import annotations

import argparse
import sys
from itertools import product
from pathlib import Path
from typing import Any

import torch
from provenance import provenance, write_json

from agents.bench.train import run_updates
from agents.config.build import build_trainer
from agents.config.checks import check_learns
from agents.config.compose import compose
from agents.config.folders import ConfigError
from agents.training.rollout import DeviceCollector
from agents.training.trainer import Trainer

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from tests import counting  # the instruments of the tests

AGENTS = ("dqn", "rainbow", "iqn", "ppo", "branching", "ddpg", "sac", "ac_iqn", "hierarchical")
PRESETS = (
    "cuboid_online",
    "cuboid_buffer",
    "cuboid_offline",
    "cuboid_continuous",
    "irregular",
    "irregular_paper",
    "sls_nesting",
)
SMALL = ("env.num_envs=2", "agent.batch_size=4", "trainer.log_every=1000000000")
ON_POLICY = ("replay.horizon=4", "agent.epochs=2")
OFF_POLICY = ("replay.capacity=64", "trainer.warmup=16", "trainer.update_every=4")


def compose_small(agent: str, preset: str, args: argparse.Namespace) -> Any:
    """Return the configuration of an agent on a preset, with small batches."""
    parts = ON_POLICY if agent == "ppo" else OFF_POLICY
    chosen = (f"agent={agent}", f"env={preset}", f"device={args.device}")
    config = compose("train", [*chosen, *SMALL, *parts, *args.overrides])
    check_learns(config)
    return config


def count(trainer: Trainer, updates: int, cycles: int) -> dict[str, Any]:
    """Count over cycles of ``updates`` updates; each instrument runs in separate cycles."""
    run_updates(trainer, 2 * updates)
    # 1. Reads, including those inside torch's operations.
    reads = counting.reading_operations(lambda: run_updates(trainer, updates))
    counters = reads.pop(counting.STEP_COUNTERS, 0)

    # 2. Memory: equal in all cycles if training is steady.
    def cycle() -> None:
        run_updates(trainer, updates)
        trainer.meter.read()  # otherwise the meter sums its values, and allocates, every few steps

    trainer.meter.read()
    allocated = [counting.allocations(cycle) for _ in range(cycles)]
    # 3. Operations and copies that Python calls, by call site.
    with counting.CallSites() as sites:
        steps = run_updates(trainer, updates)
    return {
        "host_reads": reads.total(),
        "reading_operations": dict(reads),
        "cpu_step_counters": counters,
        "copies": sites.total("copies") + sites.total("from_host"),
        "operations_per_step": sites.total("operations") / steps,
        "reads_by_site": dict(sites.counts["reads"]),
        "allocations_per_cycle": allocated,
        "steady": len(set(allocated)) == 1,
    }


def main() -> None:
    """Count, print, and write the file; exit 1 if a step reads or copies."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--agents", nargs="+", default=AGENTS, choices=AGENTS)
    parser.add_argument("--presets", nargs="+", default=PRESETS, choices=PRESETS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--updates", type=int, default=1, help="updates per cycle")
    parser.add_argument("--cycles", type=int, default=3)
    parser.add_argument("--out", default="benchmarks/results/bench_sync.json")
    args = parser.parse_intermixed_args()
    results, left_out = [], []
    for agent, preset in product(args.agents, args.presets):
        case = {"agent": agent, "preset": preset}
        torch.manual_seed(0)
        try:
            trainer = build_trainer(compose_small(agent, preset, args), DeviceCollector)
        except (ConfigError, ValueError) as error:  # such as an action mode of another agent
            left_out.append(case | {"reason": str(error)})
            continue
        row = count(trainer, args.updates, args.cycles)
        results.append(case | row)
        print(case, *(f"{name}={row[name]}" for name in ("host_reads", "copies", "steady")))
    head = provenance(args, args.device)
    write_json(args.out, head | {"results": results, "left_out": left_out})
    if not results or any(row["host_reads"] or row["copies"] for row in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
