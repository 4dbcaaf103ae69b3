"""Hidden items redrawn: what a planner may assume of the items that it has not seen."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor

from packing_env.core import feasibility
from packing_env.generators.base import Generator, make_pool
from packing_env.items import Catalogue
from packing_env.types import PackingParams, ParameterError

_POOL = 4096
"""Fresh instances of a generator whose places depend on each other."""


class Futures:
    """Draws the hidden items of instances, with random numbers of its own.

    Where the generator's places are independent, they are drawn from its law, Latin hypercubes over
    the draws of a row; in tasks that sort the items (``item_order="volume"``), from the part of the
    law that is not larger than what was seen. Of other generators, fresh instances are made, and
    hidden places take the items that one of them has there: an approximation, since it does not
    depend on the items seen so far. Files and lists have no law of their own.

    Args:
        generator: Source of the instances.
        catalogue: The items.
        params: The task.
        seed: Seed of all draws, on the device of the catalogue.

    Raises:
        ParameterError: The generator repeats given instances, or makes a catalogue for each pool.
    """

    def __init__(
        self, generator: Generator, catalogue: Catalogue, params: PackingParams, seed: int
    ) -> None:
        tensors = catalogue.tensors()
        device = tensors["volume"].device
        playable = feasibility.legal_on_floor(tensors, params).any(1).cpu()
        self.law: Tensor | None = None
        self.fresh: Tensor | None = None
        self.size = tensors["extent"].prod(-1)
        self.sorts = params.item_order == "volume"
        self.generator = torch.Generator(device).manual_seed(seed)
        law = generator.law(playable, catalogue)
        if law is not None:
            self.law = law.to(device)
            return
        if generator.finite:
            raise ParameterError(
                f"{type(generator).__name__} lists its instances, so hidden items have no law; "
                f"show them all (num_visible + preview = num_items), or use a generator that draws"
            )
        pool = make_pool(generator, catalogue, params, playable, seed=seed, size=_POOL)
        places = torch.arange(params.num_items).expand_as(pool.item_id)
        self.fresh = pool.item_id.gather(1, places % pool.num_items[:, None]).to(device)

    def draw(self, item_id: Int[Tensor, "B N"], count: int) -> Int[Tensor, "B {count} N"]:
        """Return ``count`` sequences per row, with items at the hidden places.

        Args:
            item_id: Catalogue rows in arrival order, -1 where hidden.
            count: Number of sequences.
        """
        known = item_id[:, None].expand(-1, count, -1)
        drawn = self._from_pool(known) if self.law is None else self._from_law(item_id, count)
        return torch.where(known < 0, drawn, known)

    def _from_pool(self, like: Int[Tensor, "B S N"]) -> Int[Tensor, "B S N"]:
        """Return sequences of the fresh pool."""
        assert self.fresh is not None
        where, num = like.device, len(self.fresh)
        which = torch.randint(num, like.shape[:2], generator=self.generator, device=where)
        return self.fresh[which]

    def _from_law(self, item_id: Int[Tensor, "B N"], count: int) -> Int[Tensor, "B S N"]:
        """Return sequences of independent draws; of each place, one per stratum."""
        assert self.law is not None
        shape = (len(item_id), item_id.shape[1], count)
        order, within = torch.rand(
            2, *shape, generator=self.generator, dtype=torch.float64, device=item_id.device
        )
        places = (order.argsort(-1) + within) / count
        law = self.law.expand(len(item_id), -1)
        if self.sorts:
            seen = torch.where(item_id < 0, torch.inf, self.size[item_id.clamp(min=0)])
            law = torch.where(self.size <= seen.amin(1, keepdim=True), law, 0.0)
        total = law.cumsum(1)
        drawn = torch.searchsorted(total, places.flatten(1) * total[:, -1:], right=True)
        drawn = drawn.clamp(max=law.shape[1] - 1).view(shape).transpose(1, 2)
        if not self.sorts:
            return drawn
        hidden = (item_id < 0)[:, None]
        keys = torch.where(hidden, -self.size[drawn], -torch.inf)  # known places come first
        return drawn.gather(2, keys.argsort(dim=2, stable=True))
