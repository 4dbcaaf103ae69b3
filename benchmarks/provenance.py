"""Header of a result file: the command and its arguments, and what ``packing bench`` records."""

from __future__ import annotations

import argparse
import os
import shlex
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
    command = shlex.join(["python", os.path.relpath(sys.argv[0]), *sys.argv[1:]])
    head = {"command": command} | measure.provenance(device)
    return head if args is None else head | {"arguments": vars(args)}


def read_arguments(parser: argparse.ArgumentParser) -> tuple[argparse.Namespace, list[str]]:
    """Return the options of the command line, and its overrides ``key=value`` in any place."""
    words = sys.argv[1:]
    overrides = [word for word in words if "=" in word and not word.startswith("-")]
    return parser.parse_args([word for word in words if word not in overrides]), overrides


def write_json(path: str, report: Mapping[str, Any]) -> None:
    """Write a result file, whole or not at all, and print its path."""
    runs.write_json(Path(path), report)
    print(f"wrote {path}")
