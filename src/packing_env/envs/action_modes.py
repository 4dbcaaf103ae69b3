"""Action modes: what an action of the agent means, over the same state.

A mode owns the specs and masks of what the agent writes, under whatever keys, turns it into a
:class:`Placement`, and may add observations. To add a mode, subclass :class:`ActionMode` and put it
into :data:`MODES`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from tensordict import NestedKey
from torch import Tensor
from torchrl.data import Binary, Bounded, Categorical, Composite, TensorSpec

from packing_env.core import candidates, orientation
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement
from packing_env.core.random import choose_uniform
from packing_env.core.transition import Outlook, is_done
from packing_env.types import Catalogue, PackingParams, ParameterError, State


class ActionMode(ABC):
    """One way to say where an item goes.

    Args:
        params: The task.
        catalogue: Tensors of the item catalogue, on the environment's device.
    """

    def __init__(self, params: PackingParams, catalogue: Catalogue) -> None:
        self.params = params
        self.catalogue = catalogue
        self.num_orientations = orientation.num_orientations(catalogue)

    mask_keys: tuple[NestedKey, ...] = ("action_mask",)
    """Where the masks of :meth:`masks` stand in the environment's output."""

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """``A``, the length of the action mask."""

    def action_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """Specs of the entries that the agent writes."""
        return {"action": Categorical(self.num_actions, shape=batch_size, device=device)}

    def mask_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """Specs of :meth:`masks`, with the batch axes."""
        shape = (*batch_size, self.num_actions)
        spec = Binary(self.num_actions, shape=shape, dtype=torch.bool, device=device)
        return {"action_mask": spec}

    def observation_spec(self, batch_size: torch.Size, device: torch.device) -> Composite:
        """Specs of the entries that :meth:`observe` adds."""
        return Composite(shape=batch_size, device=device)

    def look(self, state: State, maps: Maps | None) -> Outlook:
        """What may be done in ``state``, and what to remember of it there."""
        nothing = torch.zeros(len(state["step"]), 0, device=state["step"].device)
        entries = {"candidate": nothing.long(), "candidate_z": nothing}
        return Outlook(maps, self._some_legal(maps), entries)

    def _some_legal(self, maps: Maps | None) -> Tensor:
        assert maps is not None
        return maps.legal.flatten(1).any(1)

    @abstractmethod
    def mask(self, state: State, maps: Maps | None) -> Tensor:
        """``[B, A]`` legal actions of live rows."""

    def masks(self, state: State, maps: Maps | None) -> dict[NestedKey, Tensor]:
        """By key, ``[B, ...]``; the environment sets those of finished rows to True."""
        return {"action_mask": self.mask(state, maps)}

    def random(self, masks: Mapping[NestedKey, Tensor]) -> dict[NestedKey, Tensor]:
        """Actions drawn uniformly from what the masks ``[*batch, ...]`` allow."""
        mask = masks["action_mask"]
        uniform = torch.rand(mask.shape[:-1], device=mask.device, dtype=torch.float64)
        return {"action": choose_uniform(mask, uniform)}

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Further observations."""
        return {}

    def place(
        self, actions: Mapping[NestedKey, Tensor], state: State, maps: Callable[[], Maps | None]
    ) -> Placement:
        """The placement that the agent's entries stand for; ``maps()`` computes all placements."""
        return self.decode(actions["action"], state)

    @abstractmethod
    def decode(self, action: Tensor, state: State) -> Placement:
        """The placement that ``action [B]`` stands for in ``state``."""

    @abstractmethod
    def project(self, placement: Placement, state: State, maps: Maps | None) -> Placement:
        """The nearest legal placement (of any, where the action is out of range)."""


class PlacementMode(ActionMode):
    """``((item * R + orientation) * Xs + x) * Ys + y`` on the ``grid_step`` lattice."""

    @property
    def num_actions(self) -> int:
        """L * R * Xs * Ys."""
        xs, ys = self.params.lattice
        return self.params.num_visible * self.num_orientations * xs * ys

    def mask(self, state: State, maps: Maps | None) -> Tensor:
        """Every placement's legality."""
        assert maps is not None
        return maps.legal.flatten(1)

    def decode(self, action: Tensor, state: State) -> Placement:
        """See :func:`packing_env.core.orientation.decode_placement`."""
        return orientation.decode_placement(action, self.num_orientations, self.params)

    def project(self, placement: Placement, state: State, maps: Maps | None) -> Placement:
        """Nearest on the lattice: the same item first, then the same orientation."""
        assert maps is not None
        nearest = orientation.nearest_legal(placement, maps.legal, self.params)
        return orientation.decode_placement(nearest, self.num_orientations, self.params)


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

    def mask(self, state: State, maps: Maps | None) -> Tensor:
        """Which places of the list are filled."""
        return candidates.mask(state["candidate"])

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Features of the candidates."""
        item_id, _ = orientation.visible_items(state, self.params.num_visible)
        found = candidates.features(
            state["candidate"], state["candidate_z"], item_id, self.catalogue, self.params
        )
        return {"candidates": found}

    def decode(self, action: Tensor, state: State) -> Placement:
        """The remembered placement of that candidate."""
        known = (action >= 0) & (action < self.num_actions)
        index = state["candidate"].gather(1, torch.where(known, action, 0)[:, None]).squeeze(1)
        index = torch.where(known, index, -1)
        return orientation.decode_placement(index, self.num_orientations, self.params)

    def project(self, placement: Placement, state: State, maps: Maps | None) -> Placement:
        """Candidate 0, the generator's best: an empty place of the list is near to none."""
        first = self.decode(torch.zeros_like(placement.slot), state)
        return orientation.choose(placement.valid, placement, first)


MODES: dict[str, type[ActionMode]] = {"placement": PlacementMode, "candidate": CandidateMode}


def get_mode(name: str) -> type[ActionMode]:
    """The action mode of that name."""
    if name not in MODES:
        raise ParameterError(f"action_mode={name!r} is unknown; choose one of {sorted(MODES)}")
    return MODES[name]
