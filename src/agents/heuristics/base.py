"""Base class of the heuristics, and the orders in which they choose among the visible items."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents.shapes import ShapeCheck
from packing_env import PackingEnv
from packing_env.core import feasibility, observation
from packing_env.core.actions import LatticeMode
from packing_env.core.orientation import decode_placement, visible_items
from packing_env.core.random import choose_uniform
from packing_env.envs.checks import check_observed
from packing_env.types import Catalogue, PackingParams, ParameterError


def largest_first(extent: Float[Tensor, "B L 3"]) -> Float[Tensor, "B L"]:
    """Rank items by the volume of the bounding box, largest first."""
    return extent.prod(-1)


def flattest_first(extent: Float[Tensor, "B L 3"]) -> Float[Tensor, "B L"]:
    """Rank items by the shortest side divided by the middle one (Zingg, 1935), flattest first.

    The ratio of a plate is small; that of a rod and of a cube is 1.
    """
    shortest, middle, _ = extent.sort(-1).values.unbind(-1)
    return -shortest / middle


def smallest_first(extent: Float[Tensor, "B L 3"]) -> Float[Tensor, "B L"]:
    """Rank items by the volume of the bounding box, smallest first."""
    return -largest_first(extent)


def in_random_order(extent: Float[Tensor, "B L 3"]) -> Float[Tensor, "B L"]:
    """Rank items at random."""
    return torch.rand_like(extent[..., 0])


def arrival(extent: Float[Tensor, "B L 3"]) -> Float[Tensor, "B L"]:
    """Rank items in the order of the queue."""
    place = torch.arange(extent.shape[1], device=extent.device)
    return -place.expand(extent.shape[:2]).double()


ITEM_ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "arrival": arrival,
    "largest_first": largest_first,
    "smallest_first": smallest_first,
    "flattest_first": flattest_first,
    "random": in_random_order,
}
"""Functions from the bounding boxes of the visible items to priorities; the highest priority comes
first.
"""


class OwnState:
    """Reader of the state of the one environment in which a policy acts.

    Copies of the policy read the same environment. In another process its state is not known, so
    pickling raises a ParameterError.
    """

    def __init__(self, read: Callable[[], dict[str, Tensor]]) -> None:
        self._read = read

    def __call__(self) -> dict[str, Tensor]:
        """Return the present state, by name."""
        return self._read()

    def __deepcopy__(self, memo: Any) -> OwnState:
        return self

    def __reduce__(self) -> Any:
        raise ParameterError(
            "this policy reads the state of its environment, so it cannot act in another process; "
            "act in one process, or use a heuristic by score in action_mode='placement'"
        )


class Heuristic(TensorDictModuleBase):
    """Base of rules that choose a placement per row and write the mode's action for it.

    Masks and observations come from the TensorDict. In modes without an ``action_mask`` over
    placements (``hierarchical``, ``continuous``) they come from ``env.state``.

    Args:
        env: The environment.
        item_order: Key of :data:`ITEM_ORDERS`, or None.
        reads: Names of the observations that the rule needs.
    """

    needs_state = False
    """Whether the rule reads the environment's state in addition to observations."""

    def __init__(self, env: PackingEnv, item_order: str | None, reads: set[str]) -> None:
        super().__init__()
        self.item_order = None if item_order is None else ITEM_ORDERS[item_order]
        self.params: PackingParams = env.params
        self.catalogue: Catalogue = env.catalogue.tensors()
        self.mode = env.mode
        self.from_state = "action_mask" not in env.mode.mask_keys
        self.out_keys = list(env.action_keys)
        self._batch = env.batch_size
        if self.from_state:
            self._observed = env.params.evolve(observation=tuple(sorted(reads)))
            self.in_keys = []
        else:
            check_observed(env, reads, "the heuristic")
            self.in_keys = [("observation", key) for key in sorted(reads)] + ["action_mask"]
        rows = self.from_state or (self.needs_state and bool(reads))
        if rows:
            self._state = OwnState(lambda: dict(env.state.items()))
        self.register_forward_pre_hook(ShapeCheck(self, env, rows=rows))

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action of every row under the mode's keys."""
        batch, observed, mask = self._observe_state() if self.from_state else self._read(tensordict)
        index = self.choose(observed, mask)
        entries: dict[NestedKey, Tensor] = {"action": index}
        if isinstance(self.mode, LatticeMode):
            placement = decode_placement(index, self.mode.num_orientations, self.params)
            entries = self.mode.encode(placement)
        for key, action in entries.items():
            tensordict.set(key, action.view(*batch, *action.shape[1:]))
        return tensordict

    def _read(self, tensordict: TensorDictBase) -> tuple[torch.Size, dict[str, Tensor], Tensor]:
        """Return batch shape, observations ``[B, ...]`` and mask ``[B, A]``."""
        mask = tensordict.get("action_mask")
        last = mask.dim() - 2
        observed = {key[1]: tensordict.get(key).flatten(0, last) for key in self.in_keys[:-1]}
        return mask.shape[:-1], observed, mask.flatten(0, last)

    def _observe_state(self) -> tuple[torch.Size, dict[str, Tensor], Tensor]:
        """Return batch shape, observations and mask, computed from the environment's state."""
        state = self._state()
        items, there = visible_items(state, self.params.num_visible)
        maps = feasibility.legal_maps(state, items, there, self.catalogue, self.params)
        observed = observation.observe(state, maps, self.catalogue, self._observed)
        return self._batch, observed, maps.legal.flatten(1) | state["terminated"][:, None]

    @abstractmethod
    def choose(self, observed: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """Return each row's placement index (``candidate`` mode: candidate index); -1 for none."""

    def _draw(self, mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        return choose_uniform(mask, torch.rand(len(mask), dtype=torch.float64, device=mask.device))

    def _pick_slot(self, item_id: Tensor, offered: Bool[Tensor, "B L"]) -> Int[Tensor, " B"]:
        assert self.item_order is not None
        extent = self.catalogue["extent"][item_id.clamp(min=0)]
        return torch.where(offered, self.item_order(extent), -torch.inf).argmax(1)

    def _pitches(self, height: Tensor) -> Tensor:
        return height.double() * (self.params.height / self.params.pitch)


def first_lowest(
    legal: Bool[Tensor, "B P"], keys: Iterable[Int[Tensor, "B P"]]
) -> tuple[Int[Tensor, " B"], Bool[Tensor, " B"]]:
    """Return the legal entry whose keys are lexicographically smallest; of equal ones, the first.

    Returns:
        The index of the entry (0 if none is legal), and whether any entry is legal.
    """
    tied = legal
    for key in keys:
        offered = torch.where(tied, key, torch.iinfo(key.dtype).max)
        tied = tied & (offered == offered.amin(1, keepdim=True))
    return tied.byte().argmax(1), legal.any(1)
