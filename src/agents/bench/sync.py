"""Host reads, copies, memory and operations of a steady step of training."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from omegaconf import DictConfig
from torch import Tensor

from agents.bench.base import Row, Rows, Session, at_least
from agents.bench.measure import counting
from agents.bench.workloads.learner import Learning, build_trainer, run_updates
from agents.loggers.logging import NullLogger
from agents.training.trainer import Trainer


@dataclass(kw_only=True)
class Sync(Learning):
    """Counts over whole cycles of training, from update to update, after warm-up.

    ``host_reads`` are values read back and sizes that depend on data, also inside torch's
    operations; the step counters that Adam's kernel reads, on a CPU only, are listed apart in
    ``cpu_step_counters``. ``copies`` are copies between devices and tensors made of Python
    numbers. ``reads_per_log`` are the reads of one more step and of the log that ends the run, by
    call site: metrics and checks for NaN. Tensors of the replay whose address does not change are
    ``fixed``; n-step windows that wait for their last reward are ``moving``.

    Args:
        agents, presets: See :class:`Learning`.
        updates: Updates per cycle.
        cycles: Number of cycles; steady training allocates the same in each.
        sites: Number of call sites listed per kind, largest counts first.
    """

    columns: ClassVar[Mapping[str, str]] = {
        "host_reads": "reads",
        "copies": "copies",
        "operations_per_step": "ops",
        "allocations_per_step": "allocs",
        "mb_per_step": "MB",
        "steady": "steady",
        "parameters_moving_mb": "weights moved",
        "replay_fixed_mb": "replay MB",
        "replay_moving_mb": "moved",
        "reads_per_log_total": "reads/log",
    }
    cycles: int
    sites: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.cycles = at_least(2, "cycles", self.cycles)

    def rows(self, session: Session, config: DictConfig, case: dict[str, Any]) -> Rows:
        """Count over some cycles, each with one instrument."""
        trainer = build_trainer(config)
        run_updates(trainer, self.updates * max(1, session.clock.warmup))
        kept = {"parameters": list(trainer.agent.policy.parameters()), "replay": trainer.replay}
        places = {name: set(counting.tensors_in(thing)) for name, thing in kept.items()}
        values = self.reads(trainer) | self.memory(trainer) | self.by_site(trainer)
        for name, thing in kept.items():
            values |= _moved(name, counting.tensors_in(thing), places[name])
        values |= _reads_of_a_log(trainer)
        if session.clock.device.type == "cuda":
            values |= self._reserved(trainer)
        rows = trainer.collector.env.batch_size.numel()
        yield Row(case | {"rows": rows}, values)

    def reads(self, trainer: Trainer) -> dict[str, Any]:
        """Count host reads with the profiler, those inside operations included."""
        found = counting.reading_operations(lambda: run_updates(trainer, self.updates))
        counters = found.pop(counting.STEP_COUNTERS, 0)
        return {
            "host_reads": found.total(),
            "reading_operations": dict(found),
            "cpu_step_counters": counters,
        }

    def memory(self, trainer: Trainer) -> dict[str, Any]:
        """Count the allocations of each cycle; training is steady if they are equal."""
        steps: list[int] = []

        def cycle() -> None:
            steps.append(run_updates(trainer, self.updates))
            trainer.meter.read()  # otherwise it sums its values every few steps

        trainer.meter.read()
        taken = [counting.allocations(cycle) for _ in range(self.cycles)]
        return {
            "allocations_per_step": taken[-1][0] / steps[-1],
            "mb_per_step": taken[-1][1] / steps[-1] / 1e6,
            "allocations_per_cycle": [list(pair) for pair in taken],
            "steps_per_cycle": steps,
            "steady": len(set(taken)) == 1,
        }

    def by_site(self, trainer: Trainer) -> dict[str, Any]:
        """Count the operations that Python called, by call site."""
        with counting.CallSites() as sites:
            steps = run_updates(trainer, self.updates)
        listed = int(self.sites)
        return {
            "operations_per_step": sites.total("operations") / steps,
            "copies": sites.total("copies") + sites.total("from_host"),
            "by_call_site": {k: dict(v.most_common(listed)) for k, v in sites.counts.items()},
        }

    def _reserved(self, trainer: Trainer) -> dict[str, Any]:
        """Return the bytes that the GPU's allocator holds after each of some further cycles."""
        held = []
        for _ in range(self.cycles):
            run_updates(trainer, self.updates)
            torch.cuda.synchronize()
            held.append(torch.cuda.memory_reserved())
        return {"reserved_bytes": held, "reserved_flat": len(set(held)) == 1}


def _moved(name: str, now: Mapping[int, Tensor], before: Set[int]) -> dict[str, float]:
    """Return the megabytes of tensors whose address is unchanged, and of the others."""
    size = {"fixed": 0, "moving": 0}
    for place, tensor in now.items():
        size["fixed" if place in before else "moving"] += tensor.numel() * tensor.element_size()
    return {f"{name}_{where}_mb": amount / 1e6 for where, amount in size.items()}


def _reads_of_a_log(trainer: Trainer) -> dict[str, Any]:
    """Count the reads of one more step and of the log and checks that end the run, by call site."""
    trainer.total = trainer.frames + 1  # one more step, and the end, which logs
    with counting.CallSites() as sites:
        trainer.run(NullLogger(Path()))
    found = dict(sites.counts["reads"])
    return {"reads_per_log": found, "reads_per_log_total": sum(found.values())}
