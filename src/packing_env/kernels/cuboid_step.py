"""A whole decision on cuboids of whole cells, in place: the operations, and what they are given.

They exist compiled for the CPU alone (:func:`advances_cuboids`). Elsewhere the rules of
:mod:`packing_env.core` run one by one, to the same bits; each entry here means what it means there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from packing_env.kernels.dispatch import _resolve

STATE = (
    "heightmap",
    "item_id",
    "num_items",
    "queue",
    "packed",
    "items_packed",
    "placement",
    "placement_z",
    "placement_support",
    "volume",
    "stable_items",
    "support_sum",
    "reward_sum",
    "illegal_actions",
    "overflow",
    "step",
    "terminated",
    "truncated",
    "seed",
    "row",
    "episode",
)
"""Entries of the state that a decision or a new episode changes or reads."""

MOVE = ("slot", "orientation", "x", "y", "valid")
"""The placement of each row, ``[B]``."""

ITEMS = (
    "cuboid",
    "volume",
    "orientation_mask",
    "item_features",
    "remaining",
    "orientation_features",
    "drop_height",
    "on_floor",
)
"""By catalogue row: sides, volume, what is observed of it, and which orientations may stand on the
floor. ``remaining [N + 1]`` is observed by the number of items left, ``drop_height [256]`` by the
rest height in cells plus 1, 0 standing for an illegal placement."""

SHOWN = (
    "heightmap",
    "item_id",
    "item_features",
    "orientation_features",
    "drop_height",
    "mask",
    "terminated",
    "truncated",
    "done",
)
"""What is seen of the state; an observation that nobody asked for has no rows."""

OUTCOME = ("asked", "live", "before", "after")
"""``[B]`` whether the action was legal and the row unfinished; the metrics before and after,
``[10, B]`` float64 in the order of ``core.metrics.NAMES``."""

COUNTS = (
    "height",
    "across",
    "along",
    "rule",
    "metric_rule",
    "stride",
    "step_limit",
    "illegal_ends",
    "remaining",
)
"""Cells of the container's height and of the window (2); rules by their place in `CUBOID_RULES`;
which of an item's features is the number of items left."""

LENGTHS = ("cell", "cell_area", "base", "height")
"""Metres and m^2: a cell's side and area, the floor's area and the container's height."""

torch.library.define(
    "packing_env::numba_cuboid_step",
    "(Tensor(a!)[] state, Tensor[] move, Tensor[] items, Tensor(b!)[] shown, Tensor(c!)[] outcome,"
    " int[] counts, float[] lengths) -> ()",
)
torch.library.define(
    "packing_env::numba_cuboid_renew",
    "(Tensor(a!)[] state, Tensor rows, Tensor[] pool, bool in_turn, Tensor[] items,"
    " Tensor(b!)[] shown, Tensor(c!)[] metrics, int[] counts) -> ()",
)


@torch.library.impl("packing_env::numba_cuboid_step", "cpu")
def _numba_cuboid_step(
    state: Sequence[Tensor],
    move: Sequence[Tensor],
    items: Sequence[Tensor],
    shown: Sequence[Tensor],
    outcome: Sequence[Tensor],
    counts: Sequence[int],
    lengths: Sequence[float],
) -> None:
    from packing_env.kernels import cuboid_step_numba

    cuboid_step_numba.cuboid_step(state, move, items, shown, outcome, counts, lengths)


@torch.library.impl("packing_env::numba_cuboid_renew", "cpu")
def _numba_cuboid_renew(
    state: Sequence[Tensor],
    rows: Tensor,
    pool: Sequence[Tensor],
    in_turn: bool,
    items: Sequence[Tensor],
    shown: Sequence[Tensor],
    metrics: Sequence[Tensor],
    counts: Sequence[int],
) -> None:
    from packing_env.kernels import cuboid_step_numba

    cuboid_step_numba.cuboid_renew(state, rows, pool, in_turn, items, shown, metrics, counts)


@torch.library.register_fake("packing_env::numba_cuboid_step")
def _fake_cuboid_step(
    state: Sequence[Tensor],
    move: Sequence[Tensor],
    items: Sequence[Tensor],
    shown: Sequence[Tensor],
    outcome: Sequence[Tensor],
    counts: Sequence[int],
    lengths: Sequence[float],
) -> None:
    """All that it does is to fill what it is given."""


@torch.library.register_fake("packing_env::numba_cuboid_renew")
def _fake_cuboid_renew(
    state: Sequence[Tensor],
    rows: Tensor,
    pool: Sequence[Tensor],
    in_turn: bool,
    items: Sequence[Tensor],
    shown: Sequence[Tensor],
    metrics: Sequence[Tensor],
    counts: Sequence[int],
) -> None:
    """All that it does is to fill what it is given."""


def advances_cuboids(device_type: str) -> bool:
    """Whether the backend chosen for this device has the operations of this module."""
    return device_type == "cpu" and _resolve(None, device_type) == "numba"


def advance_cuboids(
    state: Mapping[str, Tensor],
    move: Mapping[str, Tensor],
    items: Mapping[str, Tensor],
    shown: Mapping[str, Tensor],
    outcome: Mapping[str, Tensor],
    counts: Mapping[str, int],
    lengths: Mapping[str, float],
) -> None:
    """Carry out one placement per row, in place, and show what has become of it.

    The state advances as in ``core.transition.advance``, but for ``reward_sum``; ``shown`` and
    ``outcome`` are filled. Entries are those that the constants of this module name, contiguous.
    """
    torch.ops.packing_env.numba_cuboid_step(
        _listed(state, STATE),
        _listed(move, MOVE),
        _listed(items, ITEMS),
        _listed(shown, SHOWN),
        _listed(outcome, OUTCOME),
        [counts[name] for name in COUNTS],
        [lengths[name] for name in LENGTHS],
    )


def renew_cuboids(
    state: Mapping[str, Tensor],
    rows: Tensor,
    pool: tuple[Tensor, Tensor],
    in_turn: bool,
    items: Mapping[str, Tensor],
    shown: Mapping[str, Tensor],
    metrics: Sequence[Tensor],
    counts: Mapping[str, int],
) -> None:
    """Start the next episode in some rows, in place, and show its start there.

    Args:
        state: entries `STATE`.
        rows: ``[B]`` which.
        pool: ``item_id [P, N]`` and ``num_items [P]``, at least 1, of the instances.
        in_turn: row i takes the pool's instances i, i + B, i + 2 B, ...; else a random one.
        items: entries `ITEMS`.
        shown: entries `SHOWN`, of the state before.
        metrics: ``[B, 1]`` each; all begin at 0.
        counts: entries `COUNTS`.
    """
    torch.ops.packing_env.numba_cuboid_renew(
        _listed(state, STATE),
        rows,
        list(pool),
        in_turn,
        _listed(items, ITEMS),
        _listed(shown, SHOWN),
        list(metrics),
        [counts[name] for name in COUNTS],
    )


def _listed(entries: Mapping[str, Tensor], names: Sequence[str]) -> list[Tensor]:
    return [entries[name] for name in names]
