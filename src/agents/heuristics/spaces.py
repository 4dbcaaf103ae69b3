"""Heuristics that put cuboids into empty maximal spaces, batched.

They are best fit and the heuristics in ``heuristic.py`` of the program of Zhao et al., ICLR 2022
(PCT). For every combination of a space in ``env.state["spaces"]``, an item and an orientation, they
propose the lower corner of the space. An item is dropped there, so it may come to rest above the
space's floor. The best legal proposal is chosen; ties go to the first one in the order space, item,
orientation. Lengths are in pitches.

| name | proposes | chooses | source that PCT names |
|---|---|---|---|
| ``online_bph`` | lower corner, fitting or not | lowest space by (z, y, x) | Ha et al. 2017 |
| ``lsah`` | lower corner, if it fits | least surface, then tightest | Hu et al. 2017 |
| ``br`` | lower corner, if it fits | large space that takes most types | Zhao et al., AAAI 2021 |
| ``best_fit`` | lower corner, if it fits | smallest space | (Crainic et al. 2008) |

An item fits a space if no side of the item is longer than that of the space; it need not come to
rest inside. In ``candidate`` mode the task's ``candidate_generator`` must propose all placements
that a rule may choose (:class:`SpaceRule`).

* ``lsah``: let dx and dy be the sides of the rectangle around all packed items and the new one,
  seen from above, and t the top of the new one (not of the pile). The score is ``dx dy + t dy + t
  dx``. Ties go to the smallest residual margin, the smallest of the three gaps between item and
  space.
* ``br``: the score is the volume of the space, plus the number of item types that fit into it (in
  their given orientation), plus 10 if all types fit. In geometry ``"maps"`` the types are the
  distinct sides of the catalogue's items, and volumes count cells. In ``"boxes"`` the types have 5
  sizes per side, evenly spaced from the smallest to the largest side of the catalogue, and volumes
  are shares of the container.
* ``best_fit``: the smallest difference between the volume of the space and that of the item wins,
  then the lowest (z, y, x). This is the residual space that Crainic, Perboli, Tadei (INFORMS J.
  Computing, 2008) define for extreme points, applied to maximal spaces (Parreño et al., INFORMS J.
  Computing, 2008).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from agents.heuristics.base import Heuristic, first_lowest
from packing_env import PackingEnv
from packing_env.core import candidates
from packing_env.core.orientation import visible_items
from packing_env.core.proposals import split
from packing_env.types import Catalogue, PackingParams, ParameterError

_SIZES_PER_SIDE = 5
_ALL_FIT = 10
_COMPARISONS = 2**24
"""Largest number of pairs of a space and an item type that are compared at once."""

Chosen = tuple[Tensor, Tensor]
"""Index ``[B]`` of the chosen proposal in the flattened axes, and whether there is one ``[B]``."""


@dataclass(frozen=True)
class Offers:
    """Proposals with axes ``[B, E, L, R]``: space, item, orientation; int64, pitches.

    Attributes:
        legal: True if the proposal is legal.
        space: Lower and upper corner of the space.
        size: Rotated sides.
        z: Rest height; undefined if the proposal is not legal.
        boxes: The packed items; zeros as padding.
        types: Item types that ``br`` counts, in pitches.
        volume_unit: Volume, in cubic pitches, that counts as much as one item type in ``br``.
        limits: Sides ``(X, Y, H)`` of the container.
    """

    legal: Bool[Tensor, "B E L R"]
    space: Int[Tensor, "B E 1 1 6"]
    size: Int[Tensor, "B 1 L R 3"]
    z: Int[Tensor, "B E L R"]
    boxes: Int[Tensor, "B N 6"]
    types: Int[Tensor, "T 3"]
    volume_unit: int
    limits: tuple[int, int, int]

    def lowest(self, *keys: Tensor) -> Chosen:
        """Return the legal proposal whose keys are lexicographically smallest; keys broadcast."""
        flat = (key.expand_as(self.legal).flatten(1) for key in keys)
        return first_lowest(self.legal.flatten(1), flat)

    @property
    def sides(self) -> Int[Tensor, "B E 1 1 3"]:
        """Sides of the spaces."""
        return self.space[..., 3:] - self.space[..., :3]

    @property
    def margin(self) -> Int[Tensor, "B E L R"]:
        """Smallest of the gaps between item and space."""
        return (self.sides - self.size).amin(-1)


def online_bph(offers: Offers) -> Chosen:
    """Choose the lowest space, ties by smallest y, then by smallest x."""
    x, y, z = offers.space[..., :3].unbind(-1)
    return offers.lowest(z, y, x)


def surface(offers: Offers) -> Int[Tensor, "B E L R"]:
    """Compute ``dx dy + t dy + t dx`` of the packed items and the new one."""
    real = offers.boxes[..., 3] > offers.boxes[..., 0]
    packed = offers.boxes[:, None, None, None]
    there = real[:, None, None, None]
    lengths = []
    for axis in range(2):
        low = torch.where(there, packed[..., axis], offers.limits[axis]).amin(-1)
        high = torch.where(there, packed[..., 3 + axis], 0).amax(-1)
        lower = offers.space[..., axis]
        upper = lower + offers.size[..., axis]
        lengths.append(torch.maximum(high, upper) - torch.minimum(low, lower))
    dx, dy = lengths
    top = offers.z + offers.size[..., 2]
    return dx * dy + top * dy + top * dx


def lsah(offers: Offers) -> Chosen:
    """Choose the smallest surface, then the smallest residual margin."""
    return offers.lowest(surface(offers), offers.margin)


def br(offers: Offers) -> Chosen:
    """Choose the largest volume, plus the item types that fit, plus 10 if all fit."""
    sides = offers.sides
    spaces = sides.flatten(0, -2)
    at_once = max(1, _COMPARISONS // max(1, spaces.numel()))
    fitting = sum((spaces[:, None] >= part).all(-1).sum(1) for part in offers.types.split(at_once))
    assert isinstance(fitting, Tensor)
    bonus = fitting + _ALL_FIT * (fitting == len(offers.types))
    score = sides.prod(-1) + bonus.view(sides.shape[:-1]) * offers.volume_unit
    return offers.lowest(-score)


def best_fit(offers: Offers) -> Chosen:
    """Choose the smallest residual volume, then the lowest (z, y, x)."""
    residual = offers.sides.prod(-1) - offers.size.prod(-1)
    x, y, z = offers.space[..., 0], offers.space[..., 1], offers.z
    return offers.lowest(residual, z, y, x)


_DROPS = ("split_space_drops", "all_placements")


@dataclass(frozen=True)
class SpaceRule:
    """Definition of a heuristic that uses the spaces.

    Attributes:
        choose: Function that chooses one of the proposals.
        fits: Whether it proposes a space only for items that fit into it.
        generators: Candidate generators that propose every placement that the heuristic may choose;
            the one with the shortest list comes first.
    """

    choose: Callable[[Offers], Chosen]
    fits: bool = True
    generators: tuple[str, ...] = ("split_spaces", *_DROPS)


SPACE_HEURISTICS: dict[str, SpaceRule] = {
    "online_bph": SpaceRule(online_bph, fits=False, generators=_DROPS),
    "lsah": SpaceRule(lsah),
    "br": SpaceRule(br),
    "best_fit": SpaceRule(best_fit),
}
"""The heuristics by name."""


def item_types(catalogue: Catalogue, params: PackingParams) -> tuple[Tensor, int]:
    """Return the item types ``[T, 3]`` that ``br`` counts, and the volume that counts as one type.

    Both are in pitches; the geometry determines how they are chosen.
    """
    there = catalogue["cuboid"][:, 0].prod(-1) > 0
    sides = catalogue["cuboid"][:, 0][there].long()
    if params.geometry == "maps":
        return torch.unique(sides, dim=0), 1
    low, high = sides.min(), sides.max()
    steps = torch.arange(_SIZES_PER_SIDE, device=sides.device)
    # A size fits into a space of whole pitches if and only if the size rounded up does.
    last = _SIZES_PER_SIDE - 1
    grid = low + ((high - low) * steps + last - 1) // last
    return torch.cartesian_prod(grid, grid, grid), math.prod(params.pitches)


class SpaceHeuristic(Heuristic):
    """One of :data:`SPACE_HEURISTICS`; it reads the environment's state."""

    needs_state = True

    def __init__(self, name: str, env: PackingEnv, item_order: str | None, fallback: bool) -> None:
        super().__init__(env, item_order, {"candidates" if env.mode.lists else "drop_height"})
        self._lists = env.mode.lists
        if env.params.num_spaces < 1:
            raise ParameterError(
                f"heuristic={name!r} reads the empty maximal spaces, which this task does not "
                f"keep; set env.num_spaces=80 or more (make_env: num_spaces; cuboids only)"
            )
        self.rule = SPACE_HEURISTICS[name]
        generator = env.params.candidate_generator
        if self._lists and generator not in self.rule.generators:
            own, *others = self.rule.generators
            raise ParameterError(
                f"heuristic={name!r} chooses among places that candidate_generator={generator!r} "
                f"does not propose; set candidate_generator={own!r} (or {', '.join(others)})"
            )
        self.fallback = fallback
        self.types, self.volume_unit = item_types(self.catalogue, env.params)

    def choose(self, observed: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """Return the action of each row."""
        # 1. Propose, and look up what is legal.
        state = self._state()
        item_id, there = visible_items(state, self.params.num_visible)
        scene = candidates.Scene(state, item_id, there, None, self.catalogue, self.params)
        spaces, size, proposed = split.spaces_of(scene, fits=self.rule.fits)
        index = split.corner_index(scene, spaces, proposed)
        action, legal, z = self._judge(index.flatten(1), observed, mask, state)
        legal = legal.view(index.shape)
        # 2. Keep the proposals of the item that ``item_order`` chooses.
        if self.item_order is not None:
            slot = self._pick_slot(item_id, legal.any(-1).any(1))
            slots = torch.arange(item_id.shape[1], device=slot.device)
            legal = legal & (slots == slot[:, None])[:, None, :, None]
        # 3. Choose by the rule.
        offers = Offers(
            legal=legal,
            space=spaces,
            size=size,
            z=z.view(index.shape),
            boxes=state["boxes"].long(),
            types=self.types,
            volume_unit=self.volume_unit,
            limits=self.params.pitches,
        )
        place, is_legal = self.rule.choose(offers)
        chosen = action.gather(1, place[:, None]).squeeze(1)
        otherwise = mask.byte().argmax(1) if self.fallback else torch.full_like(chosen, -1)
        return torch.where(is_legal, chosen, otherwise)

    def _judge(
        self, index: Int[Tensor, "B P"], observed: dict[str, Tensor], mask: Tensor, state: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the action of each placement, whether it is legal, and its rest height."""
        if not self._lists:
            action = index.clamp(min=0)
            z = observed["drop_height"].flatten(1).gather(1, action)
            legal = mask.gather(1, action) & (index >= 0)
        else:
            ordered, order = state["candidate"].sort(dim=1)
            nearest = torch.searchsorted(ordered, index).clamp(max=ordered.shape[1] - 1)
            action = order.gather(1, nearest)
            listed = (ordered.gather(1, nearest) == index) & (index >= 0)
            legal = listed & mask.gather(1, action)
            column = candidates.FEATURES.index("z")
            z = observed["candidates"][..., column].gather(1, action)
        return action, legal, self._pitches(z).round().long()
