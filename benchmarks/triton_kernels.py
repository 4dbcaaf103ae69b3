"""Registers, spills and estimated times of the Triton kernels, compiled without a GPU.

    python benchmarks/triton_kernels.py [--out benchmarks/results/triton_kernels.json]

Triton's bundled tools compile every kernel for sm_80 and sm_90 and list its machine code. The time
of the drop maps at the reference configuration (1,024 rows, 24 orientations, 200 x 200 cells,
lattice step 4, windows of 40 x 40) is estimated, not measured: see docs/benchmarks.md.
"""

from __future__ import annotations

import argparse
import collections
import re
from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton_heights
import triton_step
from provenance import provenance, write_json
from triton_code import LATTICES, Code, compiled, variants

from packing_env import make_env
from packing_env.kernels.compiled import triton as base
from packing_env.kernels.compiled.scene_triton import ROWS as THREAD_ROWS
from packing_env.kernels.compiled.scene_triton import Lattice, lattice_of

OUT = "benchmarks/results/triton_kernels.json"
ARCHITECTURES = (80, 90)
MULTIPROCESSORS, SCHEDULERS, CLOCK = 132, 4, 1.98e9
"""NVIDIA H100 SXM5: instructions of a warp per cycle and multiprocessor, and boost clock in Hz."""

HALF_RATE = r"\b(FMNMX|VIMNMX3?|IMNMX|FSETP|ISETP|FSET|FSEL|SEL|VIADD|IADD3|P?LOP3|LEA|SHF)\b"
"""Comparisons, maxima and integer arithmetic: each occupies its scheduler's unit for two cycles."""

WIDE = r"\bLDG\S*\.128"
"""Vector loads; only scans of blocks have them."""

ROWS, ORIENTATIONS, (STRIDE, CELLS, WINDOW) = 1024, 24, LATTICES[-1]
"""The reference configuration."""

REFERENCE = lattice_of(STRIDE, CELLS, CELLS)


class Work(NamedTuple):
    """Work of a warp: all instructions, instructions at half rate, and cycles of its loads."""

    instructions: float
    half_rate: float
    loads: float


class Cost(NamedTuple):
    """Work in the kernel of drop maps: per program, floor and test, and per scan of a block.

    A floor or a test handles several blocks: one for each thread that shares the placement.
    """

    program: Work
    floor: Work
    test: Work
    block: Work


