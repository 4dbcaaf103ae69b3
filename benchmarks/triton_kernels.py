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
import triton_fused
import triton_heights
import triton_step
from provenance import provenance, write_json
from triton_code import LATTICES, Code, compiled, variants

from packing_env import make_env
from packing_env.kernels.compiled import triton as base
from packing_env.kernels.compiled.scene_triton import block_side

OUT = "benchmarks/results/triton_kernels.json"
ARCHITECTURES = (80, 90)
MULTIPROCESSORS, SCHEDULERS, CLOCK = 132, 4, 1.98e9
"""NVIDIA H100 SXM5: instructions of a warp per cycle and multiprocessor, and boost clock in Hz."""

ROWS, ORIENTATIONS, (STRIDE, CELLS, WINDOW) = 1024, 24, LATTICES[-1]
"""The reference configuration."""


class Cost(NamedTuple):
    """Instructions of a warp in the kernel of drop maps, and its loads for one line of a block."""

    program: int
    floor: float
    reach: int
    line: int
    line_loads: int


def cost(code: Code) -> Cost:
    """Read the loops of the kernel of drop maps: floors of blocks, their reaches, and lines."""
    place = {address: i for i, (address, _) in enumerate(code.instructions)}
    loops = []
    for end, (address, text) in enumerate(code.instructions):
        found = re.search(r"\bBRA\b.*0x([0-9a-f]+)", text)
        if found and int(found[1], 16) < address:
            loops.append((place[int(found[1], 16)], end + 1))
    inner = [one for one in loops if not any(_holds(one, other) for other in loops)]
    line = max(inner, key=lambda loop: loop[1] - loop[0])
    block = min((o for o in loops if _holds(o, line)), key=lambda loop: loop[1] - loop[0])
    floors = [one for one in inner if one[1] <= block[0]]
    floor = min((one[1] - one[0]) / (_loads(code, one) / 3) for one in floors)
    inside = {i for start, end in loops for i in range(start, end)}
    return Cost(
        len(code.instructions) - len(inside),
        floor,
        block[1] - block[0] - (line[1] - line[0]),
        line[1] - line[0],
        _loads(code, line),
    )


def _holds(outer: tuple[int, int], loop: tuple[int, int]) -> bool:
    """Return True for a loop around another one."""
    return outer != loop and outer[0] <= loop[0] and loop[1] <= outer[1]


def _loads(code: Code, loop: tuple[int, int]) -> int:
    """Return the loads among the instructions of a loop."""
    return sum("LDG" in text for _, text in code.instructions[slice(*loop)])


def scanned_share(steps: int, items: int, seed: int = 0) -> list[float]:
    """Return the share of block lines that tiles look at, by the step of an episode.

    Items are drawn from the catalogue of `irregular_paper`, placements of the episode at random.
    """
    env = make_env("irregular_paper", num_envs=1, pool_size=16, seed=seed)
    catalogue, root, shares = env.catalogue.tensors(), env.reset(), []
    random = np.random.default_rng(seed)
    for _ in range(steps):
        ground = env.get_state()["heightmap"][0].numpy()
        looked = total = 0
        for _ in range(items):
            item = random.integers(len(catalogue["size"]))
            orientation = random.integers(int(catalogue["orientation_mask"][item].sum()))
            w, h = catalogue["size"][item, orientation].tolist()
            lines = lines_of(ground, catalogue["bottom"][item, orientation, :w, :h].numpy())
            looked, total = looked + lines[0], total + lines[1]
        shares.append(looked / total)
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
    return shares


