"""A whole environment step of cuboids in one launch, on CUDA: signatures, checks, declarations.

The entries are those of :mod:`~packing_env.kernels.step.entries`, and their meaning that of the
compiled step on whole cells; reward terms are computed as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.kernels.backends import BACKENDS, resolve
from packing_env.kernels.operators import declare
from packing_env.kernels.step import StepTask
from packing_env.kernels.step.entries import Observations, State

FUSED_TERMS = ("objective", "utilization", "item", "height", "void", "illegal")
"""Reward terms that the step knows: those of `core.rewards`."""

_TASK = "Tensor[] items, Tensor[] pool, int[] counts, float[] lengths, Tensor[] tables, str[] terms"


def _fill(*arguments: Any) -> None:
    """Return nothing: the operators only write into their arguments."""


def _declared(name: str, arguments: str) -> Any:
    """Declare an operator, which only fills what it is given, where Triton's kernels run."""
    target = f"packing_env.kernels.step.triton:{name}"
    devices = dict.fromkeys(BACKENDS["triton"].runs_on or (), target)
    schema = f"triton_step_{name}(Tensor(a!)[] state, {_TASK}, {arguments}) -> ()"
    return declare(schema, **devices, fake=_fill)


_advance = _declared(
    "advance",
    "Tensor action, Tensor(b!)[] observations, Tensor(c!)[] start, Tensor(d!) reward",
)
_reset = _declared("reset", "Tensor rows, Tensor(b!)[] observations")


@dataclass(frozen=True)
class FusedTask:
    """Constants of one task, which the operations take in every step.

    Attributes:
        task: The constants of the compiled step.
        numbers: float64: the cell's side and area, the floor's area, the container's height, then
            the weight of each reward term.
        share: ``[256]`` observation of each height in cells.
        terms: The reward terms, of `FUSED_TERMS`.
    """

    task: StepTask
    numbers: Float[Tensor, " numbers"]
    share: Float[Tensor, " levels"]
    terms: tuple[str, ...]

    def constants(self) -> tuple[Any, ...]:
        """Return the operators' arguments of these."""
        task, tables = self.task, [self.numbers, self.share]
        return task.items, task.pool, task.counts, task.lengths, tables, list(self.terms)


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

    As `packing_env.kernels.advance_cells`, but for the rewards: ``reward`` is filled,
    ``reward_sum`` of the state advances, and the observed metrics end with it. All tensors must be
    contiguous.

    Args:
        task: The constants.
        state: `State`, and ``reward_sum``.
        action: ``[B, 1]`` indices of the mask, or ``[B, 4]`` item, orientation, x, y.
        observations: `Observations`; unrequested ones are empty.
        start: `Observations` after resets, of all rows; empty if finished rows are not reset.
        reward: The sum of the weighted terms.
    """
    filled = (_of_state(state), _seen(observations), _seen(start))
    _check([*filled[0], *filled[1], *filled[2], action, reward])
    _advance(filled[0], *task.constants(), action, *filled[1:], reward)


def reset_fused(
    task: FusedTask,
    state: Mapping[str, Tensor],
    rows: Bool[Tensor, " B"],
    observations: Mapping[str, Tensor],
) -> None:
    """Start the next episode in some rows, in place, and observe its start; metrics become 0.

    Args:
        task: The constants.
        state: `State`, and ``reward_sum``.
        rows: Which.
        observations: `Observations` of the state before.
    """
    filled = (_of_state(state), _seen(observations))
    _check([*filled[0], *filled[1], rows])
    _reset(filled[0], *task.constants(), rows, filled[1])


def _of_state(state: Mapping[str, Tensor]) -> list[Tensor]:
    """Return the entries of a state in their order."""
    return [state[name] for name in (*State._fields, "reward_sum")]


def _seen(entries: Mapping[str, Tensor]) -> list[Tensor]:
    """Return observations in their order; none if there are none."""
    return [entries[name] for name in Observations._fields] if entries else []


def _check(tensors: list[Tensor]) -> None:
    """Raise for tensors that the kernels would read wrongly."""
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise ValueError("the tensors of a fused step must be contiguous; call .contiguous()")
