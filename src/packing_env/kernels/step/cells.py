"""A whole decision on cuboids of whole cells, in place: the operations, and what they are given.

They exist compiled for the CPU alone (:func:`advances_cuboids`). Elsewhere the rules of
:mod:`packing_env.core` run one by one, to the same bits; each entry here means what it means there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any

import torch
from torch import Tensor

from packing_env.kernels.backends import resolve
from packing_env.kernels.layout import MAX_CUBOID_HEIGHT

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
    "metrics",
)
"""What is seen of the state; an observation that nobody asked for has no rows. ``metrics [K, B]``
float32 are those of `core.metrics.NAMES`; what comes after them is not written."""

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

MAX_CUBOID_SIDE = 255
"""Cells along y that an item may have: distances are bytes."""

NUM_METRICS = 10
"""Of ``core.metrics.NAMES``."""

LENGTHS = ("cell", "cell_area", "base", "height")
"""Metres and m^2: a cell's side and area, the floor's area and the container's height."""

torch.library.define(
    "packing_env::numba_cuboid_step",
    "(Tensor(a!)[] state, Tensor action, Tensor[] items, Tensor[] pool, Tensor(b!)[] shown,"
    " Tensor(c!)[] start, Tensor(d!)[] outcome, bool in_turn, int[] counts, float[] lengths)"
    " -> ()",
)
torch.library.define(
    "packing_env::numba_cuboid_renew",
    "(Tensor(a!)[] state, Tensor rows, Tensor[] items, Tensor[] pool, Tensor(b!)[] shown,"
    " Tensor(c!)[] metrics, bool in_turn, int[] counts, float[] lengths) -> ()",
)


@torch.library.impl("packing_env::numba_cuboid_step", "cpu")
def _numba_cuboid_step(
    state: Sequence[Tensor],
    action: Tensor,
    items: Sequence[Tensor],
    pool: Sequence[Tensor],
    shown: Sequence[Tensor],
    start: Sequence[Tensor],
    outcome: Sequence[Tensor],
    in_turn: bool,
    counts: Sequence[int],
    lengths: Sequence[float],
) -> None:
    from packing_env.kernels.step import cells_numba as compiled

    if not all(tensor.is_contiguous() for tensor in (*shown, *start, *outcome)):
        raise ValueError("what a step fills must be contiguous")
    constant = compiled.constants(state, items, pool, counts, lengths)
    compiled.cuboid_step(constant, action, shown, start, outcome, in_turn)


@torch.library.impl("packing_env::numba_cuboid_renew", "cpu")
def _numba_cuboid_renew(
    state: Sequence[Tensor],
    rows: Tensor,
    items: Sequence[Tensor],
    pool: Sequence[Tensor],
    shown: Sequence[Tensor],
    metrics: Sequence[Tensor],
    in_turn: bool,
    counts: Sequence[int],
    lengths: Sequence[float],
) -> None:
    from packing_env.kernels.step import cells_numba as compiled

    constant = compiled.constants(state, items, pool, counts, lengths)
    compiled.cuboid_renew(constant, rows, shown, metrics, in_turn)


@torch.library.register_fake("packing_env::numba_cuboid_step")
def _fake_cuboid_step(
    state: Sequence[Tensor],
    action: Tensor,
    items: Sequence[Tensor],
    pool: Sequence[Tensor],
    shown: Sequence[Tensor],
    start: Sequence[Tensor],
    outcome: Sequence[Tensor],
    in_turn: bool,
    counts: Sequence[int],
    lengths: Sequence[float],
) -> None:
    """All that it does is to fill what it is given."""


@torch.library.register_fake("packing_env::numba_cuboid_renew")
def _fake_cuboid_renew(
    state: Sequence[Tensor],
    rows: Tensor,
    items: Sequence[Tensor],
    pool: Sequence[Tensor],
    shown: Sequence[Tensor],
    metrics: Sequence[Tensor],
    in_turn: bool,
    counts: Sequence[int],
    lengths: Sequence[float],
) -> None:
    """All that it does is to fill what it is given."""


def advances_cuboids(device_type: str) -> bool:
    """Whether the backend chosen for this device has the operations of this module."""
    return device_type == "cpu" and resolve(None, device_type) == "numba"


