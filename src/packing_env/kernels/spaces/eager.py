"""The splitting of empty maximal spaces in torch: any device, traceable, no host read."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.kernels.layout import in_rows

PIECES = ((0, 3), (3, 0), (1, 4), (4, 1), (5, 2))
"""The five remainders of a space, in order: which of its bounds (x0 y0 z0 x1 y1 z1) moves up to
which bound of the box: its end in x to the box's start, its start to the box's end, and so on."""

_CHUNK_PAIRS = 160_000
"""Pairs of spaces handled at once on a CPU, so that intermediate results stay in its cache."""


@in_rows(3, lambda spaces, *_: _CHUNK_PAIRS // max(1, spaces.shape[1] ** 2))
def split_spaces(
    spaces: Int[Tensor, "B E 6"],
    box: Int[Tensor, "B 6"],
    placed: Bool[Tensor, " B"],
    smallest: Int[Tensor, ""],
) -> tuple[Int[Tensor, "B E 6"], Int[Tensor, " B"]]:
    """Carry out :func:`packing_env.kernels.split_spaces`."""
    # 1. Spaces that the box cuts, and their pieces.
    capacity = spaces.shape[1]
    cut = _overlaps(spaces, box) & placed[:, None]
    pieces, usable = _pieces(spaces, box, smallest)
    usable = usable & cut[..., None] & ~_inscribed(spaces, pieces)
    # 2. What is listed: untouched spaces first, then pieces.
    kept = (spaces[..., 3] > spaces[..., 0]) & ~cut
    listed = torch.cat((spaces, pieces.flatten(1, 2)), 1)
    flags = torch.cat((kept, usable.flatten(1)), 1)
    # 3. Close the gaps.
    place = flags.cumsum(1) - 1
    # one more entry takes those that are left out
    target = torch.where(flags & (place < capacity), place, capacity)
    found = spaces.new_zeros(spaces.shape[0], capacity + 1, 6)
    found = found.scatter(1, target[..., None].expand(listed.shape), listed)[:, :capacity]
    return found.contiguous(), (flags.sum(1) - capacity).clamp(min=0)


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
        # no further than the space itself goes
        limit = torch.maximum if moved >= 3 else torch.minimum
        piece = spaces.clone()
        piece[..., moved] = limit(edge, opposite)
        pieces.append(piece)
    stacked = torch.stack(pieces, 2)
    return stacked, (stacked[..., 3:] - stacked[..., :3] >= smallest).all(-1)


def _inscribed(spaces: Tensor, pieces: Tensor) -> Bool[Tensor, "B E 5"]:
    """Return which pieces lie within a space of the old list other than the one they come from.

    That is enough: a piece within a remainder of another space lies within that space, no two
    pieces of one space lie within each other, and no old space lies within a piece, since it would
    lie within another old space. Conversely, a piece of one space that lies within another space,
    which the box cuts too, is on the same side of the box, within that one's own remainder.
    """
    # Of the six comparisons of a space with another, a piece changes one: count the others once.
    bounds = spaces.movedim(-1, 0).contiguous()  # long rows for the pairs below
    one, other = bounds[:, :, :, None], bounds[:, :, None]
    holds = [one[a] >= other[a] for a in range(3)] + [one[a] <= other[a] for a in range(3, 6)]
    total = holds[0].to(torch.int8)
    for bound in holds[1:]:
        total = total + bound
    found = []
    for index, (_, moved) in enumerate(PIECES):
        value = pieces[:, :, None, index, moved]
        now = value >= other[moved] if moved < 3 else value <= other[moved]
        within = total - holds[moved].to(torch.int8) + now == 6
        found.append(within.sum(-1) > 1)  # its own space is one
    return torch.stack(found, -1)
