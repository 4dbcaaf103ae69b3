"""GPU load during a measurement, as nvidia-smi reports it."""

from __future__ import annotations

import shutil
import statistics
import subprocess
import threading
from types import TracebackType
from typing import Any

import torch

_SECONDS = 0.2
_QUERY = "--query-gpu=utilization.gpu,memory.used"


class GPUWatch:
    """Thread that samples utilization and memory of a GPU; on a CPU it does nothing.

    Args:
        device: GPU to watch.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._samples: list[tuple[float, float]] = []
        self._ends = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> GPUWatch:
        if self.device.type != "cuda":
            return self
        torch.cuda.reset_peak_memory_stats(self.device)
        if shutil.which("nvidia-smi") is not None:
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ends.set()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        name = f"GPU-{torch.cuda.get_device_properties(self.device).uuid}"
        command = ["nvidia-smi", _QUERY, "--format=csv,noheader,nounits", "-i", name]
        while not self._ends.wait(_SECONDS):
            found = subprocess.run(command, capture_output=True, text=True, check=False)
            parts = found.stdout.strip().split(",")
            if len(parts) == 2 and all(part.strip().isdigit() for part in parts):
                self._samples.append((float(parts[0]), float(parts[1])))

    def values(self) -> dict[str, Any]:
        """Return utilization in percent and memory in megabytes; empty on a CPU."""
        if self.device.type != "cuda":
            return {}
        found: dict[str, Any] = {
            "peak_allocated_mb": torch.cuda.max_memory_allocated(self.device) / 1e6
        }
        if self._samples:
            busy, memory = zip(*self._samples, strict=True)
            found["gpu_utilization_percent"] = statistics.mean(busy)
            found["gpu_memory_used_mb"] = max(memory)
        return found
