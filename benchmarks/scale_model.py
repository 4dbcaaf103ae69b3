"""A model of training in many processes: messages and memory per update, with measurements.

    python benchmarks/scale_model.py measure [--ranks 1 2 4] [--seconds 20] [--repeats 3]
    python benchmarks/scale_model.py model [--measured ...] [--out ...]
    python benchmarks/scale_model.py overlap [--out ...]

`measure` trains PPO on boxes with 1, 2 and 4 processes of one thread each, with equal rows per
process (weak scaling). It writes frames/s, and the time and bytes of the messages per update. The
three numbers of processes take turns, so that other programs on the machine affect all of them
equally; the results are medians of the repeats. If there are fewer cores than processes, the
processes share cores, which the model takes into account.

`model` predicts the time of an update in `n` processes. All do the same work at the same time, and
sum the gradient in a ring: each sends and receives 2 (n - 1) / n of the message in 2 (n - 1) steps,

    t(n) = work * max(1, n / cores) + 2 (n - 1) latency + 2 (n - 1) / n * bytes / bandwidth,

(Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", JPDC
2009; between machines NCCL also has trees, whose latency grows with log2 n.) Latency and bandwidth
of this machine are fitted to messages of two sizes; `work` is measured with one process. The
predictions for GPUs use the link speeds of data sheets; they are not measured.

`overlap` predicts how much time would be saved if the gradient were sent in `k` pieces while the
backward pass, assumed to be half of an update, still runs. All pieces but the last can overlap with
the rest of the backward pass, and each further piece costs its latency:

    saved(k) = min((k - 1) / k * size, (k - 1) / k * backward) - (k - 1) * 2 (n - 1) latency

where `size` is the part of the message's time that depends on its bytes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

SETTINGS = [
    "env=cuboid_online", "agent=ppo", "env.num_envs=64", "replay.horizon=16",
    "agent.batch_size=256", "trainer.frames=1e9",
]  # fmt: skip
SIZES = (2**12, 2**23)
"""Bytes of the two messages that latency and bandwidth are fitted to."""
LINKS = {
    "NVLink 4, one machine of 8": {"latency": 5e-6, "bandwidth": 450e9},
    "InfiniBand NDR, 8 links of 400 Gbit/s a machine": {"latency": 5e-6, "bandwidth": 50e9},
    "Ethernet 100 Gbit/s a machine": {"latency": 3e-5, "bandwidth": 12.5e9 / 8},
}
"""Latency in seconds per step; bandwidth in bytes per second and GPU."""
PARAMETERS = {"small": 4e5, "hrl_paper": 1.394e7, "a large transformer": 1e8}
REPLAY_BYTES, ROW_BYTES = 40e9, 10e9
"""Bytes of a GPU's memory for its part of the replay, and for the states of its rows."""
TASKS = {"cuboid_online": "dqn", "irregular_com_hull": "dqn"}
"""Presets, each with the agent whose replay is used."""
WORK = 0.02
"""Seconds of an update of one GPU, without messages; an assumption that the table states."""


