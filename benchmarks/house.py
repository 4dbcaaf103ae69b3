"""Paired speed comparison of two source trees: steps, training, drop heights.

    python benchmarks/house.py --before TREE --after TREE [--rounds 9] [--samples 5] [--out ...]
        [--cases NAME ...] [--data DIR]

Every case runs in two worker processes of one thread, one per tree, whose ``src/`` comes first on
``PYTHONPATH``. Both warm up, which compiles the kernels, and then measure in turns; the tree that
measures first changes with every round, so that a slow phase of the machine affects both. Each
round gives one ratio: the median of its samples of `after`, divided by that of `before`. A sample
is CPU time of the process per unit of work (a step of all rows, a decision, a call). Both trees
must compute the same results, bit for bit; otherwise the case is marked and the exit status is 1.

Training runs the command `packing train` in the worker; its unit is a frame, and both trees must
log the same values. The steps of meshes use the meshes in ``DIR/meshes`` (``--data``, default
``$PACKING_DATA``), or without them the embedded household items.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import torch

OUT = "benchmarks/results/house.json"
SHORTEST = 0.1
"""Shortest duration of a sample in seconds."""
TREES = ("before", "after")


@dataclass
class Work:
    """A piece of work to time.

    Attributes:
        run: The measured part.
        units: Units of work in a run.
        digest: Hash of the results of the latest run.
        reset: Preparation of a run, not measured.
    """

    run: Callable[[], None]
    units: int
    digest: Callable[[], str]
    reset: Callable[[], None] = lambda: None


def digest_of(tensors: Iterable[torch.Tensor]) -> str:
    """Return a hash of the bits of some tensors."""
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def steps(task: str, rows: int, count: int, **overrides: Any) -> Work:
    """Prepare ``count`` steps of ``rows`` rows, with legal actions that are drawn beforehand."""
    import packing_env as pe

    torch.manual_seed(0)
    env = pe.make_env(task, num_envs=rows, seed=0, **overrides)
    root = env.reset()
    start = env.get_state()
    actions: list[torch.Tensor] = []
    for _ in range(count):
        root = env.rand_action(root)
        actions.append(root["action"].clone())
        _, root = env.step_and_maybe_reset(root)
    total = torch.zeros(rows, 1, dtype=torch.float64)

    def reset() -> None:
        nonlocal root
        root = env.reset(start.clone(), set_state=True)
        total.zero_()

    def run() -> None:
        nonlocal root
        for action in actions:
            root.set("action", action)
            taken, root = env.step_and_maybe_reset(root)
            total.add_(taken["next", "reward"])

    def results() -> str:
        state = env.get_state()
        names = ("heightmap", "items_packed", "terminated", "episode")
        return digest_of([total, *(state[name] for name in names)])

    return Work(run, count, results, reset)


def household_or_meshes(data: Path | None) -> dict[str, Any]:
    """Return the items of the cases at 200 x 200 cells."""
    if data is None:
        return {"source": "shapes", "families": ("household",)}
    return {"source": "meshes", "paths": str(data / "meshes"), "unit": "m"}


def training(frames: int, *options: str) -> Work:
    """Prepare a training run of the command line; its results are the log without times."""
    from agents.cli.main import main

    folder = Path(tempfile.mkdtemp(prefix="house-"))
    words = ["train", f"trainer.frames={frames}", f"run_dir={folder / 'run'}", *options]

    def reset() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def results() -> str:
        logged = json.loads((folder / "run" / "results.json").read_text())["training"]["last"]
        columns = {key: logged[key] for key in ("return", "utilization", "loss") if key in logged}
        reset()
        return json.dumps(columns, sort_keys=True)

    def run() -> None:
        main(words)

    return Work(run, frames, results, reset)


def drop_height(rows: int, cells: int, stride: int, sides: tuple[int, int, int]) -> Work:
    """Prepare drop-height maps of 24 orientations on random heightmaps.

    Args:
        rows: Containers.
        cells: Cells of a container along either side.
        stride: Cells between two lattice points.
        sides: Cells of the item along its sides; each pair is the footprint of four orientations.
    """
    import packing_env as pe

    generator = torch.Generator().manual_seed(0)
    footprints = [pair for pair in permutations(sides, 2) for _ in range(4)]
    heightmap = 0.3 * torch.rand(rows, cells, cells, generator=generator)
    bottom = torch.full((rows, len(footprints), max(sides), max(sides)), torch.inf)
    for orientation, (w, h) in enumerate(footprints):
        values = 0.05 * torch.rand(rows, w, h, generator=generator)
        values[torch.rand(rows, w, h, generator=generator) > 0.8] = torch.inf
        values[:, -1, -1], values[:, 0, 0] = 0.05, 0.0
        bottom[:, orientation, :w, :h] = values
    found = torch.empty(0)

    def run() -> None:
        nonlocal found
        found = pe.kernels.drop_height(heightmap, bottom, stride=stride)

    return Work(run, 1, lambda: digest_of([found]))


def cases(data: Path | None) -> dict[str, Callable[[], Work]]:
    """Return the cases by name."""
    all_cases: dict[str, Callable[[], Work]] = {}
    for rows in (1024, 4096):
        for rule in ("none", "center_hull"):
            name = f"cuboid_online {rule} B={rows}"
            all_cases[name] = partial(steps, "cuboid_online", rows, 32, stability=rule)
    for task in ("irregular", "irregular_com_hull"):
        for rows, count in ((1, 64), (64, 24), (256, 8)):
            all_cases[f"{task} B={rows}"] = partial(steps, task, rows, count)
    for rule in ("none", "com_hull"):
        meshes = {"num_visible": 1, "stability": rule, "pool_size": 64}
        meshes["items"] = household_or_meshes(data)
        all_cases[f"meshes 200 x 200 {rule} B=4"] = partial(
            steps, "irregular_paper", 4, 12, **meshes
        )
    runs = {
        "dqn": "replay.capacity=10000",
        "ppo": "replay.horizon=16",
        "afterstate": "replay.horizon=8",
    }
    for agent, replay in runs.items():
        options = (f"agent={agent}", "env=cuboid_online", "env.num_envs=64", replay)
        all_cases[f"training {agent}"] = partial(training, 8192, *options)
    all_cases["kernel A"] = partial(drop_height, 1, 200, 4, (36, 40, 44))
    all_cases["kernel B"] = partial(drop_height, 64, 64, 1, (10, 12, 14))
    return all_cases


# ------------------------------------------------------------------------------------ the workers


def sample(work: Work, calls: int) -> float:
    """Return the CPU seconds of the process per unit of work, over ``calls`` runs."""
    spent = 0.0
    for _ in range(calls):
        work.reset()
        start = time.process_time()
        work.run()
        spent += time.process_time() - start
    return spent / (calls * work.units)


def serve(name: str, data: Path | None) -> None:
    """Run one case in this process: read requests from stdin, answer as JSON on stdout."""
    torch.set_num_threads(1)
    import packing_env

    answers = sys.stdout
    sys.stdout = sys.stderr  # a library that prints must not break the protocol
    work = cases(data)[name]()
    for _ in range(3):  # the first run compiles
        seconds = sample(work, 1)
    calls = max(1, round(SHORTEST / max(seconds * work.units, 1e-9)))
    source = str(Path(packing_env.__file__).resolve())
    first = {"source": source, "calls": calls, "digest": work.digest()}
    print(json.dumps(first), file=answers, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        gc.collect()
        seconds_each = [sample(work, request["calls"]) for _ in range(request["samples"])]
        print(json.dumps(seconds_each), file=answers, flush=True)


class Worker:
    """A process that runs one case with the sources of one tree.

    Args:
        tree: Checkout whose ``src/`` is imported.
        name: Name of the case.
        data: Folder of the meshes, or ``None``.

    Raises:
        RuntimeError: The process failed, or imported other sources.
    """

    def __init__(self, tree: Path, name: str, data: Path | None) -> None:
        threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
        paths = {"PYTHONPATH": str(tree / "src"), "OMP_WAIT_POLICY": "PASSIVE"}
        options = [] if data is None else ["--data", str(data)]
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--worker", name, *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | threads | paths,
        )  # fmt: skip
        self.name = name
        first = self._answer()
        if not Path(first["source"]).is_relative_to(tree):
            raise RuntimeError(f"{name}: imported {first['source']}, which is not in {tree}")
        self.calls: int = first["calls"]
        self.digest: str = first["digest"]

    def _answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.name}: the worker failed; its error is above")
        return json.loads(line)

    def measure(self, calls: int, samples: int) -> list[float]:
        """Return samples of CPU seconds per unit of work."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"calls": calls, "samples": samples}) + "\n")
        self.process.stdin.flush()
        timings: list[float] = self._answer()
        return timings

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


