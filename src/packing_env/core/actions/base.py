"""The interface of action modes, and the base of modes over the lattice of placements."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core import orientation
from packing_env.core.actions.spaces import Flags, Index, Key, Space
from packing_env.core.feasibility import Maps
from packing_env.core.lists import any_from
from packing_env.core.orientation import Placement
from packing_env.core.random import choose_uniform
from packing_env.types import Catalogue, PackingParams, State

Actions = Mapping[Key, Tensor]
"""Actions: the entries that the agent writes, ``[B, ...]`` by key."""
Masks = Mapping[Key, Bool[Tensor, "*batch A"]]
"""Masks by key, True = legal."""


@dataclass(frozen=True)
class Outlook:
    """Summary of the legal actions of a state.

    Attributes:
        playable: ``[B]`` True if the action mode has a legal action.
        entries: Entries that the action mode keeps in the state.
    """

    playable: Bool[Tensor, " B"]
    entries: State


class ActionMode(ABC):
    """Base of action modes: each encodes placements as actions in its own way.

    Args:
        params: The task.
        catalogue: Tensors of the item catalogue, on the environment's device.

    Attributes:
        action_spaces: Spaces of the entries that the agent writes, by key.
        mask_spaces: Spaces of :meth:`masks`.
        observation_spaces: Spaces of the entries that :meth:`observe` adds.
        report_spaces: Spaces of :meth:`report`.
        masks_suffice: True if :meth:`random` draws from the masks. Otherwise :meth:`random` needs
            ``joint_mask``, the legality of every placement.
        mask_is_joint: True if ``action_mask`` is the legality of every placement, in order.
        lists: True if the state keeps a list of placements and ``action`` is an index of this list.
            The state's entry ``candidate`` holds the placements (-1 where empty), ``candidate_z``
            their heights. The list begins with its placements, which are all legal; it need not
            contain every legal placement.
    """

    masks_suffice: bool = True
    mask_is_joint: bool = False
    lists: bool = False

    def __init__(self, params: PackingParams, catalogue: Catalogue) -> None:
        self.params = params
        self.catalogue = catalogue
        self.num_orientations = orientation.num_orientations(catalogue)
        self.action_spaces: dict[Key, Space] = {"action": Index(self.num_actions)}
        self.mask_spaces: dict[Key, Flags] = {"action_mask": Flags(self.num_actions)}
        self.observation_spaces: dict[str, Space] = {}
        self.report_spaces: dict[Key, Space] = {}

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """``A``, the number of different actions, and the length of a mask over them."""

    @property
    def mask_keys(self) -> tuple[Key, ...]:
        """Keys of :meth:`masks`."""
        return tuple(self.mask_spaces)

    @property
    def report_keys(self) -> tuple[Key, ...]:
        """Keys of :meth:`report`."""
        return tuple(self.report_spaces)

    @abstractmethod
    def outlook(self, state: State, maps: Maps | None) -> Outlook:
        """Return which rows have a legal action, and the entries that the mode adds to a state."""

    @abstractmethod
    def is_legal(self, placement: Placement, state: State) -> Bool[Tensor, " B"]:
        """Look placements up in the state's entries, and return which of them are legal."""

    @abstractmethod
    def masks(self, state: State, maps: Maps | None) -> dict[Key, Bool[Tensor, "B A"]]:
        """Return the masks of unfinished rows by key; the caller handles finished rows."""

    def random(self, masks: Masks, batch_size: Sequence[int]) -> dict[Key, Tensor]:
        """Draw actions; all actions that the masks allow are equally likely."""
        return {"action": draw(masks["action_mask"])}

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Return additional observations by name."""
        return {}

    def legality(self, observations: Mapping[str, Tensor]) -> dict[Key, Tensor]:
        """Return which actions the rules allow, by mask key, computed from the observations.

        Unlike a mask, the result is also valid in finished rows. Keys whose legality cannot be
        computed from observations are left out.
        """
        return {}

    def report(self, carried: Bool[Tensor, " B"], placement: Placement | None) -> dict[Key, Tensor]:
        """Return the report on the last decision; its values are zero in rows without a decision.

        In rows where ``carried`` is True, ``placement`` was carried out. ``placement`` is None at
        the start of an episode.
        """
        return {}

    @abstractmethod
    def decode(self, actions: Actions, state: State) -> Placement:
        """Return the placement that the agent's actions encode."""

    @abstractmethod
    def encode(self, placement: Placement, state: State | None = None) -> dict[Key, Tensor]:
        """Return the actions that encode a placement, the inverse of :meth:`decode`.

        If a placement is not ``valid``, or the mode cannot express it, the action is out of range.
        There is one placement per row, ``[B]``. Only modes whose actions depend on the state need
        ``state``; without it, placements may have any leading axes.
        """

    def index_of(self, placement: Placement, otherwise: int = -1) -> Int[Tensor, "*rows"]:
        """Return the index of a placement, or ``otherwise`` if it is not :meth:`expressible`."""
        index = orientation.encode_placement(placement, self.num_orientations, self.params)
        return torch.where(self.expressible(placement), index, otherwise)

    def expressible(self, placement: Placement) -> Bool[Tensor, "*rows"]:
        """Return whether a placement is valid and on the lattice."""
        step = self.params.grid_step
        return placement.valid & (placement.x % step == 0) & (placement.y % step == 0)

    @abstractmethod
    def project(self, placement: Placement, state: State) -> Placement:
        """Return the nearest legal placement, or an arbitrary one if the action is out of range."""


