"""Counts of operations, host reads, copies and allocations, by call site.

There are two instruments. torch's profiler sees inside operations and records every allocation; a
dispatch mode sees each operation that Python calls, and its call site. Neither needs a GPU: on a
CPU a read costs nothing, but it is the same operation that would stall the queue of a GPU.
"""

from __future__ import annotations

import sys
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import agents
import packing_env
from agents.nested import named_tensors

READS = (
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "aten::item",
    "aten::masked_select",
    "aten::nonzero",
)
"""Profiler events of a value read back to the host, or of a size that depends on data."""
STEP_COUNTERS = "aten::_fused_adam_"
"""Operation that reads its own step counters, on a CPU only."""
_HOST_CALLS = ("tolist", "numpy", "__array__")
"""Methods that read a CPU tensor without an operation."""
_OURS = (str(Path(packing_env.__file__).parent), str(Path(agents.__file__).parent))


def _events(work: Callable[[], object], times: int = 1, *, memory: bool = False) -> list[Any]:
    """Return the profiler's events of some calls, those inside operations included."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=memory) as watch:
        for _ in range(times):
            work()
    return list(watch.profiler.kineto_results.events())


def host_reads(work: Callable[[], object], times: int = 1) -> Counter[str]:
    """Count values read back and sizes that depend on data, also inside torch's operations.

    Raises:
        RuntimeError: The profiler saw no operation at all, so a count of 0 would mean nothing.
    """
    names = [event.name() for event in _events(work, times)]
    if not any(name.startswith("aten::") for name in names):
        raise RuntimeError("the profiler saw no operation")
    return Counter(name for name in names if name in READS)


def reading_operations(work: Callable[[], object]) -> Counter[str]:
    """Count the reads of each operation that Python called, those inside it included."""
    found: Counter[str] = Counter()
    running: list[tuple[str, int]] = []  # names and ends of the operations around an event
    events = [e for e in _events(work) if e.name().startswith("aten::")]
    for event in sorted(events, key=lambda e: (e.start_ns(), -e.duration_ns())):
        while running and event.start_ns() >= running[-1][1]:
            running.pop()
        if event.name() in READS and not any(name in READS for name, _ in running):
            found[running[0][0] if running else event.name()] += 1
        running.append((event.name(), event.start_ns() + event.duration_ns()))
    return found


def allocations(work: Callable[[], object]) -> tuple[int, int]:
    """Return the number of allocations and their bytes, temporaries included, on any device."""
    events = [event for event in _events(work, memory=True) if event.name() == "[memory]"]
    taken = [event.nbytes() for event in events if event.nbytes() > 0]
    return len(taken), sum(taken)


class CallSites(TorchDispatchMode):
    """Counts by call site, the innermost line of this project on the stack.

    Attributes:
        counts: Counters by kind. ``operations``: called by Python; ``reads``: values read back, and
            results whose size depends on data; ``from_host``: tensors made of Python numbers, each
            a copy to the device unless that is the CPU; ``copies``: between devices;
            ``allocations`` and ``bytes``: new storages that operations returned.
    """

    kinds = ("operations", "reads", "from_host", "copies", "allocations", "bytes")

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch is untyped
        self.counts: dict[str, Counter[str]] = {kind: Counter() for kind in self.kinds}
        self._calls = _HostCalls()
        self._calls.reads = self.counts["reads"]

    def __enter__(self) -> CallSites:
        super().__enter__()  # type: ignore[no-untyped-call]  # torch is untyped
        self._calls.__enter__()  # type: ignore[no-untyped-call]  # torch is untyped
        return self

    def __exit__(self, *error: Any) -> None:
        self._calls.__exit__(*error)  # type: ignore[no-untyped-call]  # torch is untyped
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # torch is untyped

    def total(self, kind: str) -> int:
        """Return the sum over all call sites."""
        return self.counts[kind].total()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        site = call_site()
        given = list(named_tensors((args, kwargs)).values())
        owned = {tensor.untyped_storage()._cdata for tensor in given}
        returned = func(*args, **kwargs)
        made = list(named_tensors(returned).values())
        devices = {tensor.device for tensor in (*given, *made) if tensor.dim()}
        self.counts["operations"][site] += 1
        for kind, happened in (
            ("reads", _reads(func, args)),
            ("from_host", func is torch.ops.aten.lift_fresh.default),
            ("copies", len(devices) > 1),
        ):
            if happened:
                self.counts[kind][site] += 1
        for tensor in made:
            storage = tensor.untyped_storage()
            if storage._cdata not in owned:
                owned.add(storage._cdata)
                self.counts["allocations"][site] += 1
                self.counts["bytes"][site] += storage.nbytes()
        return returned


class _HostCalls(TorchFunctionMode):
    """Counter of reads that dispatch no operation."""

    reads: Counter[str]

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in _HOST_CALLS:
            self.reads[call_site()] += 1
        return func(*args, **(kwargs or {}))


def _reads(func: Any, args: tuple[Any, ...]) -> bool:
    """Return True if an operation's result or its size depends on data."""
    if func is torch.ops.aten.index.Tensor:
        return any(index is not None and index.dtype == torch.bool for index in args[1])
    tags = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
    return any(tag in func.tags for tag in tags)


def call_site() -> str:
    """Return ``file:line function`` of the innermost frame of this project."""
    for frame, line in traceback.walk_stack(sys._getframe(1)):
        name = frame.f_code.co_filename
        if name.startswith(_OURS):
            folder = next(ours for ours in _OURS if name.startswith(ours))
            path = Path(name).relative_to(Path(folder).parent).as_posix()
            return f"{path}:{line} {frame.f_code.co_name}"
    return "elsewhere"