class CuboidTask:
    """What the operations are given in every step of one task.

    Args:
        items: Entries `ITEMS`.
        pool: ``item_id [P, N]`` and ``num_items [P]``, at least 1, of the instances.
        in_turn: Row i takes the pool's instances i, i + B, i + 2 B, ...; else a random one.
        counts: Entries `COUNTS`.
        lengths: Entries `LENGTHS`.

    Raises:
        ValueError: An item is too long, or the container too high, for distances that are bytes.
    """

    def __init__(
        self,
        items: Mapping[str, Tensor],
        pool: tuple[Tensor, Tensor],
        in_turn: bool,
        counts: Mapping[str, int],
        lengths: Mapping[str, float],
    ) -> None:
        for name, most in (("along", MAX_CUBOID_SIDE), ("height", MAX_CUBOID_HEIGHT)):
            if not 1 <= counts[name] <= most:
                raise ValueError(f"{name} is 1 to {most} cells, not {counts[name]}")
        self.items, self.pool = _listed(items, ITEMS), list(pool)
        self.in_turn = in_turn
        self.counts = [counts[name] for name in COUNTS]
        self.lengths = [lengths[name] for name in LENGTHS]
        self._last = _Last()

    def constants(self, state: list[Tensor]) -> tuple[Any, ...]:
        """All of it and the state as compiled code reads them, made anew where memory moved.

        A state is replaced by each reset; shared memory (``share_memory_``) moves the rest.
        """
        addresses = [tensor.data_ptr() for tensor in (*state, *self.items, *self.pool)]
        last = self._last
        if addresses != last.addresses or not all(map(is_, state, last.state)):
            from packing_env.kernels.step import cells_numba as compiled

            numbers = (self.counts, self.lengths)
            last.made = compiled.constants(state, self.items, self.pool, *numbers)
            last.state, last.addresses = state, addresses
        return last.made


class _Last:
    """A state and the arrays that share its memory; a copy of an environment has none yet."""

    def __init__(self) -> None:
        self.state: list[Tensor] = []
        self.addresses: list[int] = []
        self.made: Any = ()

    def __reduce__(self) -> tuple[type[_Last], tuple[()]]:
        return (_Last, ())


def advance_cuboids(
    task: CuboidTask,
    state: Mapping[str, Tensor],
    action: Tensor,
    shown: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    outcome: Mapping[str, Tensor],
) -> None:
    """Carry out one placement per row, in place, and show what has become of it.

    The state advances as in ``core.transition.advance``, but for ``reward_sum``; ``shown`` and
    ``outcome`` are filled. Where ``start`` has rows, finished rows then begin their next episode as
    in ``core.transition.begin``, and it is filled with what is seen after that. Entries are those
    that the constants of this module name, contiguous.

    Args:
        task: What is the same in every step.
        state: Entries `STATE`.
        action: ``[B, 1]`` indices ``((slot * R + orientation) * Xs + x) * Ys + y`` on the lattice
            of ``shown["mask"]``, or ``[B, 4]`` the four. Those out of range are legal nowhere.
        shown: Entries `SHOWN`.
        start: Likewise.
        outcome: Entries `OUTCOME`.
    """
    before, seen, after = _listed(state, STATE), _listed(shown, SHOWN), _listed(start, SHOWN)
    found = _listed(outcome, OUTCOME)
    if _is_plain(action, shown["mask"]):
        from packing_env.kernels.step import cells_numba as compiled

        constant = task.constants(before)
        compiled.cuboid_step(constant, action, seen, after, found, task.in_turn)
        return
    torch.ops.packing_env.numba_cuboid_step(
        before,
        action,
        task.items,
        task.pool,
        seen,
        after,
        found,
        task.in_turn,
        task.counts,
        task.lengths,
    )


def renew_cuboids(
    task: CuboidTask,
    state: Mapping[str, Tensor],
    rows: Tensor,
    shown: Mapping[str, Tensor],
    metrics: Sequence[Tensor],
) -> None:
    """Start the next episode in some rows, in place but for ``reward_sum``, and show its start.

    Args:
        task: What is the same in every step.
        state: Entries `STATE`.
        rows: ``[B]`` which.
        shown: Entries `SHOWN`, of the state before; its ``metrics`` stay as they are.
        metrics: ``[B, 1]`` each; all begin at 0.
    """
    torch.ops.packing_env.numba_cuboid_renew(
        _listed(state, STATE),
        rows,
        task.items,
        task.pool,
        _listed(shown, SHOWN),
        list(metrics),
        task.in_turn,
        task.counts,
        task.lengths,
    )


def _is_plain(*tensors: Tensor) -> bool:
    """Whether nothing traces: then an operation may be called without torch's dispatcher.

    That takes longer than a step of few rows.
    """
    return not torch.compiler.is_compiling() and all(type(value) is Tensor for value in tensors)


def _listed(entries: Mapping[str, Tensor], names: Sequence[str]) -> list[Tensor]:
    return [entries[name] for name in names]
