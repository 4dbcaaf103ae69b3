"""A decision on items of any shape, in place: the operations around the maps of all placements.

:func:`advance_maps` carries the decision out and lists what may be placed next. Then come the maps,
by the kernels and the rules that everyone uses (:func:`close_lid` between them), and
:func:`show_maps` makes of them what is seen. They exist compiled for the CPU alone, where
``kernels.step.cells`` has its own; elsewhere the rules of :mod:`packing_env.core` run one by one,
to the same bits. Each entry here means what it means there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import is_
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from packing_env.kernels.step.cells import STATE, _is_plain, _Last, _listed

ITEMS = (
    "top",
    "bottom",
    "size",
    "peak",
    "com",
    "volume",
    "orientation_mask",
    "item_features",
    "remaining",
    "orientation_features",
    "on_floor",
)
"""By catalogue row: the items, what is observed of them, and which orientations may stand on the
floor. ``remaining [N + 1]`` is observed by the number of items left."""

AHEAD = ("plane", "bottom", "peak", "com", "size")
"""Which lower surface in line each orientation of the visible items has, ``[B, L * R]``, negative
where there is no item; these surfaces themselves ``[B, L * R, U, V]``, +inf where there is no item,
or nothing; highest points ``[B, L * R]``; centres of mass and windows ``[B, L * R, 2]``."""

SHOWN = (
    "heightmap",
    "item_id",
    "item_features",
    "orientation_features",
    "top",
    "bottom",
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

COUNTS = ("rule", "metric_rule", "stride", "step_limit", "illegal_ends", "remaining")
"""Rules by their place in `CUBOID_RULES`; which of an item's features is the number left."""

LENGTHS = ("cell_area", "base", "height", "lid", "tolerance")
"""m^2 of a cell and of the floor; metres: the container's height, the highest legal top, and by how
much a supporting cell may miss contact."""

torch.library.define(
    "packing_env::numba_maps_step",
    "(Tensor(a!)[] state, Tensor action, Tensor[] items, Tensor[] pool, Tensor(b!)[] ahead,"
    " Tensor under, Tensor(c!)[] outcome, int[] counts, float[] lengths) -> ()",
)
torch.library.define("packing_env::numba_maps_lid", "(Tensor(a!) z, Tensor peak, float lid) -> ()")
torch.library.define(
    "packing_env::numba_maps_show",
    "(Tensor(a!)[] state, Tensor[] judged, Tensor[] items, Tensor[] pool, Tensor under,"
    " Tensor(b!)[] shown, Tensor(c!)[] start, Tensor(d!)[] outcome, bool in_turn, int[] counts,"
    " float[] lengths) -> ()",
)
torch.library.define(
    "packing_env::numba_maps_renew",
    "(Tensor(a!)[] state, Tensor rows, Tensor[] items, Tensor[] pool, Tensor(b!)[] shown,"
    " Tensor(c!)[] metrics, bool in_turn, int[] counts, float[] lengths) -> ()",
)


@torch.library.impl("packing_env::numba_maps_step", "cpu")
def _numba_maps_step(
    state: Sequence[Tensor],
    action: Tensor,
    items: Sequence[Tensor],
    pool: Sequence[Tensor],
    ahead: Sequence[Tensor],
    under: Tensor,
    outcome: Sequence[Tensor],
    counts: Sequence[int],
    lengths: Sequence[float],
) -> None:
    from packing_env.kernels.step import heights_numba as compiled

    constant = compiled.Constants(state, items, pool, counts, lengths)
    compiled.maps_step(constant, action, ahead, under, outcome)


@torch.library.impl("packing_env::numba_maps_lid", "cpu")
def _numba_maps_lid(z: Tensor, peak: Tensor, lid: float) -> None:
    from packing_env.kernels.step import heights_numba as compiled

    compiled.maps_lid(z, peak, lid)


@torch.library.impl("packing_env::numba_maps_show", "cpu")
def _numba_maps_show(
    state: Sequence[Tensor],
    judged: Sequence[Tensor],
    items: Sequence[Tensor],
    pool: Sequence[Tensor],
    under: Tensor,
    shown: Sequence[Tensor],
    start: Sequence[Tensor],
    outcome: Sequence[Tensor],
    in_turn: bool,
    counts: Sequence[int],
    lengths: Sequence[float],
) -> None:
    from packing_env.kernels.step import heights_numba as compiled

    constant = compiled.Constants(state, items, pool, counts, lengths)
    compiled.maps_show(constant, judged, under, shown, start, outcome, in_turn)


