"""Measure a few speed ratios, and warn if one is below the committed ratio.

    python benchmarks/ratios.py [--write]

Ratios of CPU times on one thread, measured in turn, depend less on the machine than times do. They
compare drop-height kernels with the NumPy program, and the environment's step with the NumPy
environment (`packing_env.reference`, also with exact masks). A ratio below :data:`WARN` times the
committed one gives a warning; the exit status stays 0. `--write` replaces the committed ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from drop_formulations import numpy_maps

from agents.bench.kernel import SIZES, random_problem
from agents.bench.step import Loop
from packing_env import kernels, make_env
from packing_env.testing.episodes import begin_episode

FILE = Path(__file__).parent / "results" / "ratios.json"
WARN = 0.6
"""Share of the committed ratio below which there is a warning."""
KERNELS = {"kernel A, numba": ("A", "numba"), "kernel A, eager": ("A", "eager"),
           "kernel flat, numba": ("flat", "numba")}  # fmt: skip
STEPS = {"step of 1 row": 1, "step of 256 rows": 256}
"""Rows of `cuboid_online`, random legal actions."""


def seconds(work: Callable[[], object], repeats: int = 7) -> float:
    """Return the median CPU time of a call, after one that warms up."""
    work()
    spent = []
    for _ in range(repeats):
        start = time.thread_time()
        work()
        spent.append(time.thread_time() - start)
    return statistics.median(spent)


def kernel_ratio(name: str, backend: str) -> float:
    """Return how many times as fast a backend computes the rest heights of a problem."""
    size = SIZES[name]
    heightmap, bottom = random_problem(size, torch.Generator().manual_seed(0))
    plain = partial(numpy_maps, heightmap, bottom, size)
    quick = partial(kernels.drop_height, heightmap, bottom, size.stride, backend=backend)
    return seconds(plain, 3) / seconds(quick, 25)


def reference_seconds(decisions: int = 20) -> float:
    """Return the CPU time per decision of the NumPy environment, with its whole mask."""
    env = make_env("cuboid_online", num_envs=1, seed=0)
    env.reset()
    episode, random = begin_episode(env, 0, {}), np.random.default_rng(0)
    orientations = env.catalogue.num_orientations
    spent: list[float] = []
    while len(spent) < decisions and not episode.done:
        start = time.thread_time()
        legal = np.argwhere(episode.mask(orientations))
        slot, orientation, x, y = (int(n) for n in legal[random.integers(len(legal))])
        step = episode.rules.grid_step
        episode.decide((slot, orientation, step * x, step * y), orientations)
        spent.append(time.thread_time() - start)
    return statistics.fmean(spent)


def step_seconds(rows: int) -> float:
    """Return the CPU time per decision of the environment."""
    play = Loop(make_env("cuboid_online", num_envs=rows, seed=0), "random_legal")

    def steps() -> None:
        for _ in range(20):
            play.step()

    return seconds(steps) / 20 / rows


def measure() -> dict[str, float]:
    """Return every ratio by its name."""
    ratios = {name: kernel_ratio(*case) for name, case in KERNELS.items()}
    plain = reference_seconds()
    return ratios | {name: plain / step_seconds(rows) for name, rows in STEPS.items()}


def fallen(found: Mapping[str, float], committed: Mapping[str, float]) -> list[str]:
    """Return a warning for each ratio that has fallen, or that only one of the sets has."""
    said = [
        f"{name}: {found[name]:.3g} x NumPy is {found[name] / before:.2f} of {before:.3g}"
        for name, before in committed.items()
        if name in found and found[name] < WARN * before
    ]
    lone = sorted(found.keys() ^ committed.keys())
    return said + [f"{name}: only measured or only committed; run with --write" for name in lone]


def main() -> None:
    """Measure, print, warn; write the file if asked."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help=f"write {FILE.name}")
    args = parser.parse_args()
    load, start = os.getloadavg(), time.perf_counter()
    measured = measure()
    for name, ratio in measured.items():
        print(f"{name}: {ratio:.4g} x NumPy")
    if args.write:
        from provenance import provenance, write_json

        write_json(str(FILE), provenance(args) | {"load_before": load, "ratios": measured})
        return
    committed = json.loads(FILE.read_text(encoding="utf-8"))["ratios"]
    for line in fallen(measured, committed):
        print(f"warning: {line}")
    print(f"{len(measured)} ratios in {time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
