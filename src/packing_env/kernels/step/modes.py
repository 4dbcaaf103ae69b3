"""Parts of a compiled step that belong to single action modes: signatures and declarations.

They fill their output arguments from the legality of all placements of a state.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.operators import declare
from packing_env.kernels.step.entries import Tensors

_OPERATIONS = {
    "list_lowest": "Tensor[] found, Tensor[] fresh, Tensor[] tables, Tensor(a!)[] kept,"
    " Tensor(b!)[] after, Tensor(c!)[] start, float height, float scale",
    "snap": "Tensor action, Tensor legal, Tensor(a!) placement",
    "centre": "Tensor placement, Tensor legal, Tensor live, Tensor centres, Tensor(a!) executed",
    "find_playable": "Tensor legal, Tensor over, Tensor(a!) playable, Tensor(b!) mask",
    "look_up": "Tensor action, Tensor candidate, Tensor(a!) index",
}
"""Arguments of each compiled function of `step.choose`."""

_OPERATORS = {
    name: declare(
        f"numba_step_{name}({arguments}) -> ()", cpu=f"packing_env.kernels.step.choose:{name}"
    )
    for name, arguments in _OPERATIONS.items()
}


@cache
def _compiled(name: str) -> Callable[..., None]:
    found: Callable[..., None] = getattr(import_module("packing_env.kernels.step.choose"), name)
    return found


def _call(name: str, like: Tensor, *arguments: Any) -> None:
    """Call an operation, without torch's dispatcher if nothing traces; ``like`` is an argument."""
    if type(like) is Tensor and not torch.compiler.is_compiling():
        _compiled(name)(*arguments)
    else:
        _OPERATORS[name](*arguments)


def list_lowest(
    found: Tensors,
    fresh: Tensors,
    tables: Tensors,
    kept: Tensors,
    after: Tensors,
    start: Tensors,
    *,
    height: float,
    scale: float,
) -> None:
    """List the K legal placements of lowest rest height, ties by index, padded with -1.

    The result equals that of the candidate generator ``lowest_z``. ``start`` belongs to the state
    after resets; all rest heights of a row that was reset are 0. ``start`` is ``[0, ...]`` if
    finished rows were not reset.

    Args:
        found: Tensors of the state before resets: rest heights ``[B, L R Xs Ys]`` (divided by
            ``height`` on whole cells, where ``tables`` have levels), legality of the same shape,
            visible items ``[B, S]``, and flags ``[B]`` of terminated rows and of done rows.
        fresh: Legality and visible items after resets.
        tables: `step.choose.Tables`.
        kept: The list in the state: ``candidate [B, K]`` int64 and ``candidate_z [B, K]``; filled.
        after: Features ``[B, K, F]`` and mask ``[B, K]`` before resets; filled.
        start: The same after resets.
        height: Height of the container, metres.
        scale: Number of levels in a share of 1.
    """
    given = (list(found), list(fresh), list(tables), list(kept), list(after), list(start))
    _call("list_lowest", found[0], *given, height, scale)


def snap(
    action: Float[Tensor, "B D"],
    legal: Bool[Tensor, "B L R Xs Ys"],
    placement: Int[Tensor, "B 4"],
) -> None:
    """Write the legal placement (slot, orientation, x, y) that is nearest to each point of the box.

    See `core.actions.continuous`. The slot is -1 if the point is NaN or outside the box.
    """
    _call("snap", action, action, legal, placement)


def centre(
    placement: Int[Tensor, "B 4"],
    legal: Bool[Tensor, " B"],
    live: Bool[Tensor, " B"],
    centres: Float[Tensor, "4 A"],
    executed: Float[Tensor, "B D"],
) -> None:
    """Write the action of each placement that was carried out; zeros in the other rows.

    ``centres`` holds the centres of the intervals of slot, orientation, x and y. An action has x,
    y, orientation and, with several visible items, the slot.
    """
    _call("centre", placement, placement, legal, live, centres, executed)


def find_playable(
    legal: Bool[Tensor, B * places],
    over: Bool[Tensor, " B"],
    playable: Bool[Tensor, "B L"],
    mask: Bool[Tensor, "B L"],
) -> None:
    """Write which visible items have a legal placement; in ``over`` rows ``mask`` is all True."""
    _call("find_playable", legal, legal, over, playable, mask)


def look_up(
    action: Int[Tensor, " B"], candidate: Int[Tensor, "B K"], index: Int[Tensor, "B 1"]
) -> None:
    """Write the placement listed under each action; -1 if it is out of range or empty."""
    _call("look_up", action, action, candidate, index)