# ------------------------------------------------------------------------------------- the report


def compare(trees: dict[str, Path], name: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measure one case with both trees in turns; the first round is not counted."""
    workers = {tree: Worker(folder, name, args.data) for tree, folder in trees.items()}
    calls = max(worker.calls for worker in workers.values())
    medians: dict[str, list[float]] = {tree: [] for tree in TREES}
    for number in range(args.rounds + 1):
        for tree in TREES if number % 2 else TREES[::-1]:
            seconds = workers[tree].measure(calls, args.samples)
            if number:
                medians[tree].append(1e3 * statistics.median(seconds))
    for worker in workers.values():
        worker.close()
    ratios = [a / b for b, a in zip(medians["before"], medians["after"], strict=True)]
    return {
        **{f"{tree}_ms": statistics.median(values) for tree, values in medians.items()},
        "ratio": statistics.median(ratios),
        "ratio_range": [min(ratios), max(ratios)],
        "ratio_quartiles": quartiles(ratios),
        "ratio_of_fastest_rounds": min(medians["after"]) / min(medians["before"]),
        "same_results": workers["before"].digest == workers["after"].digest,
        "rounds_ms": medians,
        "runs_per_sample": calls,
    }


def quartiles(values: list[float]) -> list[float]:
    """Return the first and the third quartile, linear between samples."""
    ordered = torch.tensor(values, dtype=torch.float64)
    return [float(ordered.quantile(share)) for share in (0.25, 0.75)]


def data_folder(given: Path | None) -> Path | None:
    """Return the folder whose ``meshes/`` is packed; ``None``: the embedded items."""
    folder = given or Path(os.environ.get("PACKING_DATA", ""))
    return folder.resolve() if folder != Path() and (folder / "meshes").is_dir() else None


def main() -> int:
    """Compare every requested case; write the JSON after each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--before", type=Path, help="checkout to compare with")
    parser.add_argument("--after", type=Path, default=Path(), help="checkout to measure")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--samples", type=int, default=5, help="per tree and round")
    parser.add_argument("--cases", nargs="+", default=list(cases(None)), choices=cases(None))
    parser.add_argument("--data", type=Path, help="folder with meshes/; default: $PACKING_DATA")
    parser.add_argument("--out", default=OUT)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.data = data_folder(args.data)
    if args.worker:
        serve(args.worker, args.data)
        return 0
    if args.before is None:
        parser.error("--before is required: a checkout of the revision to compare with")
    # Not at the top: a worker imports the packages of an older tree.
    from provenance import provenance, write_json

    from agents.bench.measure import revision

    trees = {tree: getattr(args, tree).resolve() for tree in TREES}
    head = provenance() | {
        "command": "python benchmarks/house.py --before TREE --after TREE "
        f"--rounds {args.rounds} --samples {args.samples}",
        "threads": 1,
        "revisions": {tree: revision(folder) for tree, folder in trees.items()},
        "clock": "CPU time of the process, milliseconds per unit; medians over rounds",
        "items_of_meshes": "meshes" if args.data else "household shapes",
    }
    report: dict[str, Any] = {}
    load = os.getloadavg()
    for name in args.cases:
        result = report[name] = compare(trees, name, args)
        low, high = result["ratio_range"]
        print(
            f"{name:32} {result['before_ms']:9.4f} -> {result['after_ms']:9.4f} ms  "
            f"x {result['ratio']:.3f} ({low:.3f} .. {high:.3f})"
            f"{'' if result['same_results'] else '  DIFFERENT RESULTS'}",
            flush=True,
        )
        loads = {"load_before_and_after": [load, os.getloadavg()]}
        write_json(args.out, head | loads | {"cases": report})
    return 0 if all(result["same_results"] for result in report.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