def cost(code: Code, lattice: Lattice) -> Cost:
    """Compute costs from the kernel's loops: floors, and tests, which contain the scans."""
    place = {address: i for i, (address, _) in enumerate(code.instructions)}
    loops = []
    for end, (address, text) in enumerate(code.instructions):
        found = re.search(r"\bBRA\b.*0x([0-9a-f]+)", text)
        if found and int(found[1], 16) < address:
            loops.append((place[int(found[1], 16)], end + 1))
    texts = [text for _, text in code.instructions]
    inner = [one for one in loops if not any(_holds(one, other) for other in loops)]
    block = max(inner, key=lambda loop: _count(WIDE, texts[slice(*loop)]))
    test = min((o for o in loops if _holds(o, block)), key=lambda loop: loop[1] - loop[0])
    floor = min((o for o in inner if o[1] <= test[0]), key=lambda loop: loop[0])
    walks = _count(r"\bLDG", texts[slice(*floor)]) / (THREAD_ROWS.value + 2)
    # The compiler adds unrolled iterations after the floors' loop; they are subtracted below.
    again = _count(r"\bLDG", texts[floor[1] : test[0]]) / (THREAD_ROWS.value + 2)
    inside = {i for start, end in loops for i in range(start, end)}
    around = texts[test[0] : block[0]] + texts[block[1] : test[1]]
    # If the blocks of a thread group are neighbours along y, a load of the pooled ground reads one
    # piece; otherwise it reads two, which take 1.5 cycles. All other loads read one piece.
    along, last = -(-WINDOW // lattice.side), lattice.threads - 1
    firsts = range(0, along**2, lattice.threads)
    apart = sum(n // along != (n + last) // along for n in firsts) / len(firsts)
    pooled = 0.5 * THREAD_ROWS.value * apart
    each = Work(*(number / walks for number in _work(texts[slice(*floor)], pooled * walks)))
    program = _work([text for i, text in enumerate(texts) if i not in inside], pooled * again)
    return Cost(
        Work(*(all_of - again * one for all_of, one in zip(program, each, strict=True))),
        each,
        _work(around, pooled),
        _work(texts[slice(*block)], _vectors(texts[slice(*block)], lattice)),
    )


def _vectors(texts: list[str], lattice: Lattice) -> int:
    """Return the additional cycles of a block's vector loads, beyond one cycle each.

    In a load of the ground, the 32 threads together read ``vector`` pieces of 32 words; each starts
    at the border of a sector. In a load of a surface, all threads read the same few words.
    """
    surfaces = lattice.side**2 // (lattice.threads * lattice.vector)
    return (_count(WIDE, texts) - surfaces) * (lattice.vector - 1)


def _work(texts: list[str], more: float) -> Work:
    """Return the work of instructions; loads, stores and shuffles take a cycle, plus ``more``."""
    return Work(
        len(texts), _count(HALF_RATE, texts), _count(r"\b(LDG|STG|SHFL|REDUX)", texts) + more
    )


def _count(pattern: str, texts: list[str]) -> int:
    """Return how many instructions match."""
    return sum(bool(re.search(pattern, text)) for text in texts)


def _holds(outer: tuple[int, int], loop: tuple[int, int]) -> bool:
    """Return True for a loop around another one."""
    return outer != loop and outer[0] <= loop[0] and loop[1] <= outer[1]


def scanned_share(
    episodes: int, steps: int, items: int, lattice: Lattice = REFERENCE
) -> list[float]:
    """Return the mean share of blocks that tiles scan, for each step of an episode.

    Items are drawn from the catalogue of `irregular_paper`; placements are random legal ones.
    """
    looked, total = np.zeros(steps), np.zeros(steps)
    for seed in range(episodes):
        torch.manual_seed(seed)
        env = make_env("irregular_paper", num_envs=1, pool_size=16, seed=seed)
        catalogue, root = env.catalogue.tensors(), env.reset()
        random = np.random.default_rng(seed)
        for step in range(steps):
            ground = env.get_state()["heightmap"][0].numpy()
            for _ in range(items):
                item = random.integers(len(catalogue["size"]))
                orientation = random.integers(int(catalogue["orientation_mask"][item].sum()))
                w, h = catalogue["size"][item, orientation].tolist()
                bottom = catalogue["bottom"][item, orientation, :w, :h].numpy()
                blocks = blocks_of(ground, bottom, lattice)
                looked[step], total[step] = looked[step] + blocks[0], total[step] + blocks[1]
            root = env.step_and_maybe_reset(env.rand_action(root))[1]
    return [float(share) for share in looked / total]


def blocks_of(ground: np.ndarray, bottom: np.ndarray, lattice: Lattice) -> tuple[int, int]:
    """Return how many blocks the tiles of an item scan, and the number of all blocks."""
    tile, side, steps = tile_of(lattice), lattice.side, lattice.side // STRIDE
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(ground, (0, side), constant_values=np.nan), (side, side)
    )[: ground.shape[0] : STRIDE, : ground.shape[1] : STRIDE]
    highest, lowest = np.nanmax(windows, (2, 3)), np.nanmin(windows, (2, 3))
    nx, ny = ((n - m) // STRIDE + 1 for n, m in zip(ground.shape, bottom.shape, strict=True))
    blocks = []
    for a in range(0, bottom.shape[0], side):
        for c in range(0, bottom.shape[1], side):
            cells = bottom[a : a + side, c : c + side]
            at = (slice(a // side * steps, a // side * steps + nx),
                  slice(c // side * steps, c // side * steps + ny))  # fmt: skip
            if np.isfinite(cells).any():
                blocks.append((a, c, cells, highest[at] - cells.min(), lowest[at] - cells.min()))
    z = np.max([block[4] for block in blocks], 0)
    looked = total = 0
    for first in range(0, len(blocks), lattice.threads):
        tested = [(one, _tiled(one[3] > z, tile)) for one in blocks[first:][: lattice.threads]]
        for (a, c, cells, _, _), binds in tested:
            looked, total = looked + binds.sum(), total + binds.size
            scanned = binds.repeat(tile[0], 0).repeat(tile[1], 1)[:nx, :ny]
            for u, v in zip(*np.nonzero(np.isfinite(cells)), strict=True):
                under = ground[a + u :: STRIDE, c + v :: STRIDE][:nx, :ny]
                z = np.where(scanned, np.maximum(z, under - cells[u, v]), z)
    return int(looked), int(total)


def tile_of(lattice: Lattice) -> tuple[int, int]:
    """Return the placements of a tile along x and y."""
    sizes = base.constants_of(lattice)
    return sizes["POINTS"] // sizes["TILE_Y"], sizes["TILE_Y"]


def _tiled(marks: np.ndarray, tile: tuple[int, int]) -> np.ndarray:
    """Return which tiles contain a placement that is marked."""
    rest = [(0, -n % side) for n, side in zip(marks.shape, tile, strict=True)]
    padded = np.pad(marks, rest)
    nx, ny = (n // side for n, side in zip(padded.shape, tile, strict=True))
    return np.asarray(padded.reshape(nx, tile[0], ny, tile[1]).any((1, 3)))


def estimate(of: Cost, share: float, lattice: Lattice = REFERENCE) -> dict[str, float]:
    """Return milliseconds of the drop maps at the reference configuration, by limiting resource."""
    tile, fits = tile_of(lattice), (CELLS - WINDOW) // STRIDE + 1
    tiles = -(-fits // tile[0]) * -(-fits // tile[1])
    programs = -(-lattice.xs // tile[0]) * -(-lattice.ys // tile[1])
    blocks = (-(-WINDOW // lattice.side)) ** 2
    tests = -(-blocks // lattice.threads)
    times = (programs, tiles * tests, tiles * tests, tiles * blocks * share)
    maps = ROWS * ORIENTATIONS / MULTIPROCESSORS / CLOCK * 1e3
    per_map = [sum(n * work[i] for n, work in zip(times, of, strict=True)) for i in range(3)]
    return {
        "instructions_ms": round(per_map[0] / SCHEDULERS * maps, 2),
        "half_rate_ms": round(per_map[1] * 2 / SCHEDULERS * maps, 2),
        "loads_ms": round(per_map[2] * maps, 2),
    }


def named(of: Cost) -> dict[str, dict[str, float]]:
    """Return costs as they are written to the result file."""
    return {name: work._asdict() for name, work in of._asdict().items()}


def main() -> None:
    """Compile, count, estimate and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--episodes", type=int, default=5, help="random episodes")
    parser.add_argument("--steps", type=int, default=20, help="decisions of an episode")
    parser.add_argument("--items", type=int, default=5, help="items per step")
    parser.add_argument("--share", type=float, help="share of scanned blocks; default: measured")
    parser.add_argument("--out", default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    table: list[dict[str, Any]] = []
    costs: dict[Any, Any] = {}
    step: dict[Any, Any] = {}
    others = (triton_step, triton_heights)
    for variant in (*variants(), *(each for module in others for each in module.variants())):
        for architecture in ARCHITECTURES:
            code = compiled(variant, architecture)
            kinds = collections.Counter(
                re.sub(r"^@!?U?P\w+\s+", "", text).split()[0].split(".")[0]
                for _, text in code.instructions
            )
            table.append({
                "kernel": variant.name, "sm": architecture, "registers": code.registers,
                "local_bytes": code.local_bytes, "shared_bytes": code.shared_bytes,
                "instructions": len(code.instructions),
                "most": dict(kinds.most_common(6)),
            })  # fmt: skip
            plain = variant.constants.get("COUNT") is False and "peak" in variant.constants
            if plain and variant.stride == STRIDE:
                costs[architecture] = cost(code, REFERENCE)
            if variant.kernel.__name__ == "step_kernel" and architecture == 90 and not step:
                step = triton_step.estimate(code)  # the first is cuboid_online
    shares = [args.share] if args.share else scanned_share(args.episodes, args.steps, args.items)
    mean = float(np.mean(shares))
    report = {
        **provenance(args),
        "triton": triton.__version__,
        "kernels": table,
        "drop_maps": {
            "rows": ROWS, "orientations": ORIENTATIONS, "cells": CELLS, "stride": STRIDE,
            "window": WINDOW, "cost": {sm: named(made) for sm, made in costs.items()},
            "share_by_step": [round(share, 4) for share in shares], "share": round(mean, 4),
            "h100": estimate(costs[90], mean),
            "h100_roughest_step": estimate(costs[90], max(shares)),
        },
        "cuboid_step": step,
    }  # fmt: skip
    write_json(args.out, report)
    print(report["drop_maps"], report["cuboid_step"])


if __name__ == "__main__":
    main()
