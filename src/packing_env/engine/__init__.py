"""Engines carry out the steps of an environment, which chooses its engine when it is built.

``rules`` calls the functions of :mod:`packing_env.core` one by one, and supports any task on any
device. ``compiled`` carries out whole steps in place on a CPU; ``fused`` does so on CUDA with few
kernel launches. Both support only certain tasks. All engines give the same results, bit for bit. To
add an engine, derive a class from :class:`RulesEngine` and put it into :data:`ENGINES`.
"""

from __future__ import annotations

import logging

import torch

from packing_env import kernels
from packing_env.core.orientation import decode_placement
from packing_env.engine.base import FLAGS, Observations, Step, Task
from packing_env.engine.compiled import CompiledEngine
from packing_env.engine.fused import FusedEngine
from packing_env.engine.rules import RulesEngine
from packing_env.types import ParameterError

__all__ = ["ENGINES", "FLAGS", "Observations", "RulesEngine", "Step", "Task", "make_engine"]

_LOGGER = logging.getLogger("packing_env.engine")

ENGINES: dict[str, type[RulesEngine]] = {
    "compiled": CompiledEngine,
    "fused": FusedEngine,
    "rules": RulesEngine,
}
"""Engines by name, the fastest first; the last one supports every task."""


def make_engine(task: Task, name: str = "auto") -> RulesEngine:
    """Build the engine of a task; a log line names it, and says why faster ones are not used.

    Triton compiles kernels when they are first called. So on CUDA, this function takes one decision
    in one row. If a kernel cannot be compiled, the engine ``rules`` with torch's own operations
    carries out the task.

    Args:
        task: The task.
        name: A name in :data:`ENGINES`, or ``"auto"`` for the first engine that supports the task.

    Raises:
        ParameterError: The name is unknown, or that engine does not support the task on this
            device.
        KernelError: A kernel cannot be compiled, and its backend was requested by name.
    """
    # This decision compiles Triton's kernels.
    by_triton = task.device.type == "cuda" and kernels.backend_for("cuda") == "triton"
    try:
        engine, reasons = _first(task, name)
        if by_triton:
            _try_out(engine, task)
    # Only Triton's kernels can be replaced by torch's operations.
    except (kernels.KernelError, ImportError) as error:
        if not by_triton:
            raise
        kernels.give_up("cuda", error)
        engine, reasons = _first(task, name)
    placements = f"engine: {engine.name}, placements computed from {engine.ground}"
    _LOGGER.info("; ".join([placements, *reasons]))
    return engine


def _first(task: Task, name: str) -> tuple[RulesEngine, list[str]]:
    """Return the first engine that supports the task, and why the faster engines do not."""
    if name != "auto" and name not in ENGINES:
        raise ParameterError(f"engine={name!r} is unknown; choose one of {['auto', *ENGINES]}")
    # Take the first engine that supports the task; remember why the others do not.
    refusals: list[str] = []
    for candidate in ENGINES if name == "auto" else (name,):
        engine = ENGINES[candidate]
        refusal = engine.refusal(task)
        if not refusal:
            return engine(task), refusals
        refusals.append(f"not {candidate}: {refusal}")
    raise ParameterError(f"engine={name!r} cannot carry out this task ({'; '.join(refusals)})")


def _try_out(engine: RulesEngine, task: Task) -> None:
    """Begin an episode in one row and take a decision in it, to compile the kernels."""
    # Zero is a valid seed, row and episode, and the index of a placement.
    zero = torch.zeros(1, dtype=torch.int64, device=task.device)
    state, _ = engine.begin(zero, zero, zero)
    first = decode_placement(zero, engine.mode.num_orientations, task.params)
    engine.advance(state, engine.mode.encode(first, state), reset=True)
