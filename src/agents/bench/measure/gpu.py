"""GPU load during a measurement, as nvidia-smi reports it."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

_SECONDS = 0.2
"""Time between two samples."""


@contextmanager
def gpu_load(device: torch.device) -> Iterator[dict[str, Any]]:
    """Yield a mapping that receives the load of a GPU inside the block when the block ends.

    Its values are the utilization in percent and memory in megabytes. It stays empty on a CPU, and
    has the peak of torch's allocator alone without nvidia-smi.
    """
    found: dict[str, Any] = {}
    if device.type != "cuda":
        yield found
        return
    torch.cuda.reset_peak_memory_stats(device)
    samples: list[tuple[float, float]] = []
    ends = threading.Event()

    def sample() -> None:
        name = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        query = ["--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits"]
        command = ["nvidia-smi", *query, "-i", name]
        while shutil.which("nvidia-smi") is not None and not ends.wait(_SECONDS):
            taken = subprocess.run(command, capture_output=True, text=True, check=False)
            parts = taken.stdout.strip().split(",")
            if len(parts) == 2 and all(part.strip().isdigit() for part in parts):
                samples.append((float(parts[0]), float(parts[1])))

    thread = threading.Thread(target=sample, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        ends.set()
        thread.join()
    found["peak_allocated_mb"] = torch.cuda.max_memory_allocated(device) / 1e6
    if samples:
        busy, memory = zip(*samples, strict=True)
        found["gpu_utilization_percent"] = statistics.mean(busy)
        found["gpu_memory_used_mb"] = max(memory)
