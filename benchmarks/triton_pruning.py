"""Share of cells that drop maps with exact pruning scan, for several blocks, tiles and orders.

    python benchmarks/triton_pruning.py [--steps 20] [--items 2] [--out FILE]

The reference configuration is that of `triton_kernels.py`: windows of `irregular_paper` over the
ground of an episode of random placements, 200 x 200 cells, a placement at every fourth cell. A tile
of placements scans a block of cells if, for one of its placements, the block's bound (highest
ground - lowest cell) exceeds the rest height known so far. The first known rest height is a floor.
It is the largest value of lowest ground - lowest cell over the blocks (`pooled`), or the largest
gap at the lowest cell of a block (`cell`). Blocks are visited row by row (`rows`), or in the order
in which their bounds exceed the floor (`best`). `final` is a lower limit for every order, because
it uses the final rest heights. ``8 then 4`` tests blocks of 8 x 8, and then the quarters of the
blocks that must be scanned.
"""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import torch
from provenance import provenance, write_json

from packing_env import make_env

OUT = "benchmarks/results/triton_pruning.json"
STRIDE, TILES = 4, ((4, 16), (4, 8), (8, 8), (8, 16))


class Blocks(NamedTuple):
    """Values of each block and placement ``[N, nx, ny]``: highest gap, bound, both floors."""

    gap: np.ndarray
    bound: np.ndarray
    pooled: np.ndarray
    cell: np.ndarray


def blocks_of(ground: np.ndarray, bottom: np.ndarray, side: int) -> Blocks:
    """Return the blocks of a window, in rows; blocks without a finite cell are never scanned."""
    shape = tuple((n - m) // STRIDE + 1 for n, m in zip(ground.shape, bottom.shape, strict=True))
    whole = [-(-n // 8) * 8 for n in bottom.shape]
    cells = np.full(whole, np.inf, np.float32)
    cells[: bottom.shape[0], : bottom.shape[1]] = bottom
    wide = np.pad(ground, (0, 8), constant_values=np.nan)
    found = []
    for a in range(0, whole[0], side):
        for c in range(0, whole[1], side):
            part = cells[a : a + side, c : c + side]
            under = [
                wide[a + u :: STRIDE, c + v :: STRIDE][: shape[0], : shape[1]]
                for u in range(side)
                for v in range(side)
            ]
            gaps = [h - d for h, d in zip(under, part.flat, strict=True) if np.isfinite(d)]
            none = np.full(shape, -np.inf, np.float32)
            low, at = part.min(), int(part.argmin())
            high, least = np.fmax.reduce(under), np.fmin.reduce(under)
            last = under[at] - low if gaps else none
            found.append((np.fmax.reduce([none, *gaps]), high - low, least - low, last))
    return Blocks(*(np.stack(each) for each in zip(*found, strict=True)))


def tiled(maps: np.ndarray, tile: tuple[int, int], fill: float) -> np.ndarray:
    """Return maps ``[N, nx, ny]`` divided into tiles, ``[N, tiles, placements]``."""
    rest = [(0, -n % side) for n, side in zip(maps.shape[1:], tile, strict=True)]
    padded = np.pad(maps, ((0, 0), *rest), constant_values=fill)
    count, nx, ny = padded.shape
    split = padded.reshape(count, nx // tile[0], tile[0], ny // tile[1], tile[1])
    return split.transpose(0, 1, 3, 2, 4).reshape(count, -1, tile[0] * tile[1])


def scanned(blocks: Blocks, tile: tuple[int, int], floor: str, order: str) -> tuple[int, int]:
    """Return how many pairs of a block and a tile are scanned, and the number of all pairs."""
    gap, bound = (tiled(each, tile, -np.inf) for each in blocks[:2])
    z = tiled(np.fmax(blocks.pooled, getattr(blocks, floor)), tile, np.inf).max(0)
    inside, tiles = np.isfinite(z), np.arange(gap.shape[1])
    if order == "final":
        last = np.maximum(z, gap.max(0))
        return int(((bound > last) & inside).any(2).sum()), gap[..., 0].size
    excess = np.where(inside, bound - np.where(inside, z, 0), -np.inf).max(2)
    rows = np.broadcast_to(np.arange(len(gap))[:, None], excess.shape)
    looked = 0
    for index in np.argsort(-excess, 0, kind="stable") if order == "best" else rows:
        binds = ((bound[index, tiles] > z) & inside).any(1)
        looked += int(binds.sum())
        z = np.where(binds[:, None], np.maximum(z, gap[index, tiles]), z)
    return looked, gap[..., 0].size


def scanned_in_two(
    large: Blocks, small: Blocks, tile: tuple[int, int], along: int
) -> tuple[int, int, int]:
    """Return how many quarters are scanned, how many are tested, and the number of all."""
    gap, bound = (tiled(each, tile, -np.inf) for each in small[:2])
    first = tiled(large.bound, tile, -np.inf)
    z = tiled(large.pooled, tile, np.inf).max(0)
    inside, looked, tested = np.isfinite(z), 0, 0
    for block in range(len(first)):
        here = ((first[block] > z) & inside).any(1)
        corner = block // along * 4 * along + block % along * 2
        for quarter in (corner, corner + 1, corner + 2 * along, corner + 2 * along + 1):
            tested += int(here.sum())
            binds = here & ((bound[quarter] > z) & inside).any(1)
            looked += int(binds.sum())
            z = np.where(binds[:, None], np.maximum(z, gap[quarter]), z)
    return looked, tested, gap[..., 0].size


def main() -> None:
    """Play an episode, count and write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--steps", type=int, default=20, help="decisions of the episode")
    parser.add_argument("--items", type=int, default=2, help="items per step")
    parser.add_argument("--out", default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    env = make_env("irregular_paper", num_envs=1, pool_size=16, seed=0)
    catalogue, root, random = env.catalogue.tensors(), env.reset(), np.random.default_rng(0)
    looked: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for _ in range(args.steps):
        ground = env.get_state()["heightmap"][0].numpy()
        for _ in range(args.items):
            item = random.integers(len(catalogue["size"]))
            orientation = random.integers(int(catalogue["orientation_mask"][item].sum()))
            w, h = catalogue["size"][item, orientation].tolist()
            bottom = catalogue["bottom"][item, orientation, :w, :h].numpy()
            sides = {side: blocks_of(ground, bottom, side) for side in (8, 4)}
            for tile in TILES:
                said = f"tile {tile[0]}x{tile[1]}"
                for side, blocks in sides.items():
                    for floor in ("pooled", "cell"):
                        for order in ("rows", "best", "final"):
                            name = f"{side}x{side}, {said}, {floor}, {order}"
                            found = scanned(blocks, tile, floor, order)
                            looked[name], total[name] = (
                                looked[name] + found[0],
                                total[name] + found[1],
                            )
                two = scanned_in_two(sides[8], sides[4], tile, -(-h // 8))
                for name, count in zip(("scanned", "tested"), two[:2], strict=True):
                    name = f"8 then 4, {said}, pooled, rows, {name}"
                    looked[name], total[name] = looked[name] + count, total[name] + two[2]
        root = env.step_and_maybe_reset(env.rand_action(root))[1]
    shares: dict[str, Any] = {name: round(looked[name] / total[name], 4) for name in sorted(total)}
    write_json(args.out, {**provenance(args), "shares": shares})


if __name__ == "__main__":
    main()
