"""Engines: carry out the steps of an environment, which chooses one when it is built.

``rules`` calls the functions of :mod:`packing_env.core` one by one and runs any task on any device.
``compiled`` carries out whole steps in place on a CPU, and ``fused`` on CUDA in one launch each,
for the tasks that they know. All give the same bits. To add an engine, write a file with a class
that follows :class:`Engine` and put it into :data:`ENGINES`.
"""

from __future__ import annotations

import logging

from packing_env.core import feasibility
from packing_env.engine.base import FLAGS, Engine, Observations, Step, Task
from packing_env.engine.compiled import CompiledEngine
from packing_env.engine.fused import FusedEngine
from packing_env.engine.rules import RulesEngine
from packing_env.types import ParameterError

__all__ = ["ENGINES", "FLAGS", "Engine", "Observations", "Step", "Task", "make_engine"]

_LOGGER = logging.getLogger("packing_env.engine")

ENGINES: dict[str, type[Engine]] = {
    "compiled": CompiledEngine,
    "fused": FusedEngine,
    "rules": RulesEngine,
}
"""Engines by name, the fastest of a device first; the last runs every task."""


def make_engine(task: Task, name: str = "auto") -> Engine:
    """Build the engine of a task; one log line names it and why no faster one is used.

    Args:
        task: The task.
        name: A name in :data:`ENGINES`, or ``"auto"`` for the first that can carry out the task.

    Raises:
        ParameterError: The name is unknown, or that engine cannot carry out the task here.
    """
    if name != "auto" and name not in ENGINES:
        raise ParameterError(f"engine={name!r} is unknown; choose one of {['auto', *ENGINES]}")
    refusals: list[str] = []
    for candidate in ENGINES if name == "auto" else (name,):
        engine = ENGINES[candidate]
        refusal = engine.refusal(task)
        if not refusal:
            ground = feasibility.ground_of(task.catalogue, task.params)
            _LOGGER.info("; ".join([f"engine: {candidate}, placements from {ground}", *refusals]))
            return engine(task)
        refusals.append(f"not {candidate}: {refusal}")
    raise ParameterError(f"engine={name!r} cannot carry out this task ({'; '.join(refusals)})")
