"""Speed of drop-height maps by every kernel backend, on random problems of named sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations

import torch
from jaxtyping import Float
from torch import Tensor

from agents.bench.session import Session
from packing_env.kernels import available_backends, drop_height
from packing_env.values import check_choice

COLUMNS = {
    "wall_ms": "ms",
    "thread_cpu_ms": "CPU ms",
    "ns_per_operation": "ns/operation",
    "times_eager": "x eager",
    "times_numba": "x numba",
    "same_bits": "same bits",
}


@dataclass(frozen=True)
class Size:
    """Dimensions of a problem.

    Attributes:
        rows: Containers.
        cells: Side of a container, cells.
        stride: Cells between two lattice points.
        footprints: ``(w, h)`` of each orientation, cells.
        filled: Share of the rectangle that the footprint fills; 1 makes a flat item with bottom 0.
    """

    rows: int
    cells: int
    stride: int
    footprints: tuple[tuple[int, int], ...]
    filled: float = 0.8

    @property
    def operations(self) -> int:
        """Number of subtract-and-maximum pairs, over whole rectangles."""
        return self.rows * sum(self.steps(w) * self.steps(h) * w * h for w, h in self.footprints)

    def steps(self, side: int) -> int:
        """Return the number of lattice points along an axis at which ``side`` cells lie inside."""
        return (self.cells - side) // self.stride + 1


def _orientations(*sides: int) -> tuple[tuple[int, int], ...]:
    """Return 24 footprints: four of each pair of different sides."""
    return tuple(pair for pair in permutations(sides, 2) for _ in range(4))


SIZES = {
    "A": Size(1, 200, 4, _orientations(36, 40, 44)),
    "A1": Size(1, 200, 1, _orientations(36, 40, 44)),
    "B": Size(64, 64, 1, _orientations(10, 12, 14)),
    "flat": Size(1, 200, 1, ((40, 40),), filled=1.0),
    "batch": Size(1024, 200, 4, ((40, 40),) * 24),
}
"""Named sizes; in millions of operations: 64, 990, 613, 41 and (``batch``, for a GPU) 66,000."""


def kernel(
    session: Session,
    problems: Sequence[str],
    kernels: Sequence[str] | None,
    baselines: Sequence[str],
) -> None:
    """Measure every backend on every problem, in one process, and compare the bits.

    Args:
        session: The run.
        problems: Names in :data:`SIZES`.
        kernels: Backends; ``None`` means all that run on the device.
        baselines: Backends that are measured first; the others are compared with them.

    Raises:
        ParameterError: A problem or a baseline is unknown.
    """
    known = available_backends(session.clock.device.type)
    for name in problems:
        check_choice("bench.problems", name, SIZES)
    for name in baselines:
        check_choice("bench.baselines", name, known)
    session.columns = COLUMNS
    backends = list(dict.fromkeys([*baselines, *(kernels or known)]))
    for name in problems:
        _measure_problem(session, name, backends, baselines)


def _measure_problem(
    session: Session, name: str, backends: Sequence[str], baselines: Sequence[str]
) -> None:
    # All backends get the same numbers and must return the bits of the first backend.
    size = SIZES[name]
    generator = torch.Generator().manual_seed(int(session.config.seed))
    heightmap, bottom = random_problem(size, generator, session.clock.device)
    spent: dict[str, float] = {}
    expected: Tensor | None = None
    for backend in backends:
        with session.case(problem=name, kernel=backend) as case:
            work = partial(drop_height, heightmap, bottom, size.stride, backend=backend)
            values = session.clock.measure(work)
            spent[backend] = session.clock.cost(values)
            values["ns_per_operation"] = 1e6 * spent[backend] / size.operations
            z = work()
            expected = z if expected is None else expected
            values["same_bits"] = _same_bits(expected, z)
            for other in baselines:
                if other in spent:
                    values[f"times_{other}"] = spent[other] / spent[backend]
            session.add(case, values)


def random_problem(
    size: Size, generator: torch.Generator, device: torch.device | str = "cpu"
) -> tuple[Float[Tensor, "B X Y"], Float[Tensor, "B R U V"]]:
    """Draw heightmaps up to 0.3 m and lower surfaces up to 0.05 m; ``+inf`` off the footprint.

    Two opposite corners of an item's rectangle belong to the footprint, so every placement has a
    finite height.
    """
    # Surfaces are as large as the largest rectangle; cells outside an item are +inf.
    window = [max(sides) for sides in zip(*size.footprints, strict=True)]
    heightmap = 0.3 * torch.rand(size.rows, size.cells, size.cells, generator=generator)
    bottom = torch.full((size.rows, len(size.footprints), *window), torch.inf)
    for orientation, (w, h) in enumerate(size.footprints):
        part = bottom[:, orientation, :w, :h]
        if size.filled == 1.0:
            part.zero_()
            continue
        values = 0.05 * torch.rand(part.shape, generator=generator)
        values[torch.rand(part.shape, generator=generator) > size.filled] = torch.inf
        values[:, -1, -1] = 0.05
        values[:, 0, 0] = 0.0
        part.copy_(values)
    return heightmap.to(device), bottom.to(device)


def _same_bits(one: Tensor, other: Tensor) -> bool:
    return torch.equal(one.view(torch.int32), other.view(torch.int32))
