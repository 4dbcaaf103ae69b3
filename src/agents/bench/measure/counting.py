"""Counts of operations, host reads, copies and allocations, by call site.

There are two instruments. torch's profiler sees inside operations and records every allocation; a
dispatch mode sees each operation that Python calls, and its call site. Neither needs a GPU: on a
CPU a read costs nothing, but it is the same operation that would stall the queue of a GPU.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import TorchDispatchMode

import packing_env
from packing_env import PackingEnv

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
_MEMORY = "[memory]"
_OURS = (str(Path(packing_env.__file__).parent), str(Path(__file__).parents[2]))
_HERE = str(Path(__file__).parents[1])


def _events(work: Callable[[], object], *, memory: bool = False) -> list[Any]:
    """Return the profiler's events of one call, those inside operations included."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=memory) as watch:
        work()
    return list(watch.profiler.kineto_results.events())


def host_reads(work: Callable[[], object], times: int = 1) -> Counter[str]:
    """Count values read back and sizes that depend on data, also inside torch's operations.

    Raises:
        RuntimeError: The profiler saw no operation at all, so a count of 0 would mean nothing.
    """

    def repeat() -> None:
        for _ in range(times):
            work()

    names = [event.name() for event in _events(repeat)]
    if not any(name.startswith("aten::") for name in names):
        raise RuntimeError("the profiler saw no operation")
    return Counter(name for name in names if name in READS)


def reading_operations(work: Callable[[], object]) -> Counter[str]:
    """Count the reads of each operation that Python called, those inside it included."""
    found: Counter[str] = Counter()
    ends = [0]
    names = [""]
    events = [e for e in _events(work) if e.name().startswith("aten::")]
    for event in sorted(events, key=lambda e: (e.start_ns(), -e.duration_ns())):
        while ends[1:] and event.start_ns() >= ends[-1]:
            ends.pop()
            names.pop()
        ends.append(event.start_ns() + event.duration_ns())
        names.append(event.name())
        outer = [name for name in names[1:-1] if name in READS]
        if event.name() in READS and not outer:
            found[names[1]] += 1
    return found


def allocations(work: Callable[[], object]) -> tuple[int, int]:
    """Return the number of allocations and their bytes, temporaries included, on any device."""
    taken = [e.nbytes() for e in _events(work, memory=True) if e.name() == _MEMORY]
    taken = [size for size in taken if size > 0]
    return len(taken), sum(taken)


def dispatches(work: Callable[[], object], times: int = 3) -> float:
    """Return the number of torch operations that Python calls, per call of ``work``."""
    with CallSites() as sites:
        for _ in range(times):
            work()
    return sites.total("operations") / times


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
        self._calls = _HostCalls(self)

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

    def note(self, kind: str, site: str, amount: int = 1) -> None:
        """Add to a counter."""
        self.counts[kind][site] += amount

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        site = call_site()
        given = _tensors((*args, *kwargs.values()))
        owned = {tensor.untyped_storage()._cdata for tensor in given}
        devices = {tensor.device for tensor in given if tensor.dim()}
        returned = func(*args, **kwargs)
        made = _tensors((returned,))
        self.note("operations", site)
        if _reads(func, args):
            self.note("reads", site)
        if func is torch.ops.aten.lift_fresh.default:
            self.note("from_host", site)
        if len(devices | {tensor.device for tensor in made if tensor.dim()}) > 1:
            self.note("copies", site)
        for tensor in made:
            storage = tensor.untyped_storage()
            if storage._cdata not in owned:
                owned.add(storage._cdata)
                self.note("allocations", site)
                self.note("bytes", site, storage.nbytes())
        return returned


class _HostCalls(TorchFunctionMode):
    """Counter of reads that dispatch no operation."""

    def __init__(self, sites: CallSites) -> None:
        super().__init__()
        self.sites = sites

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if getattr(func, "__name__", "") in _HOST_CALLS:
            self.sites.note("reads", call_site())
        return func(*args, **(kwargs or {}))


def _reads(func: Any, args: tuple[Any, ...]) -> bool:
    """Return True if an operation's result or its size depends on data."""
    if func is torch.ops.aten.index.Tensor:
        return any(index is not None and index.dtype == torch.bool for index in args[1])
    tags = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)
    return any(tag in func.tags for tag in tags)


def _tensors(values: Any) -> list[Tensor]:
    """Return the tensors in arguments or results, those in lists included."""
    if isinstance(values, Tensor):
        return [values]
    if isinstance(values, (tuple, list)):
        return [tensor for value in values for tensor in _tensors(value)]
    return []


def call_site() -> str:
    """Return ``file:line function`` of the innermost frame of this project outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_OURS) and not name.startswith(_HERE):
            folder = next(ours for ours in _OURS if name.startswith(ours))
            path = Path(name).relative_to(Path(folder).parent).as_posix()
            return f"{path}:{frame.f_lineno} {frame.f_code.co_name}"
        frame = frame.f_back
    return "elsewhere"


def tensors_in(thing: Any) -> dict[int, Tensor]:
    """Return every tensor in an object, at any depth, by ``data_ptr``; skip environments."""
    found: dict[int, Tensor] = {}
    seen: set[int] = set()
    waiting = [thing]
    while waiting:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, (type, PackingEnv)):
            continue
        seen.add(id(value))
        if isinstance(value, Tensor):
            if value.numel():
                found[value.data_ptr()] = value
        elif isinstance(value, Mapping):
            waiting += value.values()
        elif isinstance(value, (list, tuple, set)):
            waiting += value
        else:
            waiting += getattr(value, "__dict__", {}).values()
    return found
