"""Speed of drop-height kernels, compared with plain programs in NumPy and torch (`unfold`).

    python benchmarks/drop_formulations.py [--problems A B flat] [--out ...]

The plain programs compute one container and one orientation at a time, as their authors do. If a
problem has more containers, they compute the first, and its time is multiplied by the number of
containers. All must return the same bits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from provenance import provenance, write_json
from torch import Tensor

from agents.bench.kernel import SIZES, Size, random_problem
from agents.bench.measure import Clock
from packing_env import kernels


def numpy_map(heightmap: np.ndarray, bottom: np.ndarray, stride: int) -> np.ndarray:
    """Return ``[Xs, Ys]``: the maximum over the windows of a sliding view."""
    windows = sliding_window_view(heightmap, bottom.shape)[::stride, ::stride]
    z: np.ndarray = (windows - bottom).max(axis=(2, 3))
    return z


def unfold_map(heightmap: Tensor, bottom: Tensor, stride: int) -> Tensor:
    """Return ``[Xs, Ys]`` by the unfold formulation of an earlier packing trainer.

    It gathers the windows of the lattice along x, then along y. So it copies every column, although
    most columns are then dropped.
    """
    windows = heightmap.unfold(0, bottom.shape[0], 1).unfold(1, bottom.shape[1], 1)
    x, y = (torch.arange(0, steps, stride) for steps in windows.shape[:2])
    return (windows.index_select(0, x).index_select(1, y) - bottom).amax((2, 3))


def cut(bottom: Tensor, size: Size) -> list[Tensor]:
    """Return the lower surfaces of the first container's item without their padding."""
    return [bottom[0, o, :w, :h] for o, (w, h) in enumerate(size.footprints)]


def numpy_maps(heightmap: Tensor, bottom: Tensor, size: Size) -> list[Tensor]:
    """Return the maps of the first container by NumPy."""
    ground, parts = heightmap[0].numpy(), [part.numpy() for part in cut(bottom, size)]
    return [torch.from_numpy(numpy_map(ground, part, size.stride)) for part in parts]


def unfold_maps(heightmap: Tensor, bottom: Tensor, size: Size) -> list[Tensor]:
    """Return the maps of the first container by the unfold formulation."""
    return [unfold_map(heightmap[0], part, size.stride) for part in cut(bottom, size)]


def kernel_maps(heightmap: Tensor, bottom: Tensor, size: Size, backend: str) -> list[Tensor]:
    """Return the maps of the first container by a kernel, without their padding."""
    maps = kernels.drop_height(heightmap[:1], bottom[:1], size.stride, backend=backend)[0]
    inside = [(size.steps(w), size.steps(h)) for w, h in size.footprints]
    return [z[:x, :y] for z, (x, y) in zip(maps, inside, strict=True)]


def same_bits(maps: list[Tensor], others: list[Tensor]) -> bool:
    """Return whether all maps are equal bit for bit."""
    pairs = [(z.contiguous(), other.contiguous()) for z, other in zip(maps, others, strict=True)]
    return all(torch.equal(z.view(torch.int32), other.view(torch.int32)) for z, other in pairs)


def measure(clock: Clock, size: Size) -> dict[str, dict[str, object]]:
    """Return milliseconds of CPU and ratios of every method on one problem."""
    heightmap, bottom = random_problem(size, torch.Generator().manual_seed(0))
    plain: dict[str, Callable[[], list[Tensor]]] = {
        "numpy": partial(numpy_maps, heightmap, bottom, size),
        "unfold": partial(unfold_maps, heightmap, bottom, size),
    }
    spent, expected = {}, plain["numpy"]()
    rows: dict[str, dict[str, object]] = {}
    for method, work in plain.items():
        spent[method] = clock.cost(clock.measure(work, parts=1 / size.rows))
        rows[method] = {"cpu_ms": spent[method], "same_bits": same_bits(work(), expected)}
    for backend in kernels.available_backends("cpu"):
        work = partial(kernel_maps, heightmap, bottom, size, backend)
        same = same_bits(work(), expected)
        call = partial(kernels.drop_height, heightmap, bottom, size.stride, backend=backend)
        cpu_ms = clock.cost(clock.measure(call))
        ratios = {f"times_{name}": before / cpu_ms for name, before in spent.items()}
        rows[backend] = {"cpu_ms": cpu_ms, "same_bits": same, **ratios}
    return rows


def main() -> None:
    """Measure, print, and write the file."""
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", nargs="+", default=["A", "B", "flat"], choices=SIZES)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--out", default="benchmarks/results/drop_formulations.json")
    args = parser.parse_args()
    clock = Clock(torch.device("cpu"), repeats=args.repeats)
    report = {}
    for name in args.problems:
        report[name] = measure(clock, SIZES[name])
        print(name, *(f"{method}: {row}" for method, row in report[name].items()), sep="\n  ")
    write_json(args.out, provenance(args) | {"problems": report})


if __name__ == "__main__":
    main()