@torch.library.impl("packing_env::numba_maps_renew", "cpu")
def _numba_maps_renew(
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
    from packing_env.kernels.step import heights_numba as compiled

    constant = compiled.Constants(state, items, pool, counts, lengths)
    compiled.maps_renew(constant, rows, shown, metrics, in_turn)


def _fill(*arguments: object) -> None:
    """All that the operations do is to fill what they are given."""


for _name in ("step", "lid", "show", "renew"):
    torch.library.register_fake(f"packing_env::numba_maps_{_name}", _fill)


class MapsTask:
    """What the operations are given in every step of one task.

    Args:
        items: Entries `ITEMS`; they become contiguous.
        pool: ``item_id [P, N]`` and ``num_items [P]``, at least 1, of the instances.
        in_turn: Row i takes the pool's instances i, i + B, i + 2 B, ...; else a random one.
        counts: Entries `COUNTS`.
        lengths: Entries `LENGTHS`.
    """

    def __init__(
        self,
        items: Mapping[str, Tensor],
        pool: tuple[Tensor, Tensor],
        in_turn: bool,
        counts: Mapping[str, int],
        lengths: Mapping[str, float],
    ) -> None:
        self.items, self.pool = [items[name].contiguous() for name in ITEMS], list(pool)
        self.in_turn = in_turn
        self.counts = [counts[name] for name in COUNTS]
        self.lengths = [lengths[name] for name in LENGTHS]
        self._last = _Last()

    def constants(self, state: list[Tensor]) -> Any:
        """All of it and the state as compiled code reads them, made anew where memory moved.

        A state is replaced by each reset; shared memory (``share_memory_``) moves the rest.
        """
        addresses = [tensor.data_ptr() for tensor in (*state, *self.items, *self.pool)]
        last = self._last
        if addresses != last.addresses or not all(map(is_, state, last.state)):
            from packing_env.kernels.step import heights_numba as compiled

            numbers = (self.counts, self.lengths)
            last.made = compiled.Constants(state, self.items, self.pool, *numbers)
            last.state, last.addresses = state, addresses
        return last.made


def advance_maps(
    task: MapsTask,
    state: Mapping[str, Tensor],
    action: Tensor,
    ahead: Mapping[str, Tensor],
    under: Float[Tensor, " B"],
    outcome: Mapping[str, Tensor],
) -> None:
    """Carry out one placement per row, in place, and list what may be placed next.

    The state advances as in ``core.transition.decide``, but for ``reward_sum``; ``ahead`` and, but
    for ``after``, ``outcome`` are filled. Entries are those that the constants of this module name,
    contiguous.

    Args:
        task: What is the same in every step.
        state: Entries `STATE`.
        action: ``[B, 1]`` indices ``((slot * R + orientation) * Xs + x) * Ys + y`` on the lattice,
            or ``[B, 4]`` the four. Those out of range are legal nowhere.
        ahead: Entries `AHEAD`.
        under: Sum of each row's heights, metres.
        outcome: Entries `OUTCOME`.
    """
    before, found = _listed(state, STATE), _listed(outcome, OUTCOME)
    next_up = _listed(ahead, AHEAD)
    if _is_plain(action, under):
        from packing_env.kernels.step import heights_numba as compiled

        compiled.maps_step(task.constants(before), action, next_up, under, found)
        return
    torch.ops.packing_env.numba_maps_step(
        before, action, task.items, task.pool, next_up, under, found, task.counts, task.lengths
    )


def close_lid(
    z: Float[Tensor, "B R Xs Ys"], peak: Float[Tensor, "B R"], lid: float
) -> Float[Tensor, "B R Xs Ys"]:
    """``z`` itself, with +inf where ``z + peak`` is above ``lid``."""
    torch.ops.packing_env.numba_maps_lid(z, peak, lid)
    return z


def show_maps(
    task: MapsTask,
    state: Mapping[str, Tensor],
    judged: tuple[Tensor, Tensor],
    under: Float[Tensor, " B"],
    shown: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    outcome: Mapping[str, Tensor],
) -> None:
    """End the rows that are at their end, in place, and show what has become of all.

    Where ``start`` has rows, finished rows then begin their next episode as in
    ``core.transition.begin``, and it is filled with what is seen after that.

    Args:
        task: What is the same in every step.
        state: Entries `STATE`, advanced.
        judged: ``[B, L * R, Xs, Ys]`` rest heights of the visible items below the lid, else +inf,
            and what the rule says of them.
        under: Sum of each row's heights, metres.
        shown: Entries `SHOWN`.
        start: Likewise.
        outcome: Entries `OUTCOME`; ``after`` is filled here.
    """
    before, seen, after = _listed(state, STATE), _listed(shown, SHOWN), _listed(start, SHOWN)
    found = _listed(outcome, OUTCOME)
    if _is_plain(*judged, under):
        from packing_env.kernels.step import heights_numba as compiled

        constant = task.constants(before)
        compiled.maps_show(constant, judged, under, seen, after, found, task.in_turn)
        return
    torch.ops.packing_env.numba_maps_show(
        before,
        list(judged),
        task.items,
        task.pool,
        under,
        seen,
        after,
        found,
        task.in_turn,
        task.counts,
        task.lengths,
    )


def renew_maps(
    task: MapsTask,
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
    torch.ops.packing_env.numba_maps_renew(
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
