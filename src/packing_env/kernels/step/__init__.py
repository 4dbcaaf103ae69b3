"""A whole environment step in place, compiled for the CPU: signatures, checks, declarations.

Cuboids of whole cells (:func:`advance_cells`) take a step in one pass. Items of any shape take a
step in two passes (:func:`decide_heights`, :func:`observe_heights`); the maps of all placements are
computed between them. Elsewhere the rules of :mod:`packing_env.core` run one by one, with the same
entries (:mod:`~packing_env.kernels.step.entries`) and the same bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from importlib import import_module
from operator import is_
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from packing_env.kernels.layout import MAX_CUBOID_HEIGHT, MAX_CUBOID_SIDE
from packing_env.kernels.operators import declare
from packing_env.kernels.step.entries import (
    Ahead,
    Counts,
    Items,
    Lengths,
    Observations,
    Outcome,
    State,
    Tensors,
)

_TASK = "Tensor[] items, Tensor[] pool, int[] counts, float[] lengths"
_FILLED = "Tensor(b!)[] observations, Tensor(c!)[] start, Tensor(d!)[] outcome"
_OPERATIONS = {
    "cells:advance": f"Tensor action, {_FILLED}",
    "heights:decide": "Tensor action, Tensor under, Tensor(b!)[] ahead, Tensor(c!)[] outcome",
    "heights:observe_places": f"Tensor under, Tensor[] judged, {_FILLED}",
}
"""Arguments of each compiled ``module:function`` of this folder, after the state and `_TASK`."""


@cache
def _compiled(name: str) -> Callable[..., Any]:
    """Import a compiled function or class by its ``module:name``; this imports numba."""
    module, function = name.split(":")
    compiled: Callable[..., Any] = getattr(import_module(f"{__name__}.{module}"), function)
    return compiled


def _declared(name: str, arguments: str) -> Any:
    """Declare a torch operator that only writes into its arguments."""

    def carry_out(
        state: Tensors, items: Tensors, pool: Tensors, counts: Any, lengths: Any, *others: Any
    ) -> None:
        filled = [tensor for entries in others if isinstance(entries, list) for tensor in entries]
        if not all(tensor.is_contiguous() for tensor in filled):
            raise ValueError("the tensors that a step fills must be contiguous")
        constants = _compiled("shared:Constants")(state, items, pool, counts, lengths, {})
        _compiled(name)(constants, *others)

    schema = f"numba_step_{name.split(':')[1]}(Tensor(a!)[] state, {_TASK}, {arguments}) -> ()"
    return declare(schema, cpu=carry_out)


_OPERATORS = {name: _declared(name, arguments) for name, arguments in _OPERATIONS.items()}
_close_lid = declare(
    "numba_step_close_lid(Tensor(a!) z, Tensor peak, float lid) -> ()",
    cpu="packing_env.kernels.step.heights:close_lid",
)
_list_lowest = declare(
    "numba_step_list_lowest(Tensor[] current, Tensor[] fresh, Tensor[] tables, "
    "Tensor(a!)[] candidates, Tensor(b!)[] after, Tensor(c!)[] start, float height, float scale)"
    " -> ()",
    cpu="packing_env.kernels.step.candidates:list_lowest",
)


class StepTask:
    """Constants of one task; every operation takes them.

    Args:
        items: `Items`; they are made contiguous.
        pool: ``item_id [P, N]`` and ``num_items [P]`` of the instances; every ``num_items`` is at
            least 1.
        counts: `Counts`.
        lengths: `Lengths`.
        on_cells: Whether the items are cuboids of whole cells.

    Raises:
        ValueError: A cuboid is too long, or the container too high, for distances in bytes.
    """

    def __init__(
        self,
        items: Mapping[str, Tensor],
        pool: tuple[Tensor, Tensor],
        counts: Mapping[str, int],
        lengths: Mapping[str, float],
        *,
        on_cells: bool,
    ) -> None:
        limits = {"along": MAX_CUBOID_SIDE, "height": MAX_CUBOID_HEIGHT} if on_cells else {}
        for name, most in limits.items():
            if not 1 <= counts[name] <= most:
                raise ValueError(f"{name} must be 1 to {most} cells, not {counts[name]}")
        self.items = [items[name].contiguous() for name in Items._fields]
        self.pool = [tensor.contiguous() for tensor in pool]
        self.counts = [counts[name] for name in Counts._fields]
        self.lengths = [lengths[name] for name in Lengths._fields]
        self._forget()

    def _forget(self) -> None:
        self._scratch: dict[Any, Any] = {}
        self._last: tuple[list[Tensor], list[int], Any] = ([], [], None)

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes that a copy needs, without memory and addresses of this object."""
        return {key: value for key, value in self.__dict__.items() if not key.startswith("_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__ |= state
        self._forget()

    def constants(self, state: list[Tensor]) -> Any:
        """Return the constants and the state in the form that compiled code reads.

        They are rebuilt if memory has moved: a reset replaces the state, and ``share_memory_``
        moves the other tensors.
        """
        addresses = [tensor.data_ptr() for tensor in (*state, *self.items, *self.pool)]
        last, known, constants = self._last
        if addresses != known or not all(map(is_, state, last)):
            constants = _compiled("shared:Constants")(
                state, self.items, self.pool, self.counts, self.lengths, self._scratch
            )
            self._last = (state, addresses, constants)
        return constants


def advance_cells(
    task: StepTask,
    state: Mapping[str, Tensor],
    action: Int[Tensor, "B heads"],
    observations: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    outcome: Mapping[str, Tensor],
) -> None:
    """Carry out one placement of a cuboid per row, in place, and observe.

    The state advances as in ``core.transition.decide`` and ``finish``, except for ``reward_sum``;
    ``observations`` and ``outcome`` are filled. If ``start`` is not empty, finished rows then start
    their next episode as in ``core.transition.begin``, and ``start`` is filled with the
    observations afterwards. Tensors that are filled must be contiguous.

    Args:
        task: The constants.
        state: `State`.
        action: ``[B, 1]`` indices ``((slot * R + orientation) * Xs + x) * Ys + y`` of the mask,
            or ``[B, 4]`` these four numbers. Actions out of range are illegal.
        observations: `Observations` after the decision.
        start: `Observations` after resets.
        outcome: `Outcome`.
    """
    seen = [_listed(entries, Observations) for entries in (observations, start)]
    _call("cells:advance", task, state, action, *seen, _listed(outcome, Outcome))


def decide_heights(
    task: StepTask,
    state: Mapping[str, Tensor],
    action: Int[Tensor, "B heads"],
    ahead: Mapping[str, Tensor],
    under: Float[Tensor, " B"],
    outcome: Mapping[str, Tensor],
) -> None:
    """Carry out one placement of an item per row, in place; list the next orientations.

    The state advances as in ``core.transition.decide``, except for ``reward_sum``. ``ahead`` is
    filled, and ``outcome`` except its ``after``.

    Args:
        task: The constants.
        state: `State`.
        action: As for :func:`advance_cells`.
        ahead: `Ahead`.
        under: Sum of each row's heights, metres.
        outcome: `Outcome`.
    """
    filled = (_listed(ahead, Ahead), _listed(outcome, Outcome))
    _call("heights:decide", task, state, action, under, *filled)


def close_lid(
    z: Float[Tensor, "B R Xs Ys"], peak: Float[Tensor, "B R"], lid: float
) -> Float[Tensor, "B R Xs Ys"]:
    """Set ``z`` to +inf where ``z + peak`` is above ``lid``, in place; return ``z``."""
    _close_lid(z, peak, lid)
    return z


def observe_heights(
    task: StepTask,
    state: Mapping[str, Tensor],
    judged: Tensors,
    under: Float[Tensor, " B"],
    observations: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    outcome: Mapping[str, Tensor],
) -> None:
    """End the rows whose episode is over, in place, and observe all rows.

    Args:
        task: The constants.
        state: `State` after :func:`decide_heights`.
        judged: ``[B, L * R, Xs, Ys]`` rest heights of the visible items (+inf outside the
            container) and which of them are stable, empty without a rule; and ``[B, L * R]``, the
            highest point of each orientation, which must be below the lid.
        under: Sum of each row's heights, metres.
        observations: As for :func:`advance_cells`.
        start: As for :func:`advance_cells`.
        outcome: `Outcome`; ``after`` is filled here.
    """
    seen = [_listed(entries, Observations) for entries in (observations, start)]
    _call("heights:observe_places", task, state, under, judged, *seen, _listed(outcome, Outcome))


def list_lowest(
    current: Tensors,
    fresh: Tensors,
    tables: Tensors,
    candidates: Tensors,
    after: Tensors,
    start: Tensors,
    *,
    height: float,
    scale: float,
) -> None:
    """List the K legal placements of lowest rest height, ties by index, padded with -1.

    The candidate generator ``lowest_z`` gives the same list. ``start`` belongs to the state after
    resets; all rest heights of a row that was reset are 0. ``start`` is ``[0, ...]`` if finished
    rows were not reset.

    Args:
        current: Tensors of the state before resets: rest heights ``[B, L R Xs Ys]`` (divided by
            ``height`` on whole cells, where ``tables`` have levels), legality of the same shape,
            visible items ``[B, S]``, and flags ``[B]`` of terminated rows and of done rows.
        fresh: Legality and visible items after resets.
        tables: `step.candidates.Tables`.
        candidates: The state's list: ``candidate [B, K]`` int64 and ``candidate_z [B, K]``; filled.
        after: Features ``[B, K, F]`` and mask ``[B, K]`` before resets; filled.
        start: The same after resets.
        height: Height of the container, metres.
        scale: Number of levels in the height of the container.
    """
    entries = (list(each) for each in (current, fresh, tables, candidates, after, start))
    _list_lowest(*entries, height, scale)


def _call(name: str, task: StepTask, state: Mapping[str, Tensor], *arguments: Any) -> None:
    """Call an operation, without torch's dispatcher unless torch is tracing.

    The dispatcher takes longer than a step of a few rows.
    """
    listed = _listed(state, State)
    if type(arguments[0]) is Tensor and not torch.compiler.is_compiling():
        _compiled(name)(task.constants(listed), *arguments)
        return
    constant = (task.items, task.pool, task.counts, task.lengths)
    _OPERATORS[name](listed, *constant, *arguments)


def _listed(entries: Mapping[str, Tensor], names: Any) -> list[Tensor]:
    return [entries[name] for name in names._fields]
