"""A whole environment step on CUDA in few launches: signatures, checks, declarations.

Cuboids of whole cells take a step in one launch (:func:`advance_fused`). Items of any shape take it
in two operations (:func:`decide_fused`, :func:`observe_fused`), with at most nine launches in total
without preferred rules. The entries of :mod:`~packing_env.kernels.step.entries` have the same
meaning as in the compiled step. The fused step also computes reward terms.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.backends import BACKENDS, resolve
from packing_env.kernels.operators import declare
from packing_env.kernels.step import StepTask
from packing_env.kernels.step.entries import Observations, State

_TASK = "Tensor[] items, Tensor[] pool, int[] counts, float[] lengths, Tensor[] tables, str[] terms"


def _declared(name: str, arguments: str, module: str = "triton") -> Any:
    """Declare an operator that only writes into its arguments, for devices with Triton kernels."""
    target = f"packing_env.kernels.step.{module}:{name.removesuffix('_maps')}"
    devices = dict.fromkeys(BACKENDS["triton"].runs_on or (), target)
    schema = f"triton_step_{name}(Tensor(a!)[] state, {_TASK}, {arguments}) -> ()"
    return declare(schema, **devices, fake=None)


_advance = _declared(
    "advance",
    "Tensor action, Tensor(b!)[] observations, Tensor(c!)[] start, Tensor(d!) reward",
)
_reset = _declared("reset", "Tensor rows, Tensor(b!)[] observations")
_decide = _declared("decide", "Tensor action, Tensor under, Tensor(b!)[] between", "maps_triton")
_observe = _declared(
    "observe",
    "Tensor under, Tensor(b!)[] between, Tensor(c!)[] scratch, Tensor(d!)[] observations,"
    " Tensor(e!)[] start, Tensor(f!) reward",
    "maps_triton",
)
_reset_maps = _declared("reset_maps", "Tensor rows, Tensor(b!)[] observations", "maps_triton")


@dataclass(frozen=True)
class FusedTask:
    """Constants of one task; every operation takes them.

    Attributes:
        task: The constants of the compiled step.
        numbers: float64: the cell's side and area, the floor's area, the container's height, then
            the weight of each reward term.
        share: ``[256]`` observed value of each height in cells; empty on heightmaps.
        terms: The reward terms, of `FUSED_TERMS`.
        maps: On heightmaps, five tables. For each lower surface: the number of cells, ``[K]``
            int32, and the size, ``[K, 2]`` int64. Then the observed top and bottom of each item,
            ``[M, R, U, V]``, and the margins of the preferred rules and of the task's own rule,
            ``[K, tiers, 2]`` in 1/64 cell; these three are empty if not needed.
    """

    task: StepTask
    numbers: Float[Tensor, " numbers"]
    share: Float[Tensor, " levels"]
    terms: tuple[str, ...]
    maps: tuple[Tensor, ...] = ()

    def constants(self) -> tuple[Any, ...]:
        """Return the constants as arguments of the operators."""
        task, tables = self.task, [self.numbers, self.share, *self.maps]
        return task.items, task.pool, task.counts, task.lengths, tables, list(self.terms)

    def new_memory(
        self, state: Mapping[str, Tensor], *, observed: bool
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return memory for a step on heightmaps: first `Between`, then `Scratch`.

        Args:
            state: The state.
            observed: Whether rest heights are observed; they are then written into the
                observations and need no other memory.
        """
        module = import_module("packing_env.kernels.step.maps_triton")  # this also imports Triton
        slots = state["queue"].shape[1]
        sizes = (state["heightmap"], self.task.items, slots, self.task.counts)
        memory: tuple[list[Tensor], list[Tensor]] = module.new_memory(*sizes, observed=observed)
        return memory


def is_fused_for(device_type: str) -> bool:
    """Return True if the backend chosen for this device has the operations of this module."""
    return resolve(None, device_type) == "triton"


