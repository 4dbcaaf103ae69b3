"""How long a newcomer waits for the first step, curve, reward, rule, agent and exported policy.

    python benchmarks/first_hour.py [--only gymnasium own]

Each user starts with empty caches (numba, catalogues) and runs the programs of the documentation
unchanged, in the order of the list; every program runs in a separate process. Other programs on the
machine add to the wall time, but hardly to the CPU time. With --only, the rows of the other users
stay in the file. Needs the extra `sb3`.
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
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from provenance import provenance, write_json

ROOT = Path(__file__).resolve().parents[1]
FILE = re.compile(
    r"`(my_pkg/[\w/.]+)`(?:(?!```).)*```(?:python|yaml)\n(.*?)^```", re.MULTILINE | re.DOTALL
)
SHORT = "trainer.frames=20000 env.num_envs=64 env.pool_size=256 run_dir=run"
PACKAGE = "packing train --import my_pkg env=cuboid_online trainer.frames=4096 env.pool_size=256"


@dataclass(frozen=True)
class Step:
    """A milestone of a user.

    Attributes:
        name: What the user has afterwards.
        page: The page or example that shows it, relative to the repository.
        command: A command line; None means the Python block of the page with ``mark``.
        mark: A word that identifies the block.
    """

    name: str
    page: str
    command: str | None = None
    mark: str = ""


USERS: dict[str, Sequence[Step]] = {
    "gymnasium": (
        Step("first step", "docs/start.md", mark="gymnasium.make"),
        Step("first learning curve", "docs/how-to/stable-baselines3.md", mark="MaskablePPO"),
    ),
    "cleanrl": (
        Step("first step", "docs/how-to/cleanrl.md", mark="make_vec"),
        Step(
            "first learning curve",
            "examples/15_cleanrl_ppo.py",
            "python examples/15_cleanrl_ppo.py --env-id Packing-v2 --updates 10",
        ),
    ),
    "torchrl": (
        Step("first step", "docs/start.md", mark="pe.make_env"),
        Step(
            "first learning curve",
            "examples/09_torchrl_trainers.py",
            "python examples/09_torchrl_trainers.py",
        ),
    ),
    "hydra": (
        Step(
            "first step, learning curve",
            "docs/start.md",
            f"packing train agent=afterstate env=irregular replay.horizon=24 {SHORT}",
        ),
        Step(
            "a sweep of two runs",
            "docs/how-to/command-line.md",
            "packing train --multirun agent=afterstate env=cuboid_online seed=0,1 "
            "replay.horizon=24 trainer.frames=20000 env.num_envs=64 env.pool_size=256",
        ),
        Step("exported policy", "docs/how-to/trained-policies.md", "packing export run"),
    ),
    "own": (
        Step("own reward", "docs/how-to/own-package.md", f"{PACKAGE} +reward.support=0.1"),
        Step("own rule", "docs/how-to/own-rule.md", f"{PACKAGE} env.stability=half"),
        Step("own network", "docs/how-to/own-package.md", f"{PACKAGE} network=rows"),
        Step(
            "own agent",
            "docs/how-to/own-agent.md",
            f"{PACKAGE} agent=linear env.action_mode=placement run_dir=linear",
        ),
        Step(
            "own agent, exported",
            "docs/how-to/trained-policies.md",
            "packing export --import my_pkg linear",
        ),
    ),
}


def write_package(folder: Path) -> None:
    """Write the package of the documentation into a folder."""
    for page in ("own-package", "own-agent"):
        text = (ROOT / f"docs/how-to/{page}.md").read_text(encoding="utf-8")
        for name, contents in FILE.findall(text):
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(contents, encoding="utf-8")


def words(step: Step) -> list[str]:
    """Return the command line of a step, for this interpreter."""
    if step.command is None:
        page = (ROOT / step.page).read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        return [sys.executable, "-c", next(block for block in blocks if step.mark in block)]
    program, *arguments = shlex.split(step.command)
    if program == "packing":
        return [sys.executable, "-m", "agents.cli", *arguments]
    return [sys.executable, str(ROOT / arguments[0]), *arguments[1:]]


def waited(step: Step, folder: Path) -> tuple[float, float]:
    """Return the wall time and the CPU time of a step, in seconds.

    Raises:
        RuntimeError: The program fails.
    """
    caches = {"NUMBA_CACHE_DIR": str(folder / "numba"), "XDG_CACHE_HOME": str(folder / "cache")}
    start, before = time.perf_counter(), os.times()
    done = subprocess.run(
        words(step), cwd=folder, env={**os.environ, **caches}, capture_output=True, text=True
    )
    if done.returncode != 0:
        raise RuntimeError(f"{step.page}: {done.stderr[-2000:]}")
    after = os.times()
    cpu = (after.children_user - before.children_user) + (
        after.children_system - before.children_system
    )
    return time.perf_counter() - start, cpu


def play(user: str) -> list[dict[str, Any]]:
    """Take all steps of a user in an empty folder with empty caches."""
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_package(folder)
        for step in USERS[user]:
            wall, cpu = waited(step, folder)
            label = step.command or f"the block with {step.mark}"
            rows.append(
                {"user": user, "step": step.name, "page": step.page, "program": label}
                | {"wall_seconds": round(wall, 1), "cpu_seconds": round(cpu, 1)}
                | {"load_average": round(os.getloadavg()[0], 1)}
            )
            print(f"{user}: {step.name} {wall:.1f} s, CPU {cpu:.1f} s", flush=True)
    return rows


def main() -> None:
    """Measure the users and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=USERS, default=list(USERS))
    parser.add_argument("--out", default=str(ROOT / "benchmarks/results/first_hour.json"))
    args = parser.parse_args()
    old_rows = json.loads(Path(args.out).read_text())["rows"] if Path(args.out).is_file() else []
    rows = [row for row in old_rows if row["user"] not in args.only]
    for user in args.only:
        rows += play(user)
        write_json(args.out, provenance(args) | {"rows": rows})


if __name__ == "__main__":
    main()
