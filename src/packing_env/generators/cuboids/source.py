"""Generators that bring their own cuboids, such as all extents from 1 to 5, or those of a file."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch

from packing_env.generators.base import (
    Cuboids,
    Draw,
    Generator,
    GeneratorError,
    Request,
    check_pool,
    split_stream,
)
from packing_env.items import Catalogue
from packing_env.types import Instances, PackingParams, whole_cells

_VOLUME_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Order(Draw):
    """What a generator that brings its own cuboids is asked for.

    Attributes:
        container: ``(X, Y, H)``, metres.
        pitch: Step of the lattice, metres: the cell, or the unit of geometry ``"boxes"``.
    """

    container: tuple[float, float, float]
    pitch: float

    @classmethod
    def of(cls, params: PackingParams, seed: int, split: str, size: int) -> Order:
        """What a pool made with these arguments asks for."""
        size, seed = check_pool(size, seed)
        draw = (size, params.num_items, seed, split_stream(split))
        return cls(*draw, params.container, params.pitch)

    @property
    def steps(self) -> tuple[int, int, int]:
        """The container in pitches; all three must be whole."""
        x, y, z = (
            whole_cells(length, self.pitch, axis)
            for axis, length in zip("XYH", self.container, strict=True)
        )
        return x, y, z


class CuboidSource(Generator):
    """Brings the cuboids of its instances: ``items={"source": "cuboids"}`` without extents.

    One method makes both, so that they cannot contradict each other: :meth:`cuboids` is called
    before the catalogue is built, :meth:`sample` with that catalogue.
    """

    @abstractmethod
    def make(self, order: Order) -> tuple[Cuboids, Instances]:
        """The cuboids, and instances of rows of them in arrival order."""

    def cuboids(
        self, params: PackingParams, seed: int = 0, split: str = "train", size: int = 4096
    ) -> Cuboids:
        """The cuboids that a pool made with these arguments is about."""
        return self.make(Order.of(params, seed, split, size))[0]

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """The instances; ``catalogue`` must hold the cuboids, in their order, and nothing else."""
        draw = (request.num_instances, request.num_items, request.seed, request.stream)
        cuboids, instances = self.make(Order(*draw, catalogue.container, catalogue.cell))
        volume = cuboids.extents.prod(1)
        if len(catalogue) != len(volume) or not torch.allclose(
            catalogue.volume.cpu(), volume, rtol=_VOLUME_TOLERANCE, atol=0.0
        ):
            raise GeneratorError(
                f"{type(self).__name__} brings its own {len(volume)} cuboids, but the catalogue "
                f"holds {len(catalogue)} items that are not those; use items.source=cuboids "
                f"without extents and holdout, scales=[1.0], and the same seed, split and pool_size"
            )
        return instances


def all_extents(low: int, high: int, pitch: float) -> Cuboids:
    """Every extent with whole sides ``low .. high`` in pitches; x slowest, z fastest."""
    sides = torch.arange(low, high + 1)
    return Cuboids(torch.cartesian_prod(sides, sides, sides).double() * pitch)
