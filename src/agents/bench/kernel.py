"""Speed of drop-height maps: kernels, the NumPy baseline and the unfold formulation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from agents.bench.base import Benchmark, Job, LeftOut, Row, Rows, Session, check_choices
from agents.bench.baselines.agreement import compare_with_unfold
from agents.bench.baselines.formulations import numpy_map, unfold_map
from agents.bench.baselines.problems import SIZES, Problem, Size, random_problem
from agents.bench.measure.memory import peak_bytes
from agents.bench.measure.timing import TooLongError
from agents.bench.workloads import visible
from packing_env import kernels

Maps = list[list[Tensor]]
"""Maps by container and orientation, over the lattice points that are inside."""
Compute = Callable[[], Maps | Tensor]
"""Function that returns such maps, or all of them in one padded tensor."""
BASELINES = ("numpy", "unfold")


@dataclass(kw_only=True)
class Kernel(Benchmark):
    """Speed of every method on every problem, in one process, and equality of their bits.

    Kernels return all maps in one padded tensor, as an environment takes them, and the baselines a
    map at a time. Maps of visible items are computed from the catalogue's surfaces and sizes,
    either all of them or only where a placement changed them.

    Args:
        problems: Names in :data:`agents.bench.baselines.problems.SIZES`.
        kernels: Backends; ``None`` means all that run on the device.
        baselines: Denominators of the ratios: ``numpy``, ``unfold``.
        cases: Random problems on which rest heights, legality and the lowest place are compared
            with the unfold formulation; 0 skips the comparison.
        visible: Numbers of visible items whose maps are updated from decision to decision over an
            episode of ``irregular_paper``, and compared with recomputed maps.
    """

    columns: ClassVar[Mapping[str, str]] = {
        "wall_ms": "ms",
        "thread_cpu_ms": "CPU ms",
        "ns_per_operation": "ns/operation",
        "times_numpy": "x numpy",
        "times_unfold": "x unfold",
        "peak_mb": "extra MB",
        "same_bits": "same bits",
        "times_recomputed": "x recomputed",
        "pairs_computed": "pairs computed",
        "cases": "cases",
        "differences": "differences",
        "ties": "ties",
    }
    problems: Sequence[str]
    kernels: Sequence[str] | None
    baselines: Sequence[str]
    cases: int
    visible: Sequence[int]

    def __post_init__(self) -> None:
        check_choices("bench.problems", self.problems, SIZES)
        check_choices("bench.baselines", self.baselines, BASELINES)

    def jobs(self, session: Session) -> list[Job]:
        """Return a job per problem, one per number of visible items, and one of random problems."""
        made = [
            Job({"problem": name}, partial(self._rows, session, name), f"problem {name}")
            for name in self.problems
        ]
        if kernels.updates_drop_height(session.clock.device.type):
            for count in self.visible:
                work = partial(visible.measure, session, count)
                made.append(Job({"problem": f"visible {count}"}, work, f"{count} visible items"))
        if self.cases:
            work = partial(self._agreement, session)
            made.append(Job({"problem": "random"}, work, "random problems"))
        return made

    def _backends(self, session: Session) -> list[str]:
        return list(self.kernels or kernels.available_backends(session.clock.device.type))

    def _rows(self, session: Session, name: str) -> Rows:
        """Measure every method on a problem; ratios are to the baselines before it."""
        device = session.clock.device
        generator = torch.Generator().manual_seed(int(session.config.seed))
        problem = random_problem(SIZES[name], generator, device)
        spent: dict[str, float] = {}
        first: Maps | None = None
        for method in (*self.baselines, *self._backends(session)):
            case = {"problem": name, "method": method}
            compute, share = _method(problem, method)
            try:
                timing = session.clock.measure(compute).divided_by(share)
            except TooLongError as error:
                yield LeftOut(case, str(error))
                continue
            maps = _bits(compute(), problem.size)
            first = first or maps
            seconds = timing.seconds("cpu" if method == "numpy" else device.type)
            values = timing.values() | {
                "ns_per_operation": 1e9 * seconds / problem.size.operations,
                **{f"times_{other}": then / seconds for other, then in spent.items()},
                "same_bits": all(
                    all(map(torch.equal, *rows)) for rows in zip(first, maps, strict=False)
                ),
                "baseline_share": share,
            }
            if method in BASELINES:
                spent[method] = seconds
            peak = peak_bytes(compute, device)
            values |= {} if peak is None else {"peak_mb": peak / 1e6}
            yield Row(case, values)

    def _agreement(self, session: Session) -> Rows:
        """Compare rest heights, legality and the lowest place on random problems."""
        count, seed = int(self.cases), int(session.config.seed)
        for backend in self._backends(session):
            found = compare_with_unfold(backend, count, seed, session.clock.device)
            case = {"problem": "random", "method": backend}
            yield Row(case, vars(found) | {"differences": found.differences})


def _method(problem: Problem, method: str) -> tuple[Compute, float]:
    """Return the function that solves a problem, and the share of containers it covers."""
    size = problem.size
    if method not in BASELINES:
        inputs = (problem.heightmap, problem.bottom, size.stride)
        return partial(kernels.drop_height, *inputs, backend=method), 1.0
    rows = min(size.rows, size.baseline_rows or size.rows)
    heights: Any = problem.heightmap
    bottoms: Any = problem.bottom
    if method == "numpy":  # its arrays are on the host before the measurement
        heights, bottoms = heights.cpu().numpy(), bottoms.cpu().numpy()

    def one(row: int, orientation: int) -> Tensor:
        w, h = size.footprints[orientation]
        inputs = heights[row], bottoms[row, orientation, :w, :h], size.stride
        return unfold_map(*inputs) if method == "unfold" else torch.from_numpy(numpy_map(*inputs))

    def loop() -> Maps:
        return [[one(row, o) for o in range(len(size.footprints))] for row in range(rows)]

    return loop, rows / size.rows


def _bits(maps: Maps | Tensor, size: Size) -> Maps:
    """Return maps as integers on the host; of a padded tensor of over 64 containers, the first."""
    if isinstance(maps, Tensor):
        kept = maps[: 1 if size.rows > 64 else size.rows]
        inside = [(size.steps(w), size.steps(h)) for w, h in size.footprints]
        maps = [[z[:x, :y] for z, (x, y) in zip(row, inside, strict=True)] for row in kept]
    return [[z.cpu().contiguous().view(torch.int32) for z in row] for row in maps]
