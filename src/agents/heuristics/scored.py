"""Heuristics that score every placement, or every proposed candidate."""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from agents.heuristics.base import Heuristic, first_lowest
from packing_env import PackingEnv
from packing_env.core import candidates, scores
from packing_env.core.orientation import Placement, decode_placement, num_orientations
from packing_env.core.scores import Placements, Score
from packing_env.types import ParameterError


class ScoredHeuristic(Heuristic):
    """Base of heuristics that give placements a score and choose the lowest legal one.

    Args:
        score: Function from placements to scores; None draws a random legal action.
        env: The environment.
        item_order: Key of :data:`agents.heuristics.base.ITEM_ORDERS`, or None.
    """

    rest_heights: str
    """Observation that holds the rest heights."""

    def __init__(self, score: Score | None, env: PackingEnv, item_order: str | None) -> None:
        reads = {"heightmap", "item_id", self.rest_heights}
        super().__init__(env, item_order, reads if score or item_order else set())
        self.score = score

    def _score_of(self, placements: Placements, legal: Tensor) -> Tensor:
        """Return the score of every placement, in the shape of ``legal``.

        Raises:
            ParameterError: A user's function does not return one score per placement.
        """
        assert self.score is not None
        score = self.score(placements)
        try:
            return torch.as_tensor(score, device=legal.device).expand_as(legal)
        except (RuntimeError, TypeError) as error:
            shape = tuple(score.shape) if isinstance(score, Tensor) else type(score).__name__
            raise ParameterError(
                f"heuristic {getattr(self.score, '__name__', self.score)!r} must return one score "
                f"per placement, {tuple(legal.shape)} or broadcastable, not {shape}"
            ) from error


class PlacementHeuristic(ScoredHeuristic):
    """Heuristic for all modes except ``candidate``: it scores every placement on the lattice."""

    rest_heights = "drop_height"

    def choose(self, observed: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """Return the index of each row's placement."""
        if self.item_order is None and self.score is None:
            return self._draw(mask)
        # 1. Take the placements of all visible items, or of the item that ``item_order`` chooses.
        num_items, (xs, ys) = self.params.num_visible, self.params.lattice
        legal = mask.view(len(mask), num_items, -1, xs, ys)
        item_id, rest = observed["item_id"][:, :num_items], observed["drop_height"]
        before: Tensor | int = 0
        if self.item_order is not None:
            slot = self._pick_slot(item_id, legal.flatten(2).any(2))[:, None]
            rows = torch.arange(len(slot), device=slot.device)[:, None]
            legal, item_id, rest = legal[rows, slot], item_id[rows, slot], rest[rows, slot]
            before = slot.squeeze(1) * (mask.shape[1] // num_items)
        # 2. Draw a placement, or choose the placement of the lowest score.
        if self.score is None:
            return before + self._draw(legal.flatten(1))
        heights, rest = self._pitches(observed["heightmap"]), self._pitches(rest)
        placements = scores.lattice_placements(
            heights, rest, item_id.clamp(min=0), self.catalogue, self.params
        )
        return before + scores.best_of_lattice(self._score_of(placements, legal), legal)


class FirstListed(Heuristic):
    """The first entry of the candidate list: the choice of the task's candidate generator."""

    def __init__(self, env: PackingEnv) -> None:
        super().__init__(env, None, set())

    def choose(self, observed: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """Return the first legal action of each row."""
        return mask.byte().argmax(1)


class CandidateHeuristic(ScoredHeuristic):
    """Heuristic for the mode ``candidate``: it scores the proposed placements."""

    rest_heights = "candidates"
    needs_state = True

    def choose(self, observed: dict[str, Tensor], mask: Bool[Tensor, "B A"]) -> Int[Tensor, " B"]:
        """Return the action of each row."""
        if self.item_order is None and self.score is None:
            return self._draw(mask)
        index = self._state()["candidate"].clamp(min=0)
        place = decode_placement(index, num_orientations(self.catalogue), self.params)
        legal = mask
        if self.item_order is not None:
            num_items = self.params.num_visible
            of_item = place.slot[..., None] == torch.arange(num_items, device=mask.device)
            offered = (of_item & mask[..., None]).any(1)
            picked = self._pick_slot(observed["item_id"][:, :num_items], offered)
            legal = mask & (place.slot == picked[:, None])
        if self.score is None:
            return self._draw(legal)
        z = self._pitches(observed["candidates"][..., candidates.FEATURES.index("z")])
        placements = Placements(
            place.x.double(), place.y.double(), z, lambda: self._summed_rise(observed, place, z)
        )
        rank = scores.ticks(self._score_of(placements, legal), legal)
        keys = (rank, place.x, place.y, place.slot, place.orientation)
        return first_lowest(legal, keys)[0]

    def _summed_rise(
        self, observed: dict[str, Tensor], place: Placement, z: Tensor
    ) -> Float[Tensor, "B K"]:
        item_id = observed["item_id"].gather(1, place.slot).clamp(min=0)
        heights = self._pitches(observed["heightmap"])
        if self.params.geometry == "boxes":
            lower = torch.stack((place.x, place.y), -1)
            size = self.catalogue["cuboid"][item_id, place.orientation]
            return scores.summed_rise_of_boxes(heights, lower, size, z, self.params)
        return scores.summed_rise_at(heights, item_id, place, z, self.catalogue, self.params)
