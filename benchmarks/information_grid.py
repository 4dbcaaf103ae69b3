"""The price of information: RS-125 with more visible and more previewed items.

    python benchmarks/information_grid.py [--instances 100] [--width 32] [--processes 2]
        [--base RUN] [--visible 1] [--preview 0 5] [--out ...] [key=value ...]

Each cell of the grid is a number of items that may be chosen and a number of further items that are
known. `Beam` plans with all of these items and the values of a trained agent:
`pretrained/cuboid_online` for one visible item, `pretrained/cuboid_buffer` for several. All cells
play the same held-out instances. The JSON is written after each cell, and the same command
continues an interrupted run; the picture is drawn at the end. `key=value` sets options of the
environment, for another stream of boxes; then `--base` must be a run of an agent that was trained
on this stream.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from omegaconf import OmegaConf
from provenance import provenance, read_arguments, write_json

from agents import load_policy
from agents.search import Beam
from agents.training.evaluate import evaluate
from packing_env import make_env

VISIBLE, PREVIEW = (1, 3, 5, 10), (0, 5, 10, 20)
ROWS = 50
BASES = {False: ("pretrained/cuboid_online", 24), True: ("pretrained/cuboid_buffer", 48)}
"""Agent, and number of candidates per later item of a plan; True: several items are visible."""
OUT = Path("benchmarks/results/information_grid.json")

Cell = dict[str, Any]


def play(visible: int, preview: int, settings: dict[str, Any]) -> Cell:
    """Play one cell of the grid on one thread."""
    torch.set_num_threads(1)
    env = make_env(
        "cuboid_online", ROWS, split="test", draw="sequential", num_visible=visible,
        preview=preview, row_offset=0, **{"pool_size": 2048, **settings["options"]},
    )  # fmt: skip
    base, candidates = BASES[visible > 1]
    base = settings["base"] or base
    search = Beam(
        env,
        partial(load_policy, base),
        width=settings["width"],
        breadth=settings["breadth"],
        depth=settings["depth"],
        num_candidates=candidates,
    )
    result = evaluate(env, search, settings["instances"])
    return {
        "visible": visible,
        "preview": preview,
        "base": base,
        "candidates": candidates,
        "utilization": vars(result.estimate("utilization")),
        "decision_ms": result.decision_ms,
    }


def cells(
    settings: dict[str, Any], grid: set[tuple[int, int]], out: Path, processes: int
) -> Iterator[Cell]:
    """Yield the cells that a file has for these settings, then each missing cell when it ends."""
    before = json.loads(out.read_text()) if out.exists() else {}
    rows = before["cells"] if before.get("settings") == settings else []
    yield from rows
    done = {(row["visible"], row["preview"]) for row in rows}
    # The longest cells first, so that the processes end at about the same time.
    rest = sorted(grid - done, key=sum, reverse=True)
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        futures = [pool.submit(play, *cell, settings) for cell in rest]
        for future in as_completed(futures):
            yield future.result()


def draw(rows: list[Cell], path: Path) -> None:
    """Draw utilization over the number of previewed items."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6.4, 4.0), layout="constrained")
    for visible in VISIBLE:
        mine = sorted((r for r in rows if r["visible"] == visible), key=lambda r: r["preview"])
        axes.errorbar(
            [row["preview"] for row in mine],
            [row["utilization"]["mean"] for row in mine],
            [row["utilization"]["half_width"] for row in mine],
            marker="o",
            capsize=3,
            label=f"{visible} visible",
        )
    axes.set(
        xlabel="further known items (preview)", ylabel="utilization", xticks=PREVIEW, title="RS-125"
    )
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    """Play the grid, write the JSON and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--breadth", type=int, default=8)
    parser.add_argument("--depth", type=int, default=10)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--base", help="agent for every cell, instead of a pretrained one")
    parser.add_argument("--visible", type=int, nargs="+", default=VISIBLE)
    parser.add_argument("--preview", type=int, nargs="+", default=PREVIEW)
    parser.add_argument("--out", type=Path, default=OUT)
    args, overrides = read_arguments(parser)
    options = OmegaConf.to_container(OmegaConf.from_dotlist(overrides))
    settings = {key: getattr(args, key) for key in ("instances", "width", "breadth", "depth")}
    settings |= {"base": args.base, "options": options}
    rows: list[Cell] = []
    grid = set(product(args.visible, args.preview))
    for row in cells(settings, grid, args.out, args.processes):
        rows.append(row)
        print(row, flush=True)
        write_json(str(args.out), provenance() | {"settings": settings, "cells": rows})
    if not overrides and set(product(VISIBLE, PREVIEW)) <= grid:
        draw(rows, args.out.with_suffix(".png"))


if __name__ == "__main__":
    main()