def advance_fused(
    task: FusedTask,
    state: Mapping[str, Tensor],
    action: Int[Tensor, "B heads"],
    observations: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    reward: Float[Tensor, " B"],
) -> None:
    """Carry out one placement of a cuboid per row, in place, and observe.

    This is `packing_env.kernels.advance_cells` with rewards: it also fills ``reward``, updates
    ``reward_sum`` in the state, and appends ``reward_sum`` to the observed metrics. All tensors
    must be contiguous.

    Args:
        task: The constants.
        state: `State`, followed by ``reward_sum``.
        action: ``[B, 1]`` indices of the mask, or ``[B, 4]`` item, orientation, x, y.
        observations: `Observations`; unrequested ones are empty.
        start: `Observations` after resets, of all rows; empty if finished rows are not reset.
        reward: The sum of the weighted terms.
    """
    filled = (_of_state(state), _seen(observations), _seen(start))
    _check([*filled[0], *filled[1], *filled[2], action, reward])
    _advance(filled[0], *task.constants(), action, *filled[1:], reward)


def decide_fused(
    task: FusedTask,
    state: Mapping[str, Tensor],
    action: Int[Tensor, "B heads"],
    under: Float[Tensor, " B"],
    between: list[Tensor],
) -> None:
    """Carry out one placement of an item per row, in place; list the next orientations.

    The state advances as in ``core.transition.decide``, except ``reward_sum``.

    Args:
        task: The constants.
        state: As for :func:`advance_fused`.
        action: As for :func:`advance_fused`.
        under: Sum of each row's heights, metres, float64.
        between: The first part of `FusedTask.new_memory`; it is filled.
    """
    filled = _of_state(state)
    _check([*filled, action, under, *between])
    _decide(filled, *task.constants(), action, under, between)


def observe_fused(
    task: FusedTask,
    state: Mapping[str, Tensor],
    under: Float[Tensor, " B"],
    memory: tuple[list[Tensor], list[Tensor]],
    observations: Mapping[str, Tensor],
    start: Mapping[str, Tensor],
    reward: Float[Tensor, " B"],
) -> None:
    """Find all placements, compute the reward, end rows whose episode is over, observe and reset.

    Args:
        task: The constants.
        state: `State` after :func:`decide_fused`, followed by ``reward_sum``.
        under: Sum of each row's heights now, metres, float64.
        memory: `FusedTask.new_memory`; :func:`decide_fused` has filled its first part.
        observations: As for :func:`advance_fused`.
        start: As for :func:`advance_fused`.
        reward: The sum of the weighted terms.
    """
    filled = (_of_state(state), _seen(observations), _seen(start))
    _check([*filled[0], *filled[1], *filled[2], under, reward])
    _observe(filled[0], *task.constants(), under, *memory, *filled[1:], reward)


def reset_fused(
    task: FusedTask,
    state: Mapping[str, Tensor],
    rows: Bool[Tensor, " B"],
    observations: Mapping[str, Tensor],
) -> None:
    """Start the next episode in some rows, in place, and observe its start; their metrics become 0.

    Args:
        task: The constants.
        state: `State`, followed by ``reward_sum``.
        rows: The rows to reset.
        observations: `Observations` of the state before the reset.
    """
    filled = (_of_state(state), _seen(observations))
    _check([*filled[0], *filled[1], rows])
    operator = _reset_maps if task.maps else _reset
    operator(filled[0], *task.constants(), rows, filled[1])


def _of_state(state: Mapping[str, Tensor]) -> list[Tensor]:
    return [state[name] for name in (*State._fields, "reward_sum")]


def _seen(entries: Mapping[str, Tensor]) -> list[Tensor]:
    return [entries[name] for name in Observations._fields] if entries else []


def _check(tensors: list[Tensor]) -> None:
    """Raise if a tensor does not have the form that the kernels read."""
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("the tensors of a fused step must be contiguous; call .contiguous()")
