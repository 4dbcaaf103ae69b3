"""Head of a result file: the command and its arguments, and what ``packing bench`` records."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from agents.bench import measure
from agents.training import runs


def provenance(
    args: argparse.Namespace | None = None, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """Return command, arguments, hardware, load, versions and revision."""
    command = " ".join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    head = {"command": command} | measure.provenance(device)
    return head if args is None else head | {"arguments": vars(args)}


def write_json(path: str, report: Mapping[str, Any]) -> None:
    """Write a result file, whole or not at all, and print its path."""
    runs.write_json(Path(path), report)
    print(f"wrote {path}")
