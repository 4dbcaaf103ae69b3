"""Edges of a container that are cut off, for `packing_env.kernels.loading`."""

from __future__ import annotations

from packing_env.kernels.compiled.jit import jit


@jit
def from_wall(wall, low, high):
    """Return the distance of a cuboid from the far wall, or the near wall if ``wall`` is -1."""
    return low if wall < 0 else wall - high


@jit
def beyond(cut, u, v):
    """Return ``a b - u b - v a``: more than 0 for a cuboid that reaches beyond the plane of a cut.

    u and v are its distances from the two walls; a and b are the lengths that the plane cuts off.
    """
    return cut[2] * cut[5] - u * cut[5] - v * cut[2]


@jit
def is_cut_off(box, rules):
    """Return whether a box reaches beyond the plane of a cut."""
    cut_off = False
    for cut in rules.cuts:
        one, other = cut[0], cut[3]
        u = from_wall(cut[1], box[one], box[3 + one])
        v = from_wall(cut[4], box[other], box[3 + other])
        cut_off = cut_off or beyond(cut, u, v) > 0
    return cut_off
