"""Large orders from end to end: `packing pack` on 5,000 equal cartons and on 300 distinct meshes.

    python benchmarks/order_load.py [--cartons 5000] [--meshes 300] [--seconds 30]

Cartons of 300 x 200 x 150 mm go into as many containers of 12,032 x 2,352 x 2,393 mm as they need.
The meshes are the convex hulls of random points and extruded random polygons, 20 to 80 mm long,
written as STL to a temporary folder; they go into four containers of 400 x 300 x 300 mm. The
command runs in a separate process, once to compile the kernels and once for the measurement. The
time includes reading, packing, writing all files and the check by the reference program.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import trimesh
from provenance import provenance, write_json
from scipy.spatial import ConvexHull

PACK = [sys.executable, "-m", "agents.cli", "pack"]
HALL = "12032x2352x2393mm"


def write_mesh(path: Path, number: int) -> None:
    """Write a random solid: a hull of points, or an extruded polygon."""
    random = np.random.default_rng(number)
    size = random.uniform(20.0, 80.0, 3)
    if number % 2:
        points = random.uniform(-0.5, 0.5, (int(random.integers(12, 60)), 3)) * size
        mesh = trimesh.convex.convex_hull(points)
    else:
        angles = np.sort(random.uniform(0, 2 * np.pi, int(random.integers(5, 12))))
        corners = np.stack([np.cos(angles), np.sin(angles)], 1) * size[:2] / 2
        corners = corners[ConvexHull(corners).vertices]
        both = [np.column_stack([corners, np.full(len(corners), z)]) for z in (0.0, size[2])]
        mesh = trimesh.convex.convex_hull(np.concatenate(both))
    mesh.export(path)


def run(words: list[str], seconds: float, folder: Path) -> dict[str, Any]:
    """Run the command; return its times, its peak memory and the numbers that it prints."""
    out = folder / "packed"
    command = [*PACK, *words, "--seconds", str(seconds), "--out", str(out)]
    start = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    wall = time.perf_counter() - start
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}\n{text}")
    packed = re.search(r"packed ([\d,]+) of ([\d,]+) parts in (\d+) container", text)
    utilization = re.search(r"utilization ([\d.]+) %", text)
    assert packed is not None
    assert utilization is not None
    files = {file.name: file.stat().st_size for file in sorted(out.iterdir())}
    return {
        "seconds_asked": seconds,
        "wall_seconds": wall,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": usage.ru_maxrss * 1024,
        "packed": int(packed[1].replace(",", "")),
        "parts": int(packed[2].replace(",", "")),
        "containers": int(packed[3]),
        "utilization": float(utilization[1]) / 100,
        "checked": text.count(", checked"),
        "file_bytes": sum(files.values()),
    }


def cartons(count: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Pack equal cartons."""
    order = folder / "cartons.csv"
    header = "name,length (mm),width (mm),height (mm),quantity,weight\n"
    order.write_text(f"{header}carton,300,200,150,{count},4.5\n", encoding="utf-8")
    return run([str(order), "--container", HALL, "--containers", "4"], seconds, folder)


def meshes(count: int, seconds: float, folder: Path) -> dict[str, Any]:
    """Pack distinct meshes, each once."""
    place = folder / "meshes"
    place.mkdir()
    for number in range(count):
        write_mesh(place / f"part {number:03}.stl", number)
    words = [str(place), "--unit", "mm", "--container", "400x300x300mm", "--containers", "4"]
    return run(words, seconds, folder)


def main() -> None:
    """Run both orders and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cartons", type=int, default=5000)
    parser.add_argument("--meshes", type=int, default=300)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--out", default="benchmarks/results/orders_load.json")
    args = parser.parse_args()
    report: dict[str, Any] = provenance() | {"arguments": vars(args)}
    with tempfile.TemporaryDirectory() as warm:
        for order in (cartons, meshes):
            order(3, 0.1, Path(warm))
    for name, order, count in (
        ("cartons", cartons, args.cartons),
        ("meshes", meshes, args.meshes),
    ):
        with tempfile.TemporaryDirectory() as folder:
            report[name] = order(count, args.seconds, Path(folder))
        print(name, json.dumps(report[name]), flush=True)
    write_json(args.out, report)


if __name__ == "__main__":
    main()
