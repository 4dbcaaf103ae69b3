"""Random draws of hidden items, for planners that must not see them."""

from __future__ import annotations

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from packing_env.core import feasibility
from packing_env.generators.base import Generator, make_pool
from packing_env.items import Catalogue
from packing_env.types import MAX_SEED, Instances, PackingParams, ParameterError

_POOL = 8192
"""Number of new instances that are made for a generator whose places depend on each other."""
_SIMILAR = 256
"""Number of places in new instances from which hidden items are drawn."""
_OWN = 0x5EA2C4
"""Difference between the seed of the new instances and the seed of the draws."""


class Futures:
    """Generator of the hidden items of instances, with its own random numbers.

    If the generator has a law (a probability for each catalogue row), hidden items are drawn from
    this law, by Latin hypercube sampling over the draws of a row. In tasks that sort the items
    (``item_order="volume"``), hidden items are drawn from the conditional law, given the visible
    items. Suppose that t of the items seen have the size of the last one. Then there are j further
    items of this size with probability ``Binomial(j; hidden places, share of that size) / C(t + j,
    t)``, normalised. All other hidden items are smaller.

    For other generators, new instances are made. A hidden place gets the item that a new instance
    has at the same place. Some generators compute numbers that predict the later items from the
    earlier ones (:meth:`packing_env.generators.Generator.signs`). Then the 256 places of new
    instances with the most similar numbers are found, and the items after one of them are used. In
    sorted tasks a hidden place gets one of the smallest items of a new instance; no such item is
    larger than those seen. All of this is an approximation.

    Args:
        generator: Source of the instances.
        catalogue: The items.
        params: The task.
        seed: Seed of all draws, on the device of the catalogue.

    Raises:
        ParameterError: The generator has a fixed list of instances, or makes a new catalogue for
            each pool.
    """

    def __init__(
        self, generator: Generator, catalogue: Catalogue, params: PackingParams, seed: int
    ) -> None:
        tensors = catalogue.tensors()
        device = tensors["volume"].device
        playable = feasibility.legal_on_floor(tensors, params).any(1).cpu()
        self.law: Tensor | None = None
        self.fresh: Instances | None = None
        self.signs: Tensor | None = None
        self.size = tensors["extent"].prod(-1)
        self.sorts = params.item_order == "volume"
        self.generator = torch.Generator(device).manual_seed(seed)
        law = generator.law(playable, catalogue)
        if law is not None:
            self.law = law.to(device)
            return
        if generator.finite or generator.catalogue_of_seed:
            raise ParameterError(
                f"the distribution of hidden items of {type(generator).__name__} is unknown, "
                "because it lists its instances or makes new items for each pool; show all items "
                "(num_visible + preview = num_items), or use another generator"
            )
        own = (seed + _OWN) % (MAX_SEED + 1)
        pool = make_pool(generator, catalogue, params, playable, seed=own, size=_POOL)
        self.fresh = Instances(pool.item_id.to(device), pool.num_items.to(device))
        if self.sorts:
            return
        # At each place of the new instances, the numbers that predict the later items.
        self._signs = partial(generator.signs, catalogue=tensors, params=params)
        places = torch.arange(int(self.fresh.num_items.max()), device=device)
        filled = places < self.fresh.num_items[:, None]
        signs = self._signs(torch.where(filled, self.fresh.item_id[:, : len(places)], -1))
        if signs is not None:
            self.signs, self._place = signs[filled], filled.nonzero()

    def draw(self, item_id: Int[Tensor, "B N"], count: int) -> Int[Tensor, "B {count} N"]:
        """Return ``count`` sequences per row, with drawn items at the hidden places.

        Args:
            item_id: Catalogue rows in arrival order, -1 where hidden.
            count: Number of sequences.
        """
        # 1. Draw items for all places; those at known places are not used.
        if self.law is None:
            drawn = self._from_pool(item_id, count)
        elif self.sorts:
            drawn = self._from_sorted_law(item_id, count)
        else:
            drawn = self._from_law(self.law.expand(len(item_id), -1), item_id.shape[1], count)
        known = item_id[:, None].expand_as(drawn)
        items = torch.where(known < 0, drawn, known)
        if not self.sorts:
            return items
        # 2. Put the hidden items after the known ones, the largest first.
        keys = torch.where(known < 0, -self.size[items], -torch.inf)
        return items.gather(2, keys.argsort(dim=2, stable=True))

    def _from_sorted_law(self, item_id: Int[Tensor, "B N"], count: int) -> Int[Tensor, "B S N"]:
        """Return sequences drawn from the law, given that the items seen are the largest."""
        smallest, times, hidden = self._seen(item_id)
        last = self.size[smallest]
        equal, less = self.size == last[:, None], self.size < last[:, None]
        assert self.law is not None  # a sorted sequence starts with a known item
        laws = [torch.where(part, self.law, 0.0) for part in (equal, less)]
        num_equal = self._num_equal(laws, times, hidden, item_id.shape[1], count)
        same, smaller = (self._from_law(law, item_id.shape[1], count) for law in laws)
        rank = (item_id < 0).cumsum(1)[:, None] - 1  # of each hidden place
        return torch.where(rank < num_equal[..., None], same, smaller)

    def _seen(self, item_id: Int[Tensor, "B N"]) -> tuple[Tensor, Tensor, Tensor]:
        """Return the smallest item seen, how many of its size were seen, and the hidden places."""
        size = torch.where(item_id < 0, torch.inf, self.size[item_id.clamp(min=0)])
        last, place = size.min(1)
        smallest = item_id.gather(1, place[:, None]).squeeze(1)
        return smallest, (size == last[:, None]).sum(1), (item_id < 0).sum(1)

    def _num_equal(
        self, laws: list[Tensor], times: Tensor, hidden: Tensor, most: int, count: int
    ) -> Int[Tensor, "B S"]:
        """Draw how many hidden items have the size of the last item seen."""
        # The logarithm of each number's probability, up to a constant.
        equal, less = (law.sum(1, keepdim=True).clamp(min=1e-300).log() for law in laws)
        j = torch.arange(most + 1, device=times.device, dtype=torch.float64)
        seen, rest = times[:, None].double(), hidden[:, None].double()
        weight = j * equal + (rest - j) * less
        weight = weight - torch.lgamma(seen + j + 1) - torch.lgamma((rest - j).clamp(min=0) + 1)
        weight = torch.where(j <= rest, weight, -torch.inf).softmax(1)
        return _pick(weight, self._strata((len(times), 1, count)).flatten(1))

    def _from_law(self, law: Float[Tensor, "B M"], places: int, count: int) -> Tensor:
        """Return sequences ``[B, S, N]`` of independent draws, one per stratum at each place."""
        shares = self._strata((len(law), places, count))
        return _pick(law, shares.flatten(1)).view(shares.shape).transpose(1, 2)

    def _strata(self, shape: tuple[int, int, int]) -> Float[Tensor, "B P S"]:
        """Return numbers in [0, 1), one in each of S equal intervals, in random order."""
        device = self.size.device
        order, within = torch.rand(
            2, *shape, generator=self.generator, dtype=torch.float64, device=device
        )
        return (order.argsort(dim=-1) + within) / shape[-1]

    def _from_pool(self, item_id: Int[Tensor, "B N"], count: int) -> Int[Tensor, "B S N"]:
        """Return sequences from new instances; in sorted tasks, use the smallest items of each."""
        assert self.fresh is not None
        if self.signs is not None:
            return self._from_similar(item_id, count)
        batch, places = item_id.shape
        which = torch.randint(
            len(self.fresh), (batch, count), generator=self.generator, device=item_id.device
        )
        drawn, length = self.fresh.item_id[which], self.fresh.num_items[which][..., None]
        place = torch.arange(places, device=item_id.device)
        if not self.sorts:
            return drawn.gather(2, (place % length).expand_as(drawn))
        # 1. The items of an instance are sorted: leave out the first ones, which are too large.
        smallest, _, hidden = self._seen(item_id)
        too_large = (self.size[drawn] > self.size[smallest][:, None, None]) & (place < length)
        start = too_large.sum(2, keepdim=True)
        # 2. The hidden places get the last of the remaining items; if there are too few, they
        #    repeat.
        left = (length - start).clamp(min=1)
        rank = ((item_id < 0).cumsum(1)[:, None] - 1).clamp(min=0)
        behind = (left - hidden[:, None, None]).clamp(min=0)
        taken = (start + (behind + rank) % left).clamp(max=places - 1)
        items = drawn.gather(2, taken.expand_as(drawn))
        # 3. If all items are too large, use the smallest item seen.
        return torch.where(start < length, items, smallest[:, None, None])

    def _from_similar(self, item_id: Int[Tensor, "B N"], count: int) -> Int[Tensor, "B S N"]:
        """Return the continuations of new instances from the places with the most similar signs."""
        assert self.fresh is not None
        assert self.signs is not None
        # 1. The places of new instances that are most similar to each row's last known place.
        known = (item_id >= 0).sum(1)
        signs = self._signs(item_id[:, : int(known.max())])
        assert signs is not None
        last = signs[torch.arange(len(item_id), device=item_id.device), known - 1]
        distance = torch.cdist(last, self.signs)
        near = distance.topk(min(_SIMILAR, len(self._place)), dim=1, largest=False).indices
        # 2. Draw some of them, and shift their later items to the hidden places.
        shape = (len(item_id), -(-count // near.shape[1]), near.shape[1])
        words = torch.rand(shape, generator=self.generator, device=item_id.device)
        which = near.gather(1, words.argsort(dim=2).flatten(1)[:, :count])
        instance, place = self._place[which].unbind(-1)
        shift = place + 1 - known[:, None]
        places = torch.arange(item_id.shape[1], device=item_id.device)
        source = (places + shift[..., None]).clamp(min=0)
        length = self.fresh.num_items[instance][..., None]
        source = torch.minimum(source, length - 1)
        return self.fresh.item_id[instance].gather(2, source)


def _pick(law: Float[Tensor, "B M"], shares: Float[Tensor, "B K"]) -> Int[Tensor, "B K"]:
    """Return the rows at which the cumulative law reaches these shares of its sum."""
    total = law.cumsum(1)
    rows = torch.searchsorted(total, shares * total[:, -1:], right=True)
    return rows.clamp(max=law.shape[1] - 1)
