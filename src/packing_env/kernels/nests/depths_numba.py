"""Distance from each place to the nearest free one: a Euclidean distance transform.

It goes along one axis after another (Saito and Toriwaki, Pattern Recognition 1994).
"""

from __future__ import annotations

from packing_env.kernels.compiled.jit import jit, kernel


@jit
def _nearest(line, k):
    """Return the least of ``line[j] + (k - j) ** 2``, where the line is 0 beyond its ends."""
    least, r = line[k], 1
    while r * r < least:
        before = line[k - r] if k >= r else 0.0
        after = line[k + r] if k + r < line.shape[0] else 0.0
        least = min(least, min(before, after) + r * r)
        r += 1
    return least


@kernel
def spread_distances(squares):
    """Add the distances along the last axis to squared distances ``[U, V, W]``, in place.

    Taken places begin with infinity, free ones with 0; places further out are free.
    """
    for x in range(squares.shape[0]):
        for y in range(squares.shape[1]):
            line = squares[x, y].copy()
            for z in range(squares.shape[2]):
                squares[x, y, z] = _nearest(line, z)
