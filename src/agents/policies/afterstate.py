"""`AfterstatePolicy`: chooses the placement with the largest reward plus value."""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from agents.networks.afterstate_net import AfterstateValue
from agents.networks.readouts.noisy import explores
from agents.policies.policy_wrapper import EpsilonSchedule, trailing
from packing_env import Afterstates, PackingEnv
from packing_env.core.random import choose_uniform
from packing_env.types import Catalogue, PackingParams, ParameterError

REWARDS = ("utilization", "item")
"""Reward terms that depend on the item alone."""
_ITEM_ID = ("observation", "item_id")
_PACKED = ("metrics", "items_packed")
_SURFACE = ("observation", "cut_surface")
_BINS = 6
"""Number of bins for the volumes of the waiting items."""


class Outlook:
    """Tables of the items' rewards, and of their features as items that remain to be packed.

    Args:
        env: Determines the task and the items.
        scale: Factor of the rewards.
    """

    def __init__(self, env: PackingEnv, scale: float) -> None:
        self.params: PackingParams = env.params
        self.further = 0
        if _SURFACE[1] in self.params.observation:
            self.further = env.observation_spec[_SURFACE].shape[-1]
        unknown = sorted(set(self.params.reward) - set(REWARDS) - {"illegal"})
        if unknown:
            raise ParameterError(
                f"the reward terms {unknown} of a placement cannot be computed for afterstates; "
                f"use env.reward with {' or '.join(REWARDS)}"
            )
        catalogue: Catalogue = env.catalogue.tensors()
        share = catalogue["volume"].double() / self.params.container_volume
        weights = self.params.reward
        reward = weights.get("utilization", 0.0) * share + weights.get("item", 0.0)
        self.reward = (scale * reward).float()
        extent = catalogue["extent"].double().sort(1).values / max(self.params.container)
        volume = _soft_bins(share.sqrt() / share.max().sqrt())
        longest = _soft_bins(extent[:, 2] / extent[:, 2].max())
        known = torch.cat([torch.ones_like(share)[:, None], share[:, None], volume, longest], 1)
        self.known = known.float()

    @property
    def size(self) -> int:
        """Number of inputs per placement, in addition to the heightmap."""
        return 3 + 2 * _BINS + self.further

    def rewards(self, item_id: Int[Tensor, "B S"]) -> Float[Tensor, "B S"]:
        """Return the reward of packing each item."""
        return self.reward[item_id.clamp(min=0)]

    def waiting(
        self, item_id: Int[Tensor, "B S"], packed: Float[Tensor, " B"], slot: Int[Tensor, "B K"]
    ) -> Float[Tensor, "B K C"]:
        """Return features of the items that remain once the item in a slot is packed."""
        there = (item_id >= 0)[..., None]
        each = torch.where(there, self.known[item_id.clamp(min=0)], 0.0)
        rest = each.sum(1)[:, None] - each.gather(1, slot[..., None].expand(-1, -1, each.shape[2]))
        left = 1.0 - (packed + 1.0) / self.params.num_items
        shares = torch.cat((rest[..., :1] / self.params.num_slots, rest[..., 1:]), -1)
        return torch.cat((left[:, None, None].expand(*slot.shape, 1), shares), -1)


def _soft_bins(values: Float[Tensor, " M"]) -> Float[Tensor, "M bins"]:
    """Divide each number in [0, 1] between its two nearest bins; return the share of every bin."""
    centres = torch.linspace(0, 1, _BINS, device=values.device, dtype=values.dtype)
    return (1 - (values[:, None] - centres).abs() * (_BINS - 1)).clamp(min=0)


