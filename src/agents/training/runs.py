"""The folder of a run, and the JSON that describes it: versions, machine, results."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import math
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from packing_env import files, folders

if TYPE_CHECKING:
    import torch

DESCRIPTION = "run.json"
"""The first file of a run: its command, versions and machine."""
RESULTS = "results.json"
"""The file with the results of a training or an evaluation."""
LOCK = "run.lock"
"""The file that is locked while a process writes into a run's folder."""
PACKAGES = ("packing-env", "torch", "torchrl", "tensordict", "numpy", "numba", "hydra-core")

_LOGGER = logging.getLogger("agents.training.runs")


class RunFolderError(ValueError):
    """The folder for the results cannot be used."""


def new_folder(path: str | Path | None, name: str, hint: str = "") -> Path:
    """Create an empty folder for a run's results, by default ``runs/<time>-<name>``.

    Raises a RunFolderError if ``path`` is not empty, or if no folder can be made. ``hint`` ends the
    error about a folder that is not empty.
    """
    if name in (".", "..") or "/" in name or not name.isprintable():
        raise RunFolderError(f"name={name!r} must be plain text without '/'")
    try:
        if path is not None:
            folder = Path(path)
            folder.mkdir(parents=True, exist_ok=True)
            # A run that was killed at its start may have left a lock, or a draft of the
            # description.
            draft = f".{DESCRIPTION}."
            if any(i.name != LOCK and not i.name.startswith(draft) for i in folder.iterdir()):
                raise RunFolderError(f"{folder} is not empty; name a new folder{hint}")
            return folder
        # Two runs may start in the same second.
        stamp = time.strftime("%Y%m%d-%H%M%S")
        for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
            folder = Path("runs") / f"{stamp}-{name}{suffix}"
            if not folder.exists():
                folder.mkdir(parents=True)
                return folder
    except OSError as error:
        raise RunFolderError(f"no folder for results can be made: {error}") from error
    raise RunFolderError("no free name for results in runs; name a folder with run_dir=")


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder until the block or process ends; workers do not inherit it.

    Raises a RunFolderError if another process holds it.
    """
    try:
        handle = folders.open_below(folder, LOCK, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    except OSError as error:
        raise RunFolderError(f"run_dir={folder} cannot be written: {error}") from error
    # Lock the file, whose text names the holder to other processes.
    with os.fdopen(handle, "a+", encoding="utf-8") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            # Other errors mean that this file system does not support locks.
            if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
                file.seek(0)
                holder = file.read(200).strip() or "another process"
                raise RunFolderError(
                    f"run_dir={folder} is being written by {holder}; wait for it, or stop it"
                ) from None
            _LOGGER.warning("%s cannot be locked (%s); do not start this run twice", folder, error)
        else:
            file.truncate(0)
            file.write(f"process {os.getpid()} on {platform.node()}\n")
            file.flush()
        yield


def is_locked(folder: Path) -> bool:
    """Return whether another process is writing into a run's folder, if the system can tell."""
    try:
        with os.fdopen(folders.open_below(folder, LOCK, os.O_RDONLY), "rb") as file:
            fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno in (errno.EACCES, errno.EAGAIN)
    return False


def never_saved(folder: Path, saves: str) -> bool:
    """Return whether a folder belongs to a training run without a complete checkpoint."""
    command = read_json(folder / DESCRIPTION).get("command")
    complete = [inner for inner in (folder / saves).glob("*") if not inner.name.startswith(".")]
    return isinstance(command, list) and "train" in command[:2] and not complete


def place(folder: Path, name: str) -> Path:
    """Return the path of a file that an option names, and make the folders above it.

    Names are relative to the run's folder. Absolute paths and ``..`` can come only from the user's
    command line, because :func:`agents.config.saved.adopt` refuses those of a run. For all other
    names, a link on the path is refused.
    """
    if os.path.isabs(name) or ".." in PurePath(name).parts:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        return folder / name
    return folders.make_below(folder, name)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the packages that determine results."""
    packages = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            packages[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return packages


def revision(folder: Path) -> str | None:
    """Return the Git commit of a folder's repository; None without Git.

    It runs no program that the repository names, so uncommitted changes are not looked for.
    """
    command = ["git", "-C", str(folder), "rev-parse", "--verify", "HEAD"]
    try:
        return subprocess.check_output(command, stderr=subprocess.DEVNULL, text=True).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def machine(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return the hardware of this process."""
    import torch  # takes a second, and listing runs does not need it

    device = torch.device(device)
    # 1. The processor, and the number of cores that this process may use.
    hardware: dict[str, Any] = {
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count(),
        "torch_threads": torch.get_num_threads(),
        "device": str(device),
    }
    if device.type == "cuda":
        # 2. The GPU, with the peak of used memory so far.
        properties = torch.cuda.get_device_properties(device)
        hardware["gpu"] = properties.name
        hardware["gpu_memory_bytes"] = properties.total_memory
        hardware["gpu_peak_bytes"] = torch.cuda.max_memory_allocated(device)
        hardware["cuda"] = torch.version.cuda
    return hardware


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def read_json(path: Path) -> dict[str, Any]:
    """Read an object from a JSON file; it is empty if the file cannot be read."""
    try:
        content = files.parse_json(files.read_text(path))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file; NaN and infinities become null."""
    write_text(path, json.dumps(finite(content), indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file completely or not at all.

    Raises a RunFolderError if it cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with files.whole_file(path) as draft, draft.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise RunFolderError(f"{path} cannot be written: {error}") from error


def finite(value: Any) -> Any:
    """Return a value in which None replaces NaN and infinities, which JSON cannot represent."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): finite(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(inner) for inner in value]
    return value
