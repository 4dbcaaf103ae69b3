"""Action mode ``candidate``: one index over a short list of proposed placements."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core import candidates, orientation
from packing_env.core.actions.base import ActionMode, Actions, Outlook
from packing_env.core.actions.spaces import Box, Key
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement
from packing_env.core.transition import is_done
from packing_env.types import Catalogue, PackingParams, ParameterError, State


class CandidateMode(ActionMode):
    """One index over K proposed placements (``candidate_generator``)."""

    lists = True

    def __init__(self, params: PackingParams, catalogue: Catalogue) -> None:
        super().__init__(params, catalogue)
        candidates.get_generator(params.candidate_generator)  # unknown: before the first reset
        shape = (self.num_actions, len(candidates.feature_names(params)))
        self.observation_spaces = {"candidates": Box(shape, 0.0, 1.0)}

    @property
    def num_actions(self) -> int:
        """K."""
        return self.params.num_candidates

    def outlook(self, state: State, maps: Maps | None) -> Outlook:
        """Return the generator's list, and the number of proposals that did not fit into it."""
        item_id, there = orientation.visible_items(state, self.params.num_visible)
        scene = candidates.Scene(state, item_id, there, maps, self.catalogue, self.params)
        offered = candidates.propose(scene)
        overflow = state["overflow"] + torch.where(is_done(state), 0, offered.overflow)
        # The list replaces the legality of the lattice, which is not stored.
        entries = {"candidate": offered.index, "candidate_z": offered.z, "overflow": overflow}
        entries["legal"] = torch.zeros_like(offered.index[:, :0], dtype=torch.bool)
        return Outlook((offered.index >= 0).any(1), entries)

    def is_legal(self, placement: Placement, state: State) -> Bool[Tensor, " B"]:
        """Return which actions are on the list; all listed placements are legal."""
        return placement.valid

    def masks(self, state: State, maps: Maps | None) -> dict[Key, Bool[Tensor, "B A"]]:
        """Return which entries of the list are filled."""
        return {"action_mask": state["candidate"] >= 0}

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Return the candidates' features."""
        item_id, _ = orientation.visible_items(state, self.params.num_visible)
        seen = candidates.features(
            state["candidate"], state["candidate_z"], item_id, self.catalogue, self.params, maps
        )
        return {"candidates": seen}

    def legality(self, observations: Mapping[str, Tensor]) -> dict[Key, Tensor]:
        """Return the last feature, which is 1 where a candidate exists."""
        return {"action_mask": observations["candidates"][..., -1] > 0}

    def decode(self, actions: Actions, state: State) -> Placement:
        """Return the placement listed under ``action [B]``."""
        return self.decode_index(actions["action"], state)

    def decode_index(self, action: Int[Tensor, " B"], state: State) -> Placement:
        """Return the placement at an index of the list."""
        index = self.look_up(action, state)
        return orientation.decode_placement(index, self.num_orientations, self.params)

    def look_up(self, action: Int[Tensor, " B"], state: State) -> Int[Tensor, " B"]:
        """Return the placement's index on the lattice; -1 for an empty entry or out of range."""
        known = (action >= 0) & (action < self.num_actions)
        index = state["candidate"].gather(1, torch.where(known, action, 0)[:, None]).squeeze(1)
        return torch.where(known, index, -1)

    def encode(self, placement: Placement, state: State | None = None) -> dict[Key, Tensor]:
        """Return ``action [B]``, -1 where the placement is not on the list of ``state``."""
        if state is None:
            raise ParameterError(
                "the meaning of a candidate's index depends on the state; pass "
                "dict(env.state.items())"
            )
        index = self.index_of(placement, otherwise=-2)  # -1 is an empty entry
        listed = state["candidate"] == index[:, None]
        return {"action": torch.where(listed.any(1), listed.byte().argmax(1), -1)}

    def project(self, placement: Placement, state: State) -> Placement:
        """Return candidate 0, the generator's best, where the action names no entry of the list."""
        first = self.decode_index(torch.zeros_like(placement.slot), state)
        return placement.where(placement.valid, first)
