"""Time of a decision of a trained policy: in Python, exported for torch, and in ONNX Runtime.

    python benchmarks/export_latency.py [--runs pretrained/cuboid_online ...] [--calls 300]

One container, one thread. All programs decide the same states, in turn, so that other work on the
machine slows all of them equally. The result holds the medians over the calls. Other programs
affect the CPU time of the thread less than the wall time. Observations and masks are computed
beforehand.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime
import torch
from provenance import provenance, write_json
from tensordict import TensorDictBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from agents.policies.export import export_onnx, export_policy, name_of
from agents.training.loading import Run, load_run

Decide = Callable[[TensorDictBase], Any]
STATES = 20
"""Number of states of the episode that the programs decide."""


def programs(run: Run, formats: list[str]) -> dict[str, Decide]:
    """Return a function for each format that computes the decision from a root."""
    program = export_policy(run.policy, run.env)
    keys = {name_of(key): key for key in run.policy.in_keys}
    decisions: dict[str, Decide] = {"policy": run.policy}
    if "torch_export" in formats:
        module = program.module()
        decisions["torch_export"] = lambda root: module({n: root.get(k) for n, k in keys.items()})
    if "onnx" in formats:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "policy.onnx"
            export_onnx(program, path)
            session = onnxruntime.InferenceSession(
                path, options, providers=["CPUExecutionProvider"]
            )
        names = [output.name for output in session.get_outputs()]
        decisions["onnx"] = lambda root: session.run(
            names, {n: root.get(k).numpy() for n, k in keys.items()}
        )
    return decisions


def measured(run: Run, formats: list[str], calls: int) -> dict[str, dict[str, float]]:
    """Return the median wall and CPU time of a decision in milliseconds, by format."""
    # 1. States of one episode, whose actions the policy chooses.
    roots, root = [], run.env.reset()
    for _ in range(STATES):
        roots.append(root.clone())
        _, root = run.env.step_and_maybe_reset(run.policy(root))
    # 2. Call the programs in turn; the first pass over the states is not timed.
    decisions = programs(run, formats)
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in decisions}
    for call in range(-STATES, calls):
        for name, decide in decisions.items():
            state = roots[call % STATES].clone()
            wall, cpu = time.perf_counter(), time.thread_time()
            decide(state)
            wall, cpu = time.perf_counter() - wall, time.thread_time() - cpu
            if call >= 0:
                spent[name].append((1e3 * wall, 1e3 * cpu))
    # 3. Summarize.
    medians = {}
    for name, times in spent.items():
        wall_ms, cpu_ms = (statistics.median(each) for each in zip(*times, strict=True))
        medians[name] = {"wall_ms": wall_ms, "thread_cpu_ms": cpu_ms, "calls": float(calls)}
    return medians


def main() -> None:
    """Measure every run, print, and write the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    runs = ["pretrained/cuboid_online", "pretrained/irregular"]
    parser.add_argument("--runs", nargs="+", default=runs)
    parser.add_argument("--formats", nargs="*", default=["torch_export", "onnx"])
    parser.add_argument("--calls", type=int, default=300, help="timed decisions per program")
    parser.add_argument("--out", default="benchmarks/results/export_latency.json")
    args = parser.parse_args()
    head = provenance(args)
    head["versions"] |= {"onnxruntime": onnxruntime.__version__}
    print(head["machine"], head["versions"])
    results = {}
    with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
        for name in args.runs:
            run = load_run(name, ["env.num_envs=1"])
            results[name] = measured(run, args.formats, args.calls)
            for program, values in results[name].items():
                print(f"{name}, {program}: {values['thread_cpu_ms']:.2f} ms CPU", flush=True)
    write_json(args.out, head | {"decisions": results})


if __name__ == "__main__":
    main()