def lines_of(ground: np.ndarray, bottom: np.ndarray) -> tuple[int, int]:
    """Return the lines of blocks that the tiles of an item look at, and all of them."""
    side, steps = block_side(STRIDE), block_side(STRIDE) // STRIDE
    sizes = base.constants_of(STRIDE, -(-ground.shape[1] // STRIDE), (0, 0), bottom.shape)
    tile = (sizes["TILE_X"], sizes["TILE_Y"])
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(ground, (0, side), constant_values=np.nan), (side, side)
    )[::STRIDE, ::STRIDE]
    highest, lowest = np.nanmax(windows, (2, 3)), np.nanmin(windows, (2, 3))
    nx, ny = ((n - m) // STRIDE + 1 for n, m in zip(ground.shape, bottom.shape, strict=True))
    blocks = []
    for a in range(0, bottom.shape[0], side):
        for c in range(0, bottom.shape[1], side):
            cells = bottom[a : a + side, c : c + side]
            at = (slice(a // side * steps, a // side * steps + nx),
                  slice(c // side * steps, c // side * steps + ny))  # fmt: skip
            blocks.append((a, c, cells, highest[at] - cells.min(), lowest[at] - cells.min()))
    z = np.max([block[4] for block in blocks], 0)
    looked = total = 0
    for a, c, cells, reach, _ in blocks:
        binds = _tiled(reach > z, tile)
        looked, total = looked + binds.sum() * len(cells), total + binds.size * len(cells)
        scanned = binds.repeat(tile[0], 0).repeat(tile[1], 1)[:nx, :ny]
        for u, v in zip(*np.nonzero(np.isfinite(cells)), strict=True):
            under = ground[a + u :: STRIDE, c + v :: STRIDE][:nx, :ny]
            z = np.where(scanned, np.maximum(z, under - cells[u, v]), z)
    return int(looked), int(total)


def _tiled(marks: np.ndarray, tile: tuple[int, int]) -> np.ndarray:
    """Return which tiles hold a mark."""
    rest = [(0, -n % side) for n, side in zip(marks.shape, tile, strict=True)]
    padded = np.pad(marks, rest)
    nx, ny = (n // side for n, side in zip(padded.shape, tile, strict=True))
    return np.asarray(padded.reshape(nx, tile[0], ny, tile[1]).any((1, 3)))


def estimate(of: Cost, share: float) -> dict[str, float]:
    """Return milliseconds of the drop maps at the reference configuration, by what limits them."""
    steps, side = CELLS // STRIDE, block_side(STRIDE)
    fits = (CELLS - WINDOW) // STRIDE + 1
    sizes = base.constants_of(STRIDE, steps, (0, 0), (WINDOW, WINDOW))
    tiles = -(-fits // sizes["TILE_X"]) * -(-fits // sizes["TILE_Y"])
    programs = -(-steps // sizes["TILE_X"]) * -(-steps // sizes["TILE_Y"])
    blocks = tiles * (-(-WINDOW // side)) ** 2
    lines = blocks * side * share
    issued = programs * of.program + blocks * (of.floor + of.reach) + lines * of.line
    # A load of two pieces of 16 words takes 1.5 cycles, that of one word for all threads 1.
    grounds = of.line_loads - sizes["ACROSS"]
    loaded = lines * (1.5 * grounds + sizes["ACROSS"]) + blocks * 2 * (2 * 1.5 + 1)
    maps = ROWS * ORIENTATIONS / MULTIPROCESSORS / CLOCK * 1e3
    return {
        "instructions_ms": round(issued / SCHEDULERS * maps, 2),
        "loads_ms": round(loaded * maps, 2),
    }


def main() -> None:
    """Compile, count, estimate and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20, help="decisions of the episode")
    parser.add_argument("--items", type=int, default=20, help="items looked at, each step")
    parser.add_argument("--share", type=float, help="take this share instead of an episode's")
    parser.add_argument("--out", default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    table: list[dict[str, Any]] = []
    costs: dict[Any, Any] = {}
    step: dict[Any, Any] = {}
    others = (triton_step, triton_heights, triton_fused)
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
            if plain and variant.constants["STRIDE"] == STRIDE:
                costs[architecture] = cost(code)
            if variant.kernel.__name__ == "step_kernel" and architecture == 90 and not step:
                step = triton_step.estimate(code)  # the first is cuboid_online
    shares = [args.share] if args.share else scanned_share(args.steps, args.items)
    mean = float(np.mean(shares))
    report = {
        **provenance(args),
        "triton": triton.__version__,
        "kernels": table,
        "drop_maps": {
            "rows": ROWS, "orientations": ORIENTATIONS, "cells": CELLS, "stride": STRIDE,
            "window": WINDOW, "cost": {sm: made._asdict() for sm, made in costs.items()},
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