class AfterstatePolicy(TensorDictModuleBase):
    """A policy that evaluates the heightmaps after its candidate placements.

    It chooses the candidate with the largest ``reward + V(afterstate)``. While exploring (as in
    :class:`agents.PolicyWrapper`), it chooses a uniform random candidate with probability
    ``epsilon``. It reads the inputs of :class:`packing_env.Afterstates` and ``("metrics",
    "items_packed")``; nothing is copied to the host. It writes ``action [*batch]``, and three
    entries ``[*batch, 1]``: ``state_value`` (the largest value of a candidate),
    ``afterstate_value`` (V of the chosen candidate) and ``explored``.

    Args:
        env: Determines task, items and shapes.
        network: Builds V from the environment and the number of additional inputs.
        num_candidates: See :class:`packing_env.Afterstates`.
        max_items: See :class:`packing_env.Afterstates`.
        scale: Factor of the rewards, so that returns are of order 1.
        epsilon: Schedule of the exploration rate.
    """

    epsilon: Tensor

    def __init__(
        self,
        env: PackingEnv,
        network: Callable[..., AfterstateValue],
        *,
        num_candidates: int | None = None,
        max_items: int | None = None,
        scale: float = 10.0,
        epsilon: EpsilonSchedule | None = None,
    ) -> None:
        super().__init__()
        self.scale = scale
        self._num_candidates, self._max_items = num_candidates, max_items
        self._bind(env)
        self.value = network(env, self.outlook.size)
        self.schedule = epsilon if epsilon is not None else EpsilonSchedule(0.0, 0.0, 0)
        self.schedule.add_buffers(self)
        self.in_keys = [*self.afterstates.in_keys, _PACKED]
        if self.outlook.further:
            self.in_keys.append(_SURFACE)
        self.out_keys = ["action", "state_value", "afterstate_value", "explored"]
        self.to(env.device)

    def _bind(self, env: PackingEnv) -> None:
        self.params = env.params
        self.afterstates = Afterstates(
            env, num_candidates=self._num_candidates, max_items=self._max_items
        )
        self.outlook = Outlook(env, self.scale)

    def bound_to(self, env: PackingEnv) -> AfterstatePolicy:
        """Return a policy with the same parameters for an environment with other items."""
        bound = object.__new__(type(self))
        bound.__dict__.update(self.__dict__)
        bound._modules = dict(self._modules)
        bound.value = self.value.bound_to(env)
        bound._bind(env)
        return bound

    def set_frames(self, frames: int) -> None:
        """Set the exploration rate to its value after ``frames`` environment frames."""
        self.schedule.move(self, frames)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Write the action, its values, and whether it was random."""
        batch = tensordict.batch_size
        flat = tensordict.select(*self.in_keys).reshape(-1)
        candidate, value, after = self.candidate_values(flat)
        choice = best = value.argmax(1)
        explored = torch.zeros_like(best, dtype=torch.bool)
        if explores(self):
            draw = torch.rand(best.shape, device=best.device)
            place = torch.rand(best.shape, device=best.device, dtype=torch.float64)
            other = choose_uniform(candidate >= 0, place)
            explored = draw < trailing(self.epsilon, draw)
            choice = torch.where(explored, other, best)
        written = {
            "action": candidate.gather(1, choice[:, None]).squeeze(1).clamp(min=0),
            "state_value": value.gather(1, best[:, None]),
            "afterstate_value": after.gather(1, choice[:, None]),
            "explored": explored[:, None],
        }
        for key, entry in written.items():
            tensordict.set(key, entry.unflatten(0, batch) if len(batch) != 1 else entry)
        return tensordict

    def candidate_values(
        self, flat: TensorDictBase
    ) -> tuple[Int[Tensor, "B K"], Float[Tensor, "B K"], Float[Tensor, "B K"]]:
        """Return the candidates, ``reward + V(afterstate)`` (-inf for padding), and V alone."""
        candidate, maps, context, reward = self.candidates(flat, self.afterstates)
        there = candidate >= 0
        values = self.value(maps.flatten(0, 1), context.flatten(0, 1), there.flatten())
        after = values.view(candidate.shape)
        value = reward + after
        nothing = ~there.any(1, keepdim=True)
        return candidate, torch.where(there | nothing, value, -torch.inf), after

    def candidates(
        self, flat: TensorDictBase, afterstates: Afterstates
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return candidates ``[B, K]`` (-1 is padding), and their maps, inputs and rewards."""
        heightmap, item_id, offered, mask = (flat.get(key) for key in afterstates.in_keys)
        candidate, maps, _ = afterstates.compute(heightmap, item_id, offered, mask)
        slot = afterstates.slots(candidate.clamp(min=0), offered)
        context = self._context(flat, slot)
        return candidate, maps, context, self.outlook.rewards(item_id).gather(1, slot)

    def afterstate_inputs(
        self, root: TensorDictBase, following: TensorDictBase
    ) -> tuple[Bool[Tensor, " N"], Tensor, Tensor]:
        """Return which steps packed an item, the resulting heightmaps, and the inputs.

        Args:
            root: States ``[N]`` with the actions taken.
            following: The states that followed, ``[N]``, before any reset.
        """
        offered = root.get(self.afterstates.offered_key)
        slot = self.afterstates.slots(root.get("action")[:, None], offered)
        context = self._context(root, slot)
        maps = self.afterstates.heights(following.get(("observation", "heightmap")))
        carried = following.get(_PACKED).squeeze(-1) > root.get(_PACKED).squeeze(-1)
        return carried, maps, context.squeeze(1)

    def _context(self, flat: TensorDictBase, slot: Int[Tensor, "B K"]) -> Float[Tensor, "B K C"]:
        """Return the inputs in addition to the heightmap once the item in a slot is packed."""
        item_id, packed = flat.get(_ITEM_ID), flat.get(_PACKED).squeeze(-1)
        context = self.outlook.waiting(item_id, packed, slot)
        if not self.outlook.further:
            return context
        rest = flat.get(_SURFACE)[:, None].expand(-1, slot.shape[1], -1)
        return torch.cat((context, rest), -1)
