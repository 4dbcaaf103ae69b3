"""The same milestones as `first_hour.py`, in this project and in three others.

    python benchmarks/first_hour_elsewhere.py Jumanji=venvs/jumanji BenchMARL=venvs/benchmarl \
        "RL Baselines3 Zoo=venvs/zoo"

Each argument names a project and its own virtual environment: `pip install torch==2.13.0`, then
`jumanji[train] jax==0.7.2 jaxlib==0.7.2`, `benchmarl vmas`, or `rl_zoo3 tensorboard onnx
onnxscript`. This project runs in the environment of this interpreter. The programs are in
`first_hour_elsewhere.md`. The milestones of a project share a folder, and caches that are empty at
the start. Every program runs in a separate process, on one thread. Other programs on the machine
add to the wall time, but hardly to the CPU time. Rows of projects that are not named stay in the
file; with --only, rows of other milestones stay, too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from provenance import provenance, write_json

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = Path(__file__).with_suffix(".md")
FILE = re.compile(r"`([\w./]+)`:\n\n```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^```bash\n(.*?)\n```", re.MULTILINE | re.DOTALL)
LIMIT = 1800.0
"""Seconds after which a program is stopped."""
PACKAGES = ("torch", "torchrl", "jax", "jumanji", "benchmarl", "vmas", "rl_zoo3")


def milestones(project: str) -> list[tuple[str, dict[str, str], str]]:
    """Return name, files and command of each milestone of a project."""
    text = PROGRAMS.read_text(encoding="utf-8")
    section = re.split(r"^## ", text.partition(f"\n## {project}\n")[2], flags=re.MULTILINE)[0]
    blocks = re.split(r"^### ", section, flags=re.MULTILINE)[1:]
    return [
        (block.partition("\n")[0], dict(FILE.findall(block)), COMMAND.findall(block)[0])
        for block in blocks
    ]


def lines_of(files: dict[str, str]) -> int:
    """Return the number of lines of code, without empty ones."""
    return sum(bool(line.strip()) for text in files.values() for line in text.splitlines())


def waited(words: list[str], folder: Path, environment: dict[str, str]) -> dict[str, float]:
    """Return the seconds that a program takes, or the limit that stopped it."""
    start, before = time.perf_counter(), os.times()
    try:
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT
        )
    except subprocess.TimeoutExpired:
        return {"stopped_after_seconds": LIMIT}
    wall, after = time.perf_counter() - start, os.times()
    if done.returncode != 0:
        raise RuntimeError(f"{words}: {done.stderr[-2000:]}")
    cpu = after.children_user - before.children_user
    cpu += after.children_system - before.children_system
    return {"wall_seconds": round(wall, 1), "cpu_seconds": round(cpu, 1)}


def play(project: str, python: str, only: list[str] | None) -> Iterator[dict[str, Any]]:
    """Yield a row per milestone of a project, reached in an empty folder with empty caches."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            **os.environ,
            **{"XDG_CACHE_HOME": f"{name}/cache", "NUMBA_CACHE_DIR": f"{name}/numba"},
            **{"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "WANDB_MODE": "disabled"},
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        }
        for milestone, files, command in milestones(project):
            if only is not None and milestone not in only:
                continue
            for file, text in files.items():
                (folder / file).write_text(text, encoding="utf-8")
            program, *words = shlex.split(command)
            words = ["-m", "agents.cli", *words] if program == "packing" else words
            row = {"project": project, "milestone": milestone, "lines": lines_of(files)}
            row |= {"command": command, "load_average": round(os.getloadavg()[0], 1)}
            row |= waited([python, *words], folder, environment)
            print(row, flush=True)
            yield row


def versions(python: str) -> dict[str, str]:
    """Return the versions of the packages of an environment."""
    code = (
        "import importlib.metadata as m, json\n"
        "v = {d.metadata['Name'].lower(): d.version for d in m.distributions()}\n"
        f"print(json.dumps({{p: v[p] for p in {PACKAGES} if p in v}}))"
    )
    completed = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True)
    return dict(json.loads(completed.stdout))


def main() -> None:
    """Measure the projects and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("environments", nargs="*", metavar="PROJECT=FOLDER")
    parser.add_argument("--others", action="store_true", help="leave this project out")
    parser.add_argument("--only", nargs="+", metavar="MILESTONE")
    parser.add_argument("--out", default=str(ROOT / "benchmarks/results/first_hour_elsewhere.json"))
    args = parser.parse_args()
    pythons = {} if args.others else {"packing-env": sys.executable}
    for argument in args.environments:
        project, _, folder = argument.partition("=")
        pythons[project] = str(Path(folder).absolute() / "bin/python")
    old = json.loads(Path(args.out).read_text()) if Path(args.out).is_file() else {}
    projects = old.get("projects", {})
    rows = {(row["project"], row["milestone"]): row for row in old.get("rows", [])}
    for project, python in pythons.items():
        projects[project] = versions(python)
        for row in play(project, python, args.only):
            rows[project, row["milestone"]] = row
            record = {"projects": projects, "rows": list(rows.values())}
            write_json(args.out, provenance(args) | record)


if __name__ == "__main__":
    main()
