"""Placement heuristics, batched, with the interface of a learned policy.

**By score**, for every item: each placement has a score, and the lowest legal one is played. The
scores, their units and ties are those of :mod:`packing_env.core.scores`.

| name | score |
|---|---|
| ``random_legal`` | a uniformly random legal action |
| ``first_fit`` | none: the first in the order of ties |
| ``lowest_z`` | ``100 z`` |
| ``deepest_bottom_left`` | ``x + y + 100 z`` |
| ``heightmap_minimization`` | ``x + y + 100 sum(new heightmap)`` |

**By empty maximal spaces**, for cuboids, in tasks that keep them (``num_spaces=E``):
``online_bph``, ``lsah``, ``br``, ``macs``, ``best_fit`` of :mod:`agents.heuristics.spaces`.

**Items.** Where several items are visible, ``item_order`` (:data:`ITEM_ORDERS`) picks one, among
those that can be placed, before placements are scored; ``None`` scores those of all items.

**What they read.** In ``placement`` and ``multi_head`` mode the first group reads the TensorDict
and the catalogue, so that it works in any TorchRL loop and on stored observations; in ``candidate``
mode it also reads ``env.state["candidate"]``, because the observed candidates do not tell the
orientation. In ``hierarchical`` and ``continuous`` mode, which show no mask of all placements, it
reads ``env.state``, and so does the second group in all modes. There ``lowest_z`` over all items
maps no placements, if :mod:`packing_env.core.lowest` can do without. What reads the state acts in
the environment it was built for. Nothing is read back to the host.

**Actions.** In every mode but ``candidate`` they play the same placements, each written as that
mode's action (``env.mode.encode``). In ``candidate`` mode all choose among what the task's
generator proposes.

To add a heuristic, write a function from :class:`Placements` to scores and put it into
:data:`HEURISTICS`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from agents.heuristics.base import ITEM_ORDERS, Heuristic, first_lowest
from agents.heuristics.spaces import SPACE_HEURISTICS, SpaceHeuristic
from packing_env import PackingEnv
from packing_env.core import candidates, scores
from packing_env.core.actions import CandidateMode, LatticeMode
from packing_env.core.lowest import LowestPlacement
from packing_env.core.orientation import Placement, decode_placement, num_orientations
from packing_env.core.scores import (
    Placements,
    Score,
    deepest_bottom_left,
    first_fit,
    heightmap_minimization,
    lowest_z,
)
from packing_env.core.transition import is_done
from packing_env.types import ParameterError

__all__ = [
    "HEURISTICS",
    "ITEM_ORDERS",
    "SPACE_HEURISTICS",
    "CandidateHeuristic",
    "Heuristic",
    "PlacementHeuristic",
    "Placements",
    "Score",
    "SpaceHeuristic",
    "build",
]

HEURISTICS: dict[str, Score | None] = {
    "random_legal": None,
    "first_fit": first_fit,
    "deepest_bottom_left": deepest_bottom_left,
    "lowest_z": lowest_z,
    "heightmap_minimization": heightmap_minimization,
}
"""Score by name; None draws a legal action."""


def build(
    name: str, env: PackingEnv, item_order: str | None = None, *, fallback: bool = True
) -> Heuristic:
    """A heuristic for one environment's task.

    Args:
        name: In :data:`HEURISTICS` or :data:`SPACE_HEURISTICS`.
        env: Sets the task; see the module on what else is read of it.
        item_order: In :data:`ITEM_ORDERS`; None leaves the choice of the item to the score.
        fallback: What one of :data:`SPACE_HEURISTICS` does where none of its own proposals is
            legal: the first legal action, or, if False, -1, which is no action and ends the episode
            (with ``illegal_action="terminate"``), as published programs do.

    Raises:
        ParameterError: The name is unknown, or the environment lacks what the heuristic reads.
    """
    known = {**HEURISTICS, **SPACE_HEURISTICS}
    if name not in known:
        raise ParameterError(f"heuristic={name!r} is unknown; choose one of {sorted(known)}")
    if item_order is not None and item_order not in ITEM_ORDERS:
        raise ParameterError(
            f"item_order={item_order!r} is unknown; choose one of {sorted(ITEM_ORDERS)}, or null"
        )
    if name in SPACE_HEURISTICS:
        return SpaceHeuristic(name, env, item_order, fallback=fallback)
    if isinstance(env.mode, CandidateMode):
        return CandidateHeuristic(HEURISTICS[name], env, item_order)
    if isinstance(env.mode, LatticeMode):
        return PlacementHeuristic(HEURISTICS[name], env, item_order)
    raise ParameterError(
        f"heuristics choose among candidates or among placements of the lattice; "
        f"action_mode={env.params.action_mode!r} offers neither"
    )


class PlacementHeuristic(Heuristic):
    """In all modes but ``candidate``: every placement on the lattice is scored.

    Args:
        score: In :data:`HEURISTICS`.
        env: The environment.
        item_order: In :data:`ITEM_ORDERS`, or None.
    """

    def __init__(self, score: Score | None, env: PackingEnv, item_order: str | None) -> None:
        reads = {"heightmap", "item_id", "drop_height"}
        super().__init__(env, item_order, reads if score or item_order else set())
        self.score = score

        self._search: LowestPlacement | None = None
        if self.from_state and score is lowest_z and item_order is None:
            self._search = LowestPlacement(self.catalogue, self.params)

    def _look(self) -> tuple[torch.Size, dict[str, Tensor], Tensor]:
        """Without a map of all placements where the score can do without."""
        if self._search is None:
            return super()._look()
        state = dict(self._state().items())
        found = self._search.find(state).index
        ended = is_done(state)[:, None]  # any placement will do there: the first
        found = torch.where(ended & (found < 0), 0, found)
        return self._batch, {"lowest": found.squeeze(1)}, found >= 0

    def choose(self, seen: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """Index of each row's placement."""
        if self._search is not None:
            return seen["lowest"]
        xs, ys = self.params.lattice
        legal = mask.view(len(mask), self.params.num_visible, -1, xs, ys)
        if self.item_order is None and self.score is None:
            return self._draw(mask)
        item_id = seen["item_id"][:, : self.params.num_visible]
        if self.item_order is None:
            return self._lowest(seen, item_id, seen["drop_height"], legal)
        slot = self._pick_slot(item_id, legal.flatten(2).any(2))
        rows = torch.arange(len(slot), device=slot.device)
        shown = legal[rows, slot][:, None]
        if self.score is None:
            action = self._draw(shown.flatten(1))
        else:
            drop_height = seen["drop_height"][rows, slot][:, None]
            action = self._lowest(seen, item_id.gather(1, slot[:, None]), drop_height, shown)
        return action + slot * (mask.shape[1] // self.params.num_visible)

    def _lowest(
        self, seen: dict[str, Tensor], item_id: Tensor, drop_height: Tensor, legal: Tensor
    ) -> Int[Tensor, " B"]:
        """Action index, within the given items, of the lowest score."""
        assert self.score is not None
        placements = scores.lattice_placements(
            self._pitches(seen["heightmap"]),
            self._pitches(drop_height),
            item_id.clamp(min=0),
            self.catalogue,
            self.params,
        )
        return scores.best_of_lattice(self.score(placements).expand_as(legal), legal, 1).squeeze(1)


class CandidateHeuristic(Heuristic):
    """In ``candidate`` mode: the proposed placements are scored.

    Args:
        score: In :data:`HEURISTICS`.
        env: The environment.
        item_order: In :data:`ITEM_ORDERS`, or None.
    """

    def __init__(self, score: Score | None, env: PackingEnv, item_order: str | None) -> None:
        reads = {"heightmap", "item_id", "candidates"}
        super().__init__(env, item_order, reads if score or item_order else set())
        self.score = score
        self._proposed: Callable[[], Tensor] = lambda: env.state["candidate"]

    def choose(self, seen: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """The action of each row."""
        if self.item_order is None and self.score is None:
            return self._draw(mask)
        index = self._proposed().clamp(min=0)
        place = decode_placement(index, num_orientations(self.catalogue), self.params)
        legal = mask
        if self.item_order is not None:
            num_items = self.params.num_visible
            of_item = place.slot[..., None] == torch.arange(num_items, device=mask.device)
            offered = (of_item & mask[..., None]).any(1)
            picked = self._pick_slot(seen["item_id"][:, :num_items], offered)
            legal = mask & (place.slot == picked[:, None])
        if self.score is None:
            return self._draw(legal)
        z = self._pitches(seen["candidates"][..., candidates.FEATURES.index("z")])
        placements = Placements(
            place.x.double(), place.y.double(), z, lambda: self._summed_rise(seen, place, z)
        )
        rank = scores.ticks(self.score(placements), legal)
        return first_lowest(legal, rank, place.x, place.y, place.slot, place.orientation)[0]

    def _summed_rise(
        self, seen: dict[str, Tensor], place: Placement, z: Tensor
    ) -> Float[Tensor, "B K"]:
        item_id = seen["item_id"].gather(1, place.slot).clamp(min=0)
        heights = self._pitches(seen["heightmap"])
        if self.params.geometry == "boxes":
            lower = torch.stack((place.x, place.y), -1)
            size = self.catalogue["cuboid"][item_id, place.orientation]
            return scores.summed_rise_of_boxes(heights, lower, size, z, self.params)
        return scores.summed_rise_at(heights, item_id, place, z, self.catalogue, self.params)
