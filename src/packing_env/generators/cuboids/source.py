"""The interface of generators that supply their own cuboids."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch

from packing_env.generators import base
from packing_env.generators.base import Cuboids, Request
from packing_env.items import Catalogue
from packing_env.items.cuboids import VOLUME_TOLERANCE
from packing_env.types import Instances, PackingParams, whole_cells


@dataclass(frozen=True)
class CuboidRequest(base.Draw):
    """The arguments of a generator that supplies its own cuboids.

    Attributes:
        container: ``(X, Y, H)``, metres.
        pitch: Step of the lattice, metres: the cell, or the unit of geometry ``"boxes"``.
    """

    container: tuple[float, float, float]
    pitch: float

    @classmethod
    def of(cls, params: PackingParams, seed: int, split: str, size: int) -> CuboidRequest:
        """Make the request for a pool with these arguments."""
        size, seed = base.check_pool(size, seed)
        return cls(
            num_instances=size,
            num_items=params.num_items,
            seed=seed,
            stream=base.split_stream(split),
            container=params.container,
            pitch=params.pitch,
        )

    @property
    def steps(self) -> tuple[int, int, int]:
        """The container's sides in pitches; raises unless all three are whole."""
        x, y, z = map(whole_cells, self.container, (self.pitch,) * 3, "XYH")
        return x, y, z


class CuboidSource(base.Generator):
    """A generator that supplies the cuboids of its instances.

    Its tasks have ``items={"source": "cuboids"}`` without extents. :meth:`cuboids` is called before
    the catalogue is built, and :meth:`sample` with that catalogue.
    """

    @abstractmethod
    def make(self, request: CuboidRequest) -> tuple[Cuboids, Instances]:
        """Make the cuboids, and the instances as rows of them in arrival order."""

    def cuboids(
        self, params: PackingParams, seed: int = 0, split: str = "train", size: int = 4096
    ) -> Cuboids:
        """Return the cuboids of a pool that is made with these arguments."""
        return self.make(CuboidRequest.of(params, seed, split, size))[0]

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """Return the instances; raise unless ``catalogue`` holds exactly these cuboids in order."""
        cuboids, instances = self.make(
            CuboidRequest(
                num_instances=request.num_instances,
                num_items=request.num_items,
                seed=request.seed,
                stream=request.stream,
                container=catalogue.container,
                pitch=catalogue.cell,
            )
        )
        volume = cuboids.extents.prod(1)
        if len(catalogue) != len(volume) or not torch.allclose(
            catalogue.volume.cpu(), volume, rtol=VOLUME_TOLERANCE, atol=0.0
        ):
            raise base.GeneratorError(
                f"{type(self).__name__} supplies its own {len(volume)} cuboids, but the catalogue "
                f"holds {len(catalogue)} other items; use items.source=cuboids "
                f"without extents and holdout, scales=[1.0], and the same seed, split and pool_size"
            )
        return instances


def all_extents(low: int, high: int, pitch: float) -> Cuboids:
    """List every extent with whole sides ``low .. high`` in pitches; x slowest, z fastest."""
    sides = torch.arange(low, high + 1)
    return Cuboids(torch.cartesian_prod(sides, sides, sides).double() * pitch)
