"""Estimated times of drop maps with tiles and blocks that differ from those of the kernel.

    python benchmarks/triton_tiles.py [--out benchmarks/results/triton_tiles.json]

Each variant is the kernel of drop maps, compiled for sm_90 with other constants: the threads that
share a placement, which determine the tile, and the cells along a block's side. Counts, estimates
and episodes are those of `triton_kernels.py`.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from provenance import provenance, write_json
from triton_code import Variant, compiled
from triton_kernels import REFERENCE, cost, estimate, named, scanned_share, tile_of

from packing_env.kernels.compiled import triton as base

OUT = "benchmarks/results/triton_tiles.json"
ARCHITECTURE = 90
TRIED = ((4, 8), (2, 8), (4, 4), (2, 4))
"""Threads that share a placement, and cells along a block's side; the kernel has the first pair."""


def main() -> None:
    """Compile, count, estimate and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--episodes", type=int, default=5, help="random episodes")
    parser.add_argument("--steps", type=int, default=20, help="decisions of an episode")
    parser.add_argument("--items", type=int, default=5, help="items per step")
    parser.add_argument("--out", default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for threads, side in TRIED:
        lattice = REFERENCE._replace(threads=threads, side=side)
        constants = {**base.constants_of(lattice), "COUNT": False, "peak": None}
        code = compiled(Variant(base.gaps_kernel, constants), ARCHITECTURE)
        share = float(np.mean(scanned_share(args.episodes, args.steps, args.items, lattice)))
        rows.append({
            "threads": threads, "side": side, "tile": tile_of(lattice),
            "registers": code.registers, "local_bytes": code.local_bytes,
            "cost": named(cost(code, lattice)), "share": round(share, 4),
            "h100": estimate(cost(code, lattice), share, lattice),
        })  # fmt: skip
        print(rows[-1])
    write_json(args.out, {**provenance(args), "tiles": rows})


if __name__ == "__main__":
    main()
