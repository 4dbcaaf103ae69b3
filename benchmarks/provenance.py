"""Provenance of a measurement: hardware, versions, revision, command."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("packing-env", "torch", "torchrl", "tensordict", "numpy", "numba", "gymnasium")


def processor() -> str:
    """Return the name of the CPU."""
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def versions() -> dict[str, str]:
    """Return the versions of Python and of :data:`PACKAGES`."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def revision(folder: Path | None = None) -> str:
    """Return the git revision of a checkout (default: this one), with a plus if it has changes."""
    try:
        described = subprocess.run(
            ["git", "describe", "--always", "--dirty=+"],
            cwd=folder or Path(__file__).parent, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return described.stdout.strip()


def provenance(args: argparse.Namespace | None = None) -> dict[str, Any]:
    """Return hardware, versions, revision and command, for the head of a result file."""
    report: dict[str, Any] = {
        "command": " ".join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]]),
        "cpu": processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "platform": platform.platform(),
        "versions": versions(),
        "revision": revision(),
    }
    return report | ({"arguments": vars(args)} if args is not None else {})


def write_json(path: str, report: dict[str, Any]) -> None:
    """Write a result file and print its path."""
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(report, indent=1) + "\n")
    print(f"wrote {target}")
