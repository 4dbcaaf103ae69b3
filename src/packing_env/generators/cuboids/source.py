"""The interface of generators that supply their own cuboids."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch

from packing_env.generators import base
from packing_env.generators.base import Cuboids, Request
from packing_env.items import Catalogue
from packing_env.items.cuboids import VOLUME_TOLERANCE
from packing_env.types import Instances


class CuboidSource(base.Generator):
    """A generator that supplies the cuboids of its instances.

    Its tasks have ``items={"source": "cuboids"}`` without extents. :meth:`cuboids` is called before
    the catalogue is built, and :meth:`sample` with that catalogue.
    """

    @abstractmethod
    def make(self, request: Request) -> tuple[Cuboids, Instances]:
        """Make the cuboids, and the instances as their row numbers in arrival order."""

    def cuboids(self, request: Request) -> Cuboids:
        """Return the cuboids of a pool."""
        return self.make(request)[0]

    def sample(self, request: Request, catalogue: Catalogue) -> Instances:
        """Return the instances; raise unless ``catalogue`` holds exactly these cuboids in order."""
        cuboids, instances = self.make(request)
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


def all_extents(sides: Sequence[int], pitch: float) -> Cuboids:
    """List every extent with these sides in pitches; x slowest, z fastest."""
    lengths = torch.tensor(sides)
    return Cuboids(torch.cartesian_prod(lengths, lengths, lengths).double() * pitch)
