"""The folder of a run, and the JSON that describes it: versions, machine, results."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

PACKAGES = ("packing-env", "torch", "torchrl", "tensordict", "numpy", "numba", "hydra-core")


class RunFolderError(ValueError):
    """The folder for the results cannot be used."""


def new_folder(path: str | Path | None, name: str) -> Path:
    """Create a new, empty folder for a run's results; nothing that exists is overwritten.

    Args:
        path: The folder; it may exist if it is empty. None: ``runs/<time>-<name>``.
        name: Name of the run.

    Raises:
        RunFolderError: It is not empty, or cannot be made.
    """
    try:
        if path is not None:
            folder = Path(path)
            folder.mkdir(parents=True, exist_ok=True)
            if any(folder.iterdir()):
                raise RunFolderError(f"run_dir={folder} is not empty; name a new folder")
            return folder
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
            folder = Path("runs") / f"{stamp}-{name}{suffix}"
            if not folder.exists():
                folder.mkdir(parents=True)
                return folder
    except OSError as error:
        raise RunFolderError(f"no folder for results can be made: {error}") from error
    raise RunFolderError("no free name for results in runs")


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that determine results."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return the hardware of this process, to print beside measured numbers."""
    device = torch.device(device)
    found: dict[str, Any] = {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "device": str(device),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["gpu"] = properties.name
        found["gpu_memory_bytes"] = properties.total_memory
        found["gpu_peak_bytes"] = torch.cuda.max_memory_allocated(device)
        found["cuda"] = torch.version.cuda
    return found


def _processor() -> str:
    """Return the processor's model name, where the system tells."""
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file, all or nothing; NaN and infinities become null."""
    draft = path.with_name(path.name + ".part")
    draft.write_text(json.dumps(finite(content), indent=1) + "\n", encoding="utf-8")
    draft.replace(path)


def finite(value: Any) -> Any:
    """Return a value with None for NaN and infinities, which JSON cannot hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return value