class LatticeMode(ActionMode):
    """Base of modes that choose among all placements of the lattice."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(L, R, Xs, Ys)``."""
        return (self.params.num_visible, self.num_orientations, *self.params.lattice)

    @property
    def num_actions(self) -> int:
        """L * R * Xs * Ys."""
        return torch.Size(self.shape).numel()

    def outlook(self, state: State, maps: Maps | None) -> Outlook:
        """Return the legality of every placement; the state keeps it."""
        # The state keeps the legality of the lattice; it keeps no list of candidates.
        legal = all_placements(maps).legal.flatten(1)
        nothing = torch.zeros(len(legal), 0, device=legal.device)
        entries = {"legal": legal, "candidate": nothing.long(), "candidate_z": nothing}
        return Outlook(any_from(legal, 1), entries)

    def legal_in(self, state: State) -> Bool[Tensor, "B L R Xs Ys"]:
        """Return the legality of every placement, as the state keeps it."""
        return state["legal"].view(-1, *self.shape)

    def is_legal(self, placement: Placement, state: State) -> Bool[Tensor, " B"]:
        """Return which placements are on the lattice and are legal there."""
        # Look up by one gather; a placement that has no index is illegal.
        index = self.index_of(placement)
        known = state["legal"].gather(1, index.clamp(min=0)[:, None]).squeeze(1)
        return known & (index >= 0)

    def masks(self, state: State, maps: Maps | None) -> dict[Key, Bool[Tensor, "B A"]]:
        """Return the masks that follow from every placement's legality."""
        return self.masks_of(all_placements(maps).legal)

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Return the additional observations that follow from legality and heightmap."""
        return self.entries_of(all_placements(maps).legal, state["heightmap"])

    def masks_of(self, legal: Bool[Tensor, "B L R Xs Ys"]) -> dict[Key, Bool[Tensor, "B A"]]:
        """Return the masks, given the legality of every placement."""
        return {"action_mask": legal.flatten(1)}

    def entries_of(
        self, legal: Bool[Tensor, "B L R Xs Ys"], heightmap: Float[Tensor, ...]
    ) -> dict[str, Tensor]:
        """Return the additional observations, given legality and heightmap ``[B, X, Y]`` in metres.

        The heightmap is empty if a compiled step does not write it because no observation needs it.
        """
        return {}

    def legality(self, observations: Mapping[str, Tensor]) -> dict[Key, Tensor]:
        """Return the legality of all placements; ``drop_height`` is 1 where they are illegal."""
        if not self.mask_is_joint or "drop_height" not in observations:
            return {}
        return {"action_mask": (observations["drop_height"] < 1).flatten(-4)}

    def random(self, masks: Masks, batch_size: Sequence[int]) -> dict[Key, Tensor]:
        """Draw actions; each legal placement is equally likely."""
        index = draw(masks["action_mask" if self.masks_suffice else "joint_mask"])
        return self.encode(orientation.decode_placement(index, self.num_orientations, self.params))

    def project(self, placement: Placement, state: State) -> Placement:
        """Return the nearest legal placement: the same item first, then the same orientation."""
        nearest = orientation.nearest_legal(placement, self.legal_in(state), self.params)
        return orientation.decode_placement(nearest, self.num_orientations, self.params)

    def at(self, indices: Sequence[Int[Tensor, "*rows"]]) -> Placement:
        """Return the placement at lattice indices item, orientation, x, y.

        A placement that is out of range is not valid; its indices are clamped.
        """
        # The indices are clamped, so that reads by index stay in range.
        limits = [(index, size - 1) for index, size in zip(indices, self.shape, strict=True)]
        slot, orientation_id, x, y = (index.clamp(0, last) for index, last in limits)
        inside = torch.stack([(index >= 0) & (index <= last) for index, last in limits]).all(0)
        step = self.params.grid_step
        return Placement(slot, orientation_id, x * step, y * step, inside)

    def indices(self, placement: Placement) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return lattice indices item, orientation, x, y of a placement, the inverse of `at`."""
        step = self.params.grid_step
        return placement.slot, placement.orientation, placement.x // step, placement.y // step


def draw(mask: Bool[Tensor, "*batch A"]) -> Int[Tensor, "*batch"]:
    """Draw the index of a True entry of each row, all equally likely, by torch's generator."""
    # Draw one number per row; it is mapped to a True entry on the device.
    uniform = torch.rand(mask.shape[:-1], device=mask.device, dtype=torch.float64)
    return choose_uniform(mask, uniform)


def all_placements(maps: Maps | None) -> Maps:
    """Return the maps of all placements; raise in geometry ``"boxes"``, which has no maps."""
    assert maps is not None, "geometry='boxes' supports only action_mode='candidate'"
    return maps
