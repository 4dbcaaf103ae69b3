"""Arrays of `packing_env.kernels.loading`, and what ``halt`` holds; they need no compiler."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

HURRY = 1
"""A load is completed with the first block that fits each space, without a comparison."""
STOP = 2
"""A kernel returns at once."""


class Blocks(NamedTuple):
    """M blocks of boxes of T types.

    Attributes:
        sides: ``[M, 3]``.
        kinds: Types of the boxes in ascending order, then -1, ``[M, K]`` int32.
        amounts: Boxes of each of them, ``[M, K]`` int32.
        volume: Of the boxes, ``[M]``.
        worth: ``volume * (number of boxes)^-0.2``, ``[M]``.
    """

    sides: np.ndarray
    kinds: np.ndarray
    amounts: np.ndarray
    volume: np.ndarray
    worth: np.ndarray


class Problem(NamedTuple):
    """A container and what may be placed in it.

    Attributes:
        blocks: See there.
        order: Blocks that may be placed, of descending worth.
        container: Its sides ``[3]``.
        useful: Longest sum of boxes' sides, by axis and by length in steps of ``2^shift``.
        shift: See above.
        least: Shortest side of a box by axis, ``[3]``.
    """

    blocks: Blocks
    order: np.ndarray
    container: np.ndarray
    useful: np.ndarray
    shift: int
    least: np.ndarray
