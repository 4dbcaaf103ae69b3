"""Event points: placements flush with the edges of packed boxes."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core.candidates import Proposals, Scene
from packing_env.core.cuboids.spaces import sides
from packing_env.core.lists import NEVER, differs_from_last
from packing_env.core.proposals.places import (
    indexed,
    item_sizes,
    need_cuboids,
    packed,
    rest_heights,
)
from packing_env.types import ParameterError

MAX_PAIRS = 2048
"""Largest number of pairs of an x-event and a y-event; pairs on the highest levels are left out."""


def event_points(scene: Scene) -> Proposals:
    """Propose the places at an x-event and a y-event of the same level that are free above it.

    The levels are the floor and the tops of packed boxes below the lid. An x-event is a start (an
    item may begin there) or an end (an item may end there). Two kinds of boxes give events to a
    level: those with their top at this level, and those that stand on it. The starts are the lower
    x-edges of the former and the upper x-edges of the latter. The ends are the upper x-edges of the
    former and the lower x-edges of the latter. On the floor the walls are events too: 0 is a start
    and X is an end. The same holds in y. An item in an orientation is proposed at each pair of an
    x-event and a y-event of a level, if it is inside the container and its rest height is at most
    that level.

    The order is: level, x-event (by coordinate, a start before an end), y-event, item, orientation.
    Pairs beyond :data:`MAX_PAIRS` are left out and counted. The definition follows Zhao et al.,
    ICLR 2022 (PCT), except that their event points require an empty maximal space at the level.
    """
    if not scene.params.keeps_boxes:
        raise ParameterError(
            "candidate_generator='event_points' reads the list of packed cuboids, which this task "
            "does not keep; set num_spaces=128 or so (cuboids only), or use corner_points"
        )
    need_cuboids(scene, "event_points")
    # 1. Find the pairs of an x-event and a y-event of one level.
    boxes = scene.state["boxes"].long()
    across, along, height = sides(scene.params)
    pairs, real, dropped = _pairs(boxes, (across, along), height)
    level, x, ends_x, y, ends_y = (part[..., None, None] for part in pairs)
    # 2. The lower corner of every item at each pair: it begins at a start, or ends at an end.
    size, present = item_sizes(scene)
    x = x - ends_x * size[:, None, ..., 0]
    y = y - ends_y * size[:, None, ..., 1]
    inside = (x + size[:, None, ..., 0] <= across) & (y + size[:, None, ..., 1] <= along)
    index = indexed(scene, x, y, real[..., None, None] & present[:, None] & inside)
    # 3. Keep the placements that come to rest on the level or below it.
    free = rest_heights(scene, index) <= level.expand(x.shape).flatten(1)
    return packed(scene, torch.where(free, index, -1), dropped)


def _pairs(
    boxes: Int[Tensor, "B N 6"], lengths: tuple[int, int], height: int
) -> tuple[tuple[Int[Tensor, "B C"], ...], Bool[Tensor, "B C"], Int[Tensor, " B"]]:
    """Return the first :data:`MAX_PAIRS` pairs by level, x-event, y-event, and the number left out.

    A pair is ``(level, x, ends_x, y, ends_y)``. ``level`` is in pitches. ``x`` is the point at
    which an item begins, or ends if ``ends_x`` is 1; ``y`` and ``ends_y`` are the same along Y. The
    mask is False for padding.

    Events are sorted keys ``(level * (length + 1) + coordinate) * 2 + end``, so the events of a
    level are contiguous. Each x-event forms a pair with every y-event of its level.
    """
    # 1. The events of both axes, and the level of each x-event.
    span_x, span_y = (2 * (length + 1) for length in lengths)
    of_x, of_y = (_events(boxes, axis, lengths[axis], height) for axis in (0, 1))
    level = torch.div(of_x, span_x, rounding_mode="floor").clamp(max=height)
    # 2. The range of y-events on that level, and the cumulative number of pairs.
    first = torch.searchsorted(of_y, level * span_y)
    count = torch.searchsorted(of_y, (level + 1) * span_y) - first
    last = torch.where(of_x < NEVER, count, 0).cumsum(1)
    # 3. The p-th pair: find its x-event by bisection of the cumulative number; the remainder gives
    #    its y-event.
    place = torch.arange(MAX_PAIRS, device=boxes.device).expand(len(boxes), MAX_PAIRS).contiguous()
    total = last[:, -1:]
    which = torch.searchsorted(last, place, right=True).clamp(max=last.shape[1] - 1)
    offset = place - (last - count).gather(1, which)
    other = (first.gather(1, which) + offset).clamp(0, of_y.shape[1] - 1)
    # 4. Decode coordinate and end from both keys.
    key_x, key_y = of_x.gather(1, which), of_y.gather(1, other)
    x = torch.div(key_x % span_x, 2, rounding_mode="floor")
    y = torch.div(key_y % span_y, 2, rounding_mode="floor")
    pairs = (level.gather(1, which), x, key_x % 2, y, key_y % 2)
    return pairs, place < total, (total.squeeze(1) - MAX_PAIRS).clamp(min=0)


def _events(boxes: Int[Tensor, "B N 6"], axis: int, length: int, height: int) -> Int[Tensor, "B M"]:
    """Return keys of the distinct events along an axis, ascending, padded with ``NEVER``."""
    low, high = boxes[..., axis], boxes[..., axis + 3]
    bottom, top = boxes[..., 2], boxes[..., 5]
    real, below_lid = top > bottom, (top > bottom) & (top < height)

    def key(level: Tensor, at: Tensor, end: int, there: Tensor) -> Tensor:
        return torch.where(there, (level * (length + 1) + at) * 2 + end, NEVER)

    # 1. The walls on the floor, and both edges of each box at the levels of its top and its bottom.
    floor = torch.zeros_like(boxes[:, :1, 0])
    keys = [
        floor,
        floor + 2 * length + 1,
        key(top, low, 0, below_lid),
        key(top, high, 1, below_lid),
        key(bottom, high, 0, real & (high < length)),
        key(bottom, low, 1, real & (low > 0)),
    ]
    # 2. Sort the keys; repeated keys move to the end.
    ordered = torch.cat(keys, 1).sort(1).values
    return torch.where(differs_from_last(ordered), ordered, NEVER).sort(1).values
