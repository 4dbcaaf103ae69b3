"""The splitting of empty maximal spaces, in torch: any device, traceable, no host read."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.kernels.layout import in_rows

PIECES = ((0, 3), (3, 0), (1, 4), (4, 1), (5, 2))
"""The five remainders of a space, in order. Each pair says which bound of the space (x0 y0 z0 x1 y1
z1) moves to which bound of the box: the end in x moves to the box's start, the start in x to the
box's end, and so on.
"""

_CHUNK_PAIRS = 160_000
"""Number of pairs of spaces that are processed at once on a CPU, so that intermediate results stay
in its cache.
"""


@in_rows(3, lambda spaces, *_: _CHUNK_PAIRS // max(1, spaces.shape[1] ** 2))
def split_spaces(
    spaces: Int[Tensor, "B E 6"],
    box: Int[Tensor, "B 6"],
    placed: Bool[Tensor, " B"],
    smallest: Int[Tensor, ""],
) -> tuple[Int[Tensor, "B E 6"], Int[Tensor, " B"]]:
    """Carry out :func:`packing_env.kernels.split_spaces`."""
    # 1. The spaces that the box cuts, and their remainders.
    capacity = spaces.shape[1]
    cut = _overlaps(spaces, box) & placed[:, None]
    pieces, usable = _pieces(spaces, box, smallest)
    usable = usable & cut[..., None] & ~_inscribed(spaces, pieces)
    # 2. The new list: unchanged spaces first, then remainders.
    uncut = (spaces[..., 3] > spaces[..., 0]) & ~cut
    listed = torch.cat((spaces, pieces.flatten(1, 2)), 1)
    flags = torch.cat((uncut, usable.flatten(1)), 1)
    # 3. Close the gaps.
    place = flags.cumsum(1) - 1
    # An additional entry takes the spaces that do not fit.
    target = torch.where(flags & (place < capacity), place, capacity)
    remaining = spaces.new_zeros(spaces.shape[0], capacity + 1, 6)
    remaining = remaining.scatter(1, target[..., None].expand(listed.shape), listed)[:, :capacity]
    return remaining.contiguous(), (flags.sum(1) - capacity).clamp(min=0)


def _overlaps(spaces: Tensor, box: Tensor) -> Bool[Tensor, "B E"]:
    lower = torch.maximum(spaces[..., :3], box[:, None, :3])
    upper = torch.minimum(spaces[..., 3:], box[:, None, 3:])
    return (lower < upper).all(-1)


def _pieces(
    spaces: Tensor, box: Tensor, smallest: Tensor
) -> tuple[Int[Tensor, "B E 5 6"], Bool[Tensor, "B E 5"]]:
    """Return the remainders of every space, and which are large enough."""
    pieces = []
    for border, moved in PIECES:
        edge = box[:, None, border]
        opposite = spaces[..., (moved + 3) % 6]
        # A remainder does not reach beyond the space itself.
        limit = torch.maximum if moved >= 3 else torch.minimum
        piece = spaces.clone()
        piece[..., moved] = limit(edge, opposite)
        pieces.append(piece)
    stacked = torch.stack(pieces, 2)
    return stacked, (stacked[..., 3:] - stacked[..., :3] >= smallest).all(-1)


def _inscribed(spaces: Tensor, pieces: Tensor) -> Bool[Tensor, "B E 5"]:
    """Return which remainders lie within a space of the old list other than their own.

    It is enough to compare with old spaces. If a remainder lies within a remainder of another
    space, it lies within that space. No two remainders of one space lie within each other. And no
    old space lies within a remainder, since it would then lie within another old space. Conversely,
    suppose that a remainder lies within another old space that the box also cuts. Then it is on the
    same side of the box, so it also lies within the remainder of that space.
    """
    # A remainder changes one of the six bounds of its space, so the other five comparisons are made
    # once.
    bounds = spaces.movedim(-1, 0).contiguous()  # long rows for the pairs below
    one, other = bounds[:, :, :, None], bounds[:, :, None]
    holds = [one[a] >= other[a] for a in range(3)] + [one[a] <= other[a] for a in range(3, 6)]
    total = holds[0].to(torch.int8)
    for bound in holds[1:]:
        total = total + bound
    inscribed = []
    for index, (_, moved) in enumerate(PIECES):
        value = pieces[:, :, None, index, moved]
        now = value >= other[moved] if moved < 3 else value <= other[moved]
        within = total - holds[moved].to(torch.int8) + now == 6
        inscribed.append(within.sum(-1) > 1)  # its own space is one of them
    return torch.stack(inscribed, -1)
