"""Action mode ``candidate``: one index over a short list of proposed placements."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from tensordict import NestedKey
from torch import Tensor
from torchrl.data import Bounded, Composite

from packing_env.core import candidates, orientation
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement
from packing_env.core.transition import Outlook, is_done
from packing_env.envs.action_modes.base import ActionMode, expressible
from packing_env.types import Catalogue, PackingParams, ParameterError, State


class CandidateMode(ActionMode):
    """One index over K proposed placements (``candidate_generator``)."""

    def __init__(self, params: PackingParams, catalogue: Catalogue) -> None:
        super().__init__(params, catalogue)
        candidates.get_generator(params.candidate_generator)  # unknown: before the first reset

    @property
    def num_actions(self) -> int:
        """K."""
        return self.params.num_candidates

    def observation_spec(self, batch_size: torch.Size, device: torch.device) -> Composite:
        """``candidates [B, K, F]``."""
        shape = (*batch_size, self.num_actions, len(candidates.FEATURES))
        spec = Bounded(0.0, 1.0, shape=shape, dtype=torch.float32, device=device)
        return Composite(candidates=spec, shape=batch_size, device=device)

    def look(self, state: State, maps: Maps | None) -> Outlook:
        """The generator's list; what did not fit into it is counted."""
        item_id, there = orientation.visible_items(state, self.params.num_visible)
        scene = candidates.Scene(state, item_id, there, maps, self.catalogue, self.params)
        found = candidates.propose(scene)
        entries = {
            "candidate": found.index,
            "candidate_z": found.z,
            "overflow": state["overflow"] + torch.where(is_done(state), 0, found.overflow),
        }
        return Outlook(maps, candidates.mask(found.index).any(1), entries)

    def masks(self, state: State, maps: Maps | None) -> dict[NestedKey, Tensor]:
        """Which places of the list are filled."""
        return {"action_mask": candidates.mask(state["candidate"])}

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Features of the candidates."""
        item_id, _ = orientation.visible_items(state, self.params.num_visible)
        found = candidates.features(
            state["candidate"], state["candidate_z"], item_id, self.catalogue, self.params
        )
        return {"candidates": found}

    def legality(self, seen: Mapping[str, Tensor]) -> dict[NestedKey, Tensor]:
        """The last feature says whether a candidate is there."""
        return {"action_mask": seen["candidates"][..., -1] > 0}

    def place(
        self, actions: Mapping[NestedKey, Tensor], state: State, maps: Callable[[], Maps | None]
    ) -> Placement:
        """The remembered placement of that candidate."""
        return self.decode(actions["action"], state)

    def decode(self, action: Tensor, state: State) -> Placement:
        """The placement of a place of the list."""
        known = (action >= 0) & (action < self.num_actions)
        index = state["candidate"].gather(1, torch.where(known, action, 0)[:, None]).squeeze(1)
        index = torch.where(known, index, -1)
        return orientation.decode_placement(index, self.num_orientations, self.params)

    def encode(self, placement: Placement, state: State | None = None) -> dict[NestedKey, Tensor]:
        """``action [B]``, -1 where the placement is not on the list of ``state``."""
        if state is None:
            raise ParameterError(
                "what a candidate's index means is in the state; pass dict(env.state.items())"
            )
        where = (placement.slot, placement.orientation, placement.x, placement.y)
        index = orientation.encode_placement(*where, self.num_orientations, self.params)
        wanted = torch.where(expressible(placement, self.params), index, -2)  # -1 is an empty place
        listed = state["candidate"] == wanted[:, None]
        return {"action": torch.where(listed.any(1), listed.byte().argmax(1), -1)}

    def project(self, placement: Placement, state: State, maps: Maps | None) -> Placement:
        """Candidate 0, the generator's best: an empty place of the list is near to none."""
        first = self.decode(torch.zeros_like(placement.slot), state)
        return orientation.choose(placement.valid, placement, first)