def message_times(size: int, repeats: int = 30) -> float:
    """Return the median seconds of an all-reduce of ``size`` bytes."""
    from torch import distributed

    data, seconds = torch.ones(size // 4), []
    for _ in range(repeats + 3):
        distributed.barrier()
        start = time.perf_counter()
        distributed.all_reduce(data)
        seconds.append(time.perf_counter() - start)
    return sorted(seconds[3:])[repeats // 2]


@contextmanager
def messages_timed() -> Iterator[list[float]]:
    """Collect the seconds of every all-reduce, including the wait for the other processes."""
    from torch import distributed

    usual, seconds = distributed.all_reduce, []

    def timed(*given: Any, **named: Any) -> Any:
        start = time.perf_counter()
        found = usual(*given, **named)
        seconds.append(time.perf_counter() - start)
        return found

    distributed.all_reduce = timed
    try:
        yield seconds
    finally:
        distributed.all_reduce = usual


def rank(seconds: float, path: str) -> None:
    """Train as one process of several, and let rank 0 write what it measured."""
    from agents import process_group
    from agents.config.build import build_trainer
    from agents.config.compose import compose
    from agents.process_group import any_of, processes
    from agents.training.distributed import joined

    torch.set_num_threads(1)
    config = compose("train", SETTINGS)
    with joined("cpu"):
        torch.manual_seed(0)
        trainer = build_trainer(config, row_offset=process_group.rank() * int(config.env.num_envs))
        agent, replay = trainer.agent, trainer.replay
        while trainer.updates < 2:  # kernels are compiled, memory is allocated
            trainer.step()
        start, frames, updates = time.perf_counter(), trainer.frames, trainer.updates
        processor, going = time.process_time(), True
        with messages_timed() as waits:
            while going:
                trainer.step()
                if trainer.updates > updates and replay.state_dict()["cursor"] == 0:
                    (late,) = any_of(time.perf_counter() - start >= seconds)
                    going = not late
        took, processor = time.perf_counter() - start, time.process_time() - processor
        done = trainer.updates - updates
        gradients = agent.optimizer._gradients
        samples = int(config.env.num_envs) * int(config.replay.horizon)
        messages = [message_times(size) for size in SIZES] if processes() > 1 else [0.0, 0.0]
        own = message_times(gradients.flat.numel() * 4) if processes() > 1 else 0.0
        found = {
            "ranks": processes(),
            "frames_per_second": (trainer.frames - frames) / took,
            "updates": done,
            "seconds_per_update": took / done,
            "processor_seconds_per_update": processor / done,
            "steps_per_update": agent.epochs * max(1, round(samples / agent.batch_size)),
            "message_bytes": gradients.flat.numel() * 4,
            "message_seconds": own,
            "messages_per_update": len(waits) / done,
            "in_messages_seconds_per_update": sum(waits) / done,
            "seconds_of_sizes": dict(zip(map(str, SIZES), messages, strict=True)),
        }
        if process_group.leads():
            Path(path).write_text(json.dumps(found))


def measured(size: int, seconds: float, path: str, bind: bool = False) -> dict[str, Any]:
    """Start some processes, with ``bind`` each on its own core; return the file of rank 0."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = str(listener.getsockname()[1])
    common = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    common |= {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__, "rank", "--seconds", str(seconds), "--out", path]
    jobs = []
    for i in range(size):
        core = ["taskset", "-c", str(i % (os.cpu_count() or 1))] if bind else []
        env = {**os.environ, **common, "RANK": str(i)}
        jobs.append(subprocess.Popen(core + command, env=env))
    if [code for job in jobs if (code := job.wait())]:
        sys.exit(f"a process of {size} failed")
    found: dict[str, Any] = json.loads(Path(path).read_text())
    Path(path).unlink()
    return found


def measure(args: argparse.Namespace) -> None:
    """Measure the numbers of processes in turn, several times; write the medians."""
    from provenance import provenance, write_json

    runs: dict[int, list[dict[str, Any]]] = {size: [] for size in args.ranks}
    loads = []
    for _ in range(args.repeats):
        for size in args.ranks:
            loads.append(os.getloadavg()[0] if hasattr(os, "getloadavg") else None)
            runs[size].append(measured(size, args.seconds, f"{args.out}.part", args.bind))
            print(runs[size][-1], flush=True)
    rows = []
    for found in runs.values():
        every = sorted(found, key=lambda row: float(row["frames_per_second"]))
        speeds = {"frames_per_second_of_all": [row["frames_per_second"] for row in found]}
        rows.append(every[len(every) // 2] | speeds)
    group = Path("/proc/self/autogroup")
    priority = {
        "nice": os.nice(0) if hasattr(os, "nice") else None,
        "autogroup": group.read_text().strip() if group.is_file() else None,
        "scheduler": os.sched_getscheduler(0) if hasattr(os, "sched_getscheduler") else None,
    }
    about = {
        "settings": SETTINGS,
        "bound": args.bind,
        "priority": priority,
        "load_1min_before_each": loads,
    }
    write_json(args.out, provenance() | about | {"rows": rows})


def ring(n: int, size: float, latency: float, bandwidth: float) -> float:
    """Return the seconds of an all-reduce of ``size`` bytes in a ring of ``n`` processes."""
    return 0.0 if n == 1 else 2 * (n - 1) * latency + 2 * (n - 1) / n * size / bandwidth


def fitted(row: dict[str, Any]) -> tuple[float, float]:
    """Return latency and bandwidth from the two messages of a measured row."""
    n = row["ranks"]
    small, large = SIZES
    short, long = (float(row["seconds_of_sizes"][str(size)]) for size in SIZES)
    per_byte = max((long - short) / (large - small), 1e-15)
    bandwidth = 2 * (n - 1) / n / per_byte
    return max(short - per_byte * small, 0.0) / (2 * (n - 1)), bandwidth


def compared(report: dict[str, Any]) -> list[dict[str, Any]]:
    """Return prediction and measurement of each measured number of processes."""
    rows = report["rows"]
    cores = report.get("machine", report)["cores"]  # at the top of the file in older files
    (alone,) = [row for row in rows if row["ranks"] == 1]
    comparisons = []
    for row in rows:
        n = row["ranks"]
        latency, bandwidth = fitted(row) if n > 1 else (0.0, 1.0)
        steps = row["steps_per_update"]
        messages = ring(n, row["message_bytes"], latency, bandwidth)
        messages += ring(n, 16, latency, bandwidth)  # moments of the advantages
        predicted = alone["seconds_per_update"] * max(1.0, n / cores) + steps * messages
        comparisons.append(
            {
                "ranks": n,
                "predicted_seconds_per_update": predicted,
                "measured_seconds_per_update": row["seconds_per_update"],
                "error": predicted / row["seconds_per_update"] - 1,
                "speedup": row["frames_per_second"] / alone["frames_per_second"],
                "predicted_seconds_in_messages": steps * messages,
                "measured_seconds_in_messages": row["in_messages_seconds_per_update"],
                "message_bytes_per_update": steps * row["message_bytes"],
            }
        )
    return comparisons


def memory() -> list[dict[str, Any]]:
    """Return the bytes of a row and of a transition, and the number that many GPUs hold."""
    from agents.config.build import build_agent, build_env, build_replay
    from agents.config.compose import compose
    from packing_env.memory import num_bytes

    presets = []
    for task, name in TASKS.items():
        options = [f"env={task}", f"agent={name}", "env.num_envs=2", "replay.capacity=2"]
        config = compose("train", options)
        env = build_env(config)
        env.reset()
        each = build_replay(config, env, build_agent(config, env)).bytes_per_transition
        row = num_bytes(env.get_state().values(True, True)) // 2
        rows = int(ROW_BYTES / row)
        presets.append(
            {
                "task": task,
                "bytes_per_row": row,
                "rows_per_gpu": rows,
                "rows": {n: n * rows for n in (8, 64, 1024)},
                "bytes_per_transition": each,
                "transitions_per_gpu": int(REPLAY_BYTES / each),
                "transitions": {n: n * int(REPLAY_BYTES / each) for n in (8, 64, 1024)},
            }
        )
    return presets


def model(args: argparse.Namespace) -> None:
    """Write the predictions for GPUs, and a comparison of the model with the measurements."""
    from provenance import provenance, write_json

    measured = json.loads(Path(args.measured).read_text())
    table = []
    for name, count in PARAMETERS.items():
        for n in (8, 64, 1024):
            for link, speed in LINKS.items():
                if n > 8 and link.startswith("NVLink"):
                    continue
                seconds = ring(n, 4 * count, **speed)
                table.append(
                    {
                        "network": name,
                        "gpus": n,
                        "link": link,
                        "megabytes_per_update": 8 * count * (n - 1) / n / 1e6,
                        "milliseconds_per_update": 1e3 * seconds,
                        "share_of_update": seconds / (seconds + WORK),
                        "binds": seconds > WORK,
                    }
                )
    report: dict[str, Any] = {
        "assumed_seconds_of_work": WORK,
        "compared": compared(measured),
        "gpus": table,
    }
    report |= {"replay_bytes_per_gpu": REPLAY_BYTES, "row_bytes_per_gpu": ROW_BYTES}
    report["memory"] = memory()
    for row in report["compared"]:
        print(row)
    write_json(args.out, provenance() | report)


def saved(n: int, size: float, pieces: int, latency: float, bandwidth: float) -> float:
    """Return the seconds per update saved by sending a message in pieces; negative for a loss."""
    long = 2 * (n - 1) / n * size / bandwidth
    hidden = (pieces - 1) / pieces * min(long, WORK / 2)
    return hidden - (pieces - 1) * 2 * (n - 1) * latency


def overlap(args: argparse.Namespace) -> None:
    """Write what an overlapped message would save, as a share of the update."""
    from provenance import provenance, write_json

    table = []
    for name, count in PARAMETERS.items():
        for link, speed in LINKS.items():
            for n in (8, 64, 1024):
                if n > 8 and link.startswith("NVLink"):
                    continue
                whole = WORK + ring(n, 4 * count, **speed)
                shares = {k: saved(n, 4 * count, k, **speed) / whole for k in (2, 4, 8)}
                best = max(shares, key=lambda k: shares[k])
                table.append(
                    {
                        "network": name,
                        "gpus": n,
                        "link": link,
                        "message_share_of_update": 1 - WORK / whole,
                        "best_pieces": best if shares[best] > 0 else 1,
                        "saves_share_of_update": max(0.0, shares[best]),
                    }
                )
                print(table[-1])
    write_json(args.out, provenance() | {"assumed_seconds_of_work": WORK, "rows": table})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["measure", "model", "overlap", "rank"])
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--bind", action="store_true", help="bind each process to a core (taskset)")
    parser.add_argument("--measured", default="benchmarks/results/weak_scaling.json")
    parser.add_argument("--out")
    args = parser.parse_args()
    names = {"measure": "weak_scaling", "model": "scale_model", "overlap": "scale_overlap"}
    args.out = args.out or f"benchmarks/results/{names.get(args.what, 'rank')}.json"
    if args.what == "rank":
        rank(args.seconds, args.out)
    else:
        {"measure": measure, "model": model, "overlap": overlap}[args.what](args)


if __name__ == "__main__":
    main()
