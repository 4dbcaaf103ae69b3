"""Cuboids cut from the container, so that the best possible utilization is 1."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core.observation import cut_surfaces
from packing_env.core.random import below, choose_uniform
from packing_env.generators.base import CUT, ORDER, Cuboids, GeneratorError, Request
from packing_env.generators.cuboids.source import CuboidSource, all_extents
from packing_env.types import Instances, PackingParams, ParameterError
from packing_env.values import Count, Option, check

_LOWEST = 50.0
"""Weight of the share of the lowest level in :meth:`Guillotine.signs`."""
_CHUNK = 256
"""Number of instances that are sorted at once."""


@dataclass(frozen=True)
class Guillotine(CuboidSource):
    """Pieces of the container, which is cut until every side is in ``low .. high``.

    The cuts follow the program of Zhao et al., AAAI 2021: among the sides of a piece that are too
    long, one is chosen uniformly. It is cut at a whole pitch, chosen uniformly among the pitches
    that leave both parts at least ``low`` long. Then the pieces are sorted so that they can be
    packed in this order, each where it was in the container:

    - ``"cut1"``, the paper's CUT-1: by the height of the piece's lower face, ties at random. (The
      paper's program calls it ``cut2``, ``MDlayerBoxCreator``.)
    - ``"cut2"``, the paper's CUT-2: the next piece is drawn uniformly among the pieces whose
      supports are all packed. (The paper's program calls it ``cut1``, ``CuttingBoxCreator``.)

    For every seed, the catalogue holds every extent ``low .. high`` once, x slowest.

    Attributes:
        variant: Order of the pieces.
        low: Shortest side of a piece, in pitches.
        high: Longest side; at least ``2 * low - 1``, so that every longer side can be cut into two
            parts of at least ``low``.
    """

    variant: Annotated[str, Option(choices=("cut1", "cut2"))] = "cut1"
    low: Count = 2
    high: Count = 5

    def __post_init__(self) -> None:
        check(self, "generator.")
        least = 2 * self.low - 1
        if self.high < least:
            raise ParameterError(
                f"generator.high={self.high} must be 2 * low - 1 = {least} or more: a side of "
                f"{self.high + 1} could not be cut into two parts of at least {self.low}"
            )

    def make(self, request: Request) -> tuple[Cuboids, Instances]:
        """Return all extents; the length of an instance is its number of pieces."""
        boxes, count = self._sorted(request)
        sides = (boxes[..., 3:] - boxes[..., :3] - self.low).clamp(min=0)
        span = self.high - self.low + 1
        rows = (sides[..., 0] * span + sides[..., 1]) * span + sides[..., 2]
        return all_extents(range(self.low, self.high + 1), request.pitch), Instances(rows, count)

    def signs(
        self, item_id: Int[Tensor, "B N"], catalogue: Mapping[str, Tensor], params: PackingParams
    ) -> Float[Tensor, "B N C"] | None:
        """Return the surface of the pieces and the volume left; in ``cut2``, only the volume left.

        See :func:`packing_env.core.observation.cut_surfaces`. The share of the lowest level gets
        the largest weight, because the next piece of ``cut1`` must fit there.
        """
        surfaces = cut_surfaces(item_id, dict(catalogue), params)
        if self.variant == "cut2":
            return surfaces[..., -1:]
        surfaces[..., -2] *= _LOWEST
        return surfaces

    def solutions(self, request: Request) -> Int[Tensor, "P N 6"]:
        """Return the original place of each piece in the container, in arrival order.

        If the pieces are packed there in order, without rotation, they fill the container.

        Returns:
            ``(x0, y0, z0, x1, y1, z1)`` in pitches; zeros past the end of an instance.
        """
        return self._sorted(request)[0]

    def _sorted(self, request: Request) -> tuple[Int[Tensor, "P N 6"], Int[Tensor, " P"]]:
        """Return the pieces of each instance in arrival order, and the number of pieces."""
        boxes, count = self._cut(request)
        in_order = _by_height if self.variant == "cut1" else _by_support
        draw = request.words(ORDER, boxes.shape[1])[0]
        chunks = zip(*(rows.split(_CHUNK) for rows in (boxes, count, draw)), strict=True)
        rank = torch.cat([in_order(*chunk) for chunk in chunks])
        boxes = boxes.gather(1, rank[..., None].expand_as(boxes))
        padding = request.num_items - boxes.shape[1]
        return torch.nn.functional.pad(boxes, (0, 0, 0, padding)), count

    def _cut(self, request: Request) -> tuple[Int[Tensor, "P C 6"], Int[Tensor, " P"]]:
        """Cut the container; return the pieces in order of creation, zero padded, and their number.

        Raises:
            GeneratorError: The container is too small, or the pieces exceed ``num_items``.
        """
        whole = request.steps
        if min(whole) < self.low:
            raise GeneratorError(
                f"guillotine: the container measures {whole} pitches, less than low={self.low}; "
                "use a larger container or a smaller low"
            )
        boxes = torch.tensor([0, 0, 0, *whole]).repeat(request.num_instances, 1, 1)
        count = torch.ones(request.num_instances, dtype=torch.int64)
        for step in range(sum(whole)):
            long = (boxes[..., 3:] - boxes[..., :3]) > self.high
            cut = long.any(2)
            if not bool(cut.any()):
                break
            # 1. Divide every piece that is too long into two.
            words = request.words(CUT + step, boxes.shape[1])
            left, right = self._halves(boxes, long, words[0], words[1])
            # 2. The left half replaces the piece, the right half goes to the next free place.
            place = count[:, None] + cut.long().cumsum(1) - 1
            count = count + cut.sum(1)
            most = int(count.max())
            if most > request.num_items:
                bound = math.prod(side // self.low for side in whole)
                raise GeneratorError(
                    f"guillotine: an instance is cut into {most} or more pieces, but episodes have "
                    f"num_items={request.num_items}; num_items={bound} is always enough here"
                )
            boxes = torch.nn.functional.pad(left, (0, 0, 0, most - left.shape[1]))
            row = torch.arange(len(boxes))[:, None].expand_as(place)
            boxes[row[cut], place[cut]] = right[cut]
        return boxes, count

    def _halves(
        self,
        boxes: Int[Tensor, "P C 6"],
        long: Bool[Tensor, "P C 3"],
        which: Int[Tensor, "P C"],
        where: Int[Tensor, "P C"],
    ) -> tuple[Int[Tensor, "P C 6"], Int[Tensor, "P C 6"]]:
        """Divide each piece that has too long a side; other pieces stay whole as the left half."""
        # 1. Choose the axis among those that are too long, and the position of the cut along it.
        rank = below(which, long.sum(2))
        axis = (long.long().cumsum(2) <= rank[..., None]).sum(2).clamp(max=2)[..., None]
        low, high = boxes[..., :3], boxes[..., 3:]
        side = (high - low).gather(2, axis)
        at = self.low + below(where[..., None], side - 2 * self.low + 1)
        # 2. Make the halves; pieces without a long side keep both ends.
        here = (torch.arange(3) == axis) & long.any(2, keepdim=True)
        left = torch.cat((low, torch.where(here, low + at, high)), 2)
        right = torch.cat((torch.where(here, low + at, low), high), 2)
        return left, right


def _by_height(
    boxes: Int[Tensor, "P C 6"], count: Int[Tensor, " P"], word: Int[Tensor, "P C"]
) -> Int[Tensor, "P C"]:
    """Sort pieces by height, lowest first, ties by their random words, padding last."""
    is_piece = torch.arange(boxes.shape[1]) < count[:, None]
    key = (boxes[..., 2] << 32) + word
    return torch.where(is_piece, key, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)


def _by_support(
    boxes: Int[Tensor, "P C 6"], count: Int[Tensor, " P"], word: Int[Tensor, "P C"]
) -> Int[Tensor, "P C"]:
    """Sort pieces: draw each among those whose supports were all drawn before; padding last."""
    # 1. carried[p, i, j]: piece i rests on piece j.
    places = torch.arange(boxes.shape[1])
    is_piece = places < count[:, None]
    low, high = boxes[..., :3], boxes[..., 3:]
    crossing = (low[:, :, None, :2] < high[:, None, :, :2]) & (
        low[:, None, :, :2] < high[:, :, None, :2]
    )
    carried = (low[:, :, None, 2] == high[:, None, :, 2]) & crossing.all(3)
    carried &= is_piece[:, :, None] & is_piece[:, None, :]
    # 2. Choose among the remaining pieces whose supports are all chosen; at the end, take the
    #    padding.
    lacking = carried.sum(2)
    waiting, taken, order = is_piece, is_piece, torch.zeros_like(word)
    rows = torch.arange(len(boxes))
    for step in range(boxes.shape[1]):
        free = torch.where(waiting.any(1, keepdim=True), waiting & (lacking == 0), ~taken)
        chosen = choose_uniform(free, word[:, step].double() / 2**32)
        order[:, step] = chosen
        lacking = lacking - carried[rows, :, chosen].long()
        waiting = waiting & (places != chosen[:, None])
        taken = taken | (places == chosen[:, None])
    return order
