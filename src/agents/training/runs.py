"""What a run leaves behind, and how it is asked to stop."""

from __future__ import annotations

import json
import math
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import torch

PACKAGES = ("packing-env", "torch", "torchrl", "tensordict", "numpy", "numba", "hydra-core")


class RunFolderError(ValueError):
    """The folder for the results cannot be used."""


def new_folder(path: str | Path | None, name: str, parent: str | Path = "runs") -> Path:
    """A new, empty folder for a run's results; nothing that exists is written over.

    Args:
        path: Where; it may exist if it is empty. ``None``: ``runs/<time>-<name>``.
        name: Of the run.
        parent: Of unnamed folders.

    Raises:
        RunFolderError: It holds something, or cannot be made.
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
            folder = Path(parent) / f"{stamp}-{name}{suffix}"
            if not folder.exists():
                folder.mkdir(parents=True)
                return folder
    except OSError as error:
        raise RunFolderError(f"no folder for results can be made: {error}") from error
    raise RunFolderError(f"no free name for results in {parent}")


def versions() -> dict[str, str]:
    """Of Python and of the packages that matter."""
    found = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def machine(device: torch.device | str = "cpu") -> dict[str, Any]:
    """The hardware that numbers were measured on."""
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
    """Its model name, where the system tells."""
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
    """The same, with null for what JSON has no word for."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return value


class StopSignals:
    """SIGINT and SIGTERM ask to stop; a second one aborts.

    What comes within :attr:`echo` seconds of the first is the first: launchers signal a process and
    then its whole group. As a context manager, in the main thread (elsewhere it does nothing);
    :meth:`requested` says whether one came.
    """

    watched = (signal.SIGINT, signal.SIGTERM)
    echo = 0.5

    def __init__(self) -> None:
        self._came: float | None = None
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopSignals:
        main = threading.current_thread() is threading.main_thread()
        for number in self.watched if main else ():
            self._before[number] = signal.signal(number, self._note)
        return self

    def _note(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._came is None:
            self._came = now
        elif now - self._came > self.echo:
            for watched in self.watched:
                signal.signal(watched, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    def requested(self) -> bool:
        """Whether to stop at the next good moment."""
        return self._came is not None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
