"""Independent pieces of work on Ray workers: evaluation, search and validation.

A piece is a call of a function of a module; its arguments and its result are pickled by Ray,
between processes of one user.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir, contextmanager, suppress
from functools import partial
from typing import Any

import torch

from agents.training.evaluate import StoppedError
from packing_env import extras

_POLL = 0.5
"""Seconds between two looks at a requested stop."""

_PATIENCE = 30.0
"""Seconds that processes of a cluster have to end, before they are killed."""

OURS = {"address": "local", "_node_ip_address": "127.0.0.1", "include_dashboard": False}
"""Options of a cluster that we start. Whoever reaches a cluster runs code on it, so it listens on
this machine only; and ``local`` joins none, such as one that another user noted in Ray's folder."""


@contextmanager
def cluster(num_workers: int, address: str | None = None) -> Iterator[Any]:
    """Join a Ray cluster, or start one on this machine and end it again; yield the module.

    Args:
        num_workers: Processors of a cluster that is started.
        address: Of a running cluster, as is the variable ``RAY_ADDRESS``; None: start one.

    Raises:
        MissingPackageError: Ray is not installed.
    """
    ray, psutil = (
        extras.require(name, "workers on a cluster (distributed=ray)") for name in ("ray", "psutil")
    )
    options: dict[str, Any] = {"address": address, "log_to_driver": False}
    place = None
    ours = is_ours(address)
    if ours:
        options |= {**OURS, "num_cpus": num_workers}
        if not os.environ.get("RAY_TMPDIR"):  # Ray's own folder is everybody's
            place = options["_temp_dir"] = _short_folder()
    me = psutil.Process()
    before = set(me.children(recursive=True))
    try:
        ray.init(**options)
        yield ray
    finally:
        started = set(me.children(recursive=True)) - before if ours else set()
        rays = [process for process in started if _is_of_ray(process, psutil)]
        ray.shutdown()  # it tells them to end, and does not wait for all
        for process in psutil.wait_procs(rays, timeout=_PATIENCE)[1]:
            with suppress(psutil.Error):
                process.kill()
        if place is not None:
            shutil.rmtree(place, ignore_errors=True)


def is_ours(address: object) -> bool:
    """Return whether a cluster is started here, as nobody names a running one."""
    return address is None and not os.environ.get("RAY_ADDRESS")


def _short_folder() -> str:
    """Return a new folder of this user; the paths of Ray's sockets have at most 107 characters."""
    return tempfile.mkdtemp(prefix="ray-", dir="/tmp" if os.path.isdir("/tmp") else None)


def _is_of_ray(process: Any, psutil: Any) -> bool:
    """Return whether a process is one of Ray's; one that has ended is not."""
    with suppress(psutil.Error):
        command = " ".join(process.cmdline())
        return command.startswith("ray::") or f"{os.sep}ray{os.sep}" in command
    return False


def play_all(
    work: Callable[..., Any],
    pieces: Iterable[tuple[Any, ...]],
    *,
    num_workers: int,
    address: str | None = None,
    num_gpus: float = 0.0,
    should_stop: Callable[[], bool] = lambda: False,
) -> Iterator[Any]:
    """Yield ``work(*piece)`` of each piece, in order; ``num_workers`` are carried out at a time.

    Args:
        work: A function of a module. An exception of it is raised here, and ends the workers.
        pieces: Its arguments.
        num_workers: Pieces at a time.
        address: See :func:`cluster`.
        num_gpus: GPUs of a piece.
        should_stop: Called about twice a second; True ends the workers.

    Raises:
        MissingPackageError: Ray is not installed.
        StoppedError: ``should_stop`` returned True.
    """
    with cluster(num_workers, address) as ray:
        task = ray.remote(num_cpus=1, num_gpus=num_gpus, max_retries=0)(_alone)
        waiting = deque(pieces)
        ordered: deque[Any] = deque()
        running: list[Any] = []
        while waiting or ordered:
            while waiting and len(running) < num_workers:
                running.append(task.remote(partial(work, *waiting.popleft()), os.getcwd()))
                ordered.append(running[-1])
            done, running = ray.wait(running, timeout=_POLL) if running else ([], [])
            if should_stop():
                raise StoppedError("the workers were stopped")
            for piece in done:
                ray.get(piece)  # an exception ends all at once, whatever its place
            while ordered and ordered[0] not in running:
                yield ray.get(ordered.popleft())


def _alone(piece: Callable[[], Any], folder: str) -> Any:
    """Carry out a piece with one thread, in the worker; relative paths are those of ``folder``."""
    torch.set_num_threads(1)
    with chdir(folder):
        return piece()
