"""What all heuristics share: the interface of a policy, and the orders of the visible items."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from packing_env import PackingEnv
from packing_env.core.random import choose_uniform
from packing_env.types import Catalogue, PackingParams, ParameterError


def arrival(extent: Float[Tensor, "B L 3"]) -> Float[Tensor, "B L"]:
    """As the items are queued."""
    places = torch.arange(extent.shape[1], device=extent.device)
    return -places.expand(extent.shape[:2]).double()


def largest_first(extent: Float[Tensor, "B L 3"]) -> Float[Tensor, "B L"]:
    """By the volume of the bounding box."""
    return extent.prod(-1)


def smallest_first(extent: Float[Tensor, "B L 3"]) -> Float[Tensor, "B L"]:
    """By the volume of the bounding box, from the small end."""
    return -extent.prod(-1)


def flattest_first(extent: Float[Tensor, "B L 3"]) -> Float[Tensor, "B L"]:
    """By the shortest side over the middle one (the flatness of Zingg, 1935).

    A plate has a small one; a rod and a cube have 1.
    """
    shortest, middle, _ = extent.sort(-1).values.unbind(-1)
    return -shortest / middle


def random_order(extent: Float[Tensor, "B L 3"]) -> Float[Tensor, "B L"]:
    """Each item as likely."""
    return torch.rand_like(extent[..., 0])


ITEM_ORDERS: dict[str, Callable[[Tensor], Tensor]] = {
    "arrival": arrival,
    "largest_first": largest_first,
    "smallest_first": smallest_first,
    "flattest_first": flattest_first,
    "random": random_order,
}
"""From the bounding boxes of the visible items to their priorities; the highest is taken."""


class Heuristic(TensorDictModuleBase):
    """Chooses an action per row, by :meth:`choose`.

    Args:
        env: The environment.
        item_order: In :data:`ITEM_ORDERS`, or None.
        reads: Observations that it needs.
    """

    def __init__(self, env: PackingEnv, item_order: str | None, reads: set[str]) -> None:
        super().__init__()
        self.item_order = None if item_order is None else ITEM_ORDERS[item_order]
        self.params: PackingParams = env.params
        self.catalogue: Catalogue = env.catalogue.tensors()
        missing = sorted(reads - set(env.observation_spec["observation"].keys()))
        if missing:
            raise ParameterError(
                f"heuristics read {missing}; add them to observation={env.params.observation}"
            )
        self.in_keys = [("observation", key) for key in sorted(reads)] + ["action_mask"]
        self.out_keys = ["action"]

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write ``action [*batch]``."""
        mask = tensordict.get("action_mask")
        batch_dims = mask.dim() - 1
        seen = {key[1]: tensordict.get(key).flatten(0, batch_dims - 1) for key in self.in_keys[:-1]}
        action = self.choose(seen, mask.flatten(0, batch_dims - 1))
        return tensordict.set("action", action.view(mask.shape[:-1]))

    @abstractmethod
    def choose(self, seen: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """The action of each row."""

    def _draw(self, mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """A uniformly random legal action."""
        return choose_uniform(mask, torch.rand(len(mask), dtype=torch.float64, device=mask.device))

    def _pick_slot(self, item_id: Tensor, offered: Bool[Tensor, "B L"]) -> Int[Tensor, " B"]:
        """The visible item whose turn it is, among those on offer."""
        assert self.item_order is not None
        extent = self.catalogue["extent"][item_id.clamp(min=0)]
        return torch.where(offered, self.item_order(extent), -torch.inf).argmax(1)

    def _pitches(self, height: Tensor) -> Tensor:
        """A height over H, in pitches."""
        return height.double() * (self.params.height / self.params.pitch)


def first_lowest(
    legal: Bool[Tensor, "B P"], *keys: Int[Tensor, "B P"]
) -> tuple[Int[Tensor, " B"], Bool[Tensor, " B"]]:
    """Place of the first legal entry that is lowest by the keys, the first key first.

    Returns:
        The place, 0 where nothing is legal, and whether something is.
    """
    left = legal
    for key in keys:
        offered = torch.where(left, key, torch.iinfo(key.dtype).max)
        left = left & (offered == offered.amin(1, keepdim=True))
    return left.byte().argmax(1), legal.any(1)
