"""What an action mode is, and what those over all placements of the lattice share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import torch
from tensordict import NestedKey
from torch import Tensor
from torchrl.data import Binary, Categorical, Composite, TensorSpec

from packing_env.core import orientation
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement
from packing_env.core.random import choose_uniform
from packing_env.core.transition import Outlook
from packing_env.types import Catalogue, PackingParams, State


class ActionMode(ABC):
    """One way to say where an item goes.

    Args:
        params: The task.
        catalogue: Tensors of the item catalogue, on the environment's device.
    """

    mask_keys: tuple[NestedKey, ...] = ("action_mask",)
    """Where the masks of :meth:`masks` stand in the environment's output."""
    report_keys: tuple[NestedKey, ...] = ()
    """Where the entries of :meth:`report` stand."""
    masks_suffice: bool = True
    """Whether :meth:`random` draws from the masks; if not, it is given ``joint_mask``."""
    mask_is_joint: bool = False
    """Whether ``action_mask`` is the legality of every placement of the lattice, in order."""

    def __init__(self, params: PackingParams, catalogue: Catalogue) -> None:
        self.params = params
        self.catalogue = catalogue
        self.num_orientations = orientation.num_orientations(catalogue)

    @property
    @abstractmethod
    def num_actions(self) -> int:
        """``A``, how many different actions there are; the length of a mask of all of them."""

    def action_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """Specs of the entries that the agent writes."""
        return {"action": Categorical(self.num_actions, shape=batch_size, device=device)}

    def mask_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """Specs of :meth:`masks`, with the batch axes."""
        return {"action_mask": mask_spec(self.num_actions, batch_size, device)}

    def observation_spec(self, batch_size: torch.Size, device: torch.device) -> Composite:
        """Specs of the entries that :meth:`observe` adds."""
        return Composite(shape=batch_size, device=device)

    def report_specs(
        self, batch_size: torch.Size, device: torch.device
    ) -> dict[NestedKey, TensorSpec]:
        """Specs of :meth:`report`, with the batch axes."""
        return {}

    def look(self, state: State, maps: Maps | None) -> Outlook:
        """What may be done in ``state``, and what to remember of it there."""
        nothing = torch.zeros(len(state["step"]), 0, device=state["step"].device)
        entries = {"candidate": nothing.long(), "candidate_z": nothing}
        return Outlook(maps, self._some_legal(maps), entries)

    def _some_legal(self, maps: Maps | None) -> Tensor:
        assert maps is not None
        return maps.legal.flatten(1).any(1)

    @abstractmethod
    def masks(self, state: State, maps: Maps | None) -> dict[NestedKey, Tensor]:
        """By key, ``[B, ...]`` of live rows; the environment sets those of finished rows True."""

    def random(
        self, masks: Mapping[NestedKey, Tensor], batch_size: torch.Size
    ) -> dict[NestedKey, Tensor]:
        """Actions drawn uniformly from what the masks ``[*batch, ...]`` allow."""
        return {"action": draw(masks["action_mask"])}

    def observe(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Further observations."""
        return {}

    def legality(self, seen: Mapping[str, Tensor]) -> dict[NestedKey, Tensor]:
        """By mask key, what the rules allow as the observations show it, in finished rows too.

        A key that is not there: only the mask itself shows it.
        """
        return {}

    def report(self, carried: Tensor, placement: Placement | None) -> dict[NestedKey, Tensor]:
        """What the last decision came to; zeros in the rows that ``carried`` out none.

        Args:
            carried: ``[B]`` whether a placement was carried out.
            placement: It; None at the start of an episode.
        """
        return {}

    @abstractmethod
    def place(
        self, actions: Mapping[NestedKey, Tensor], state: State, maps: Callable[[], Maps | None]
    ) -> Placement:
        """The placement that the agent's entries stand for; ``maps()`` computes all placements."""

    @abstractmethod
    def encode(self, placement: Placement, state: State | None = None) -> dict[NestedKey, Tensor]:
        """The agent's entries for a placement, the inverse of :meth:`place`.

        A placement that is not ``valid``, or that the mode cannot express, gives an action that is
        out of range.

        Args:
            placement: One per row, ``[B]``; without ``state`` any leading axes.
            state: The state it is meant for; only a mode whose actions depend on it needs it.
        """

    @abstractmethod
    def project(self, placement: Placement, state: State, maps: Maps | None) -> Placement:
        """The nearest legal placement (of any, where the action is out of range)."""


class LatticeMode(ActionMode):
    """Chooses among all placements of the lattice: what the modes over its indices share."""

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """``(L, R, Xs, Ys)``."""
        return (self.params.num_visible, self.num_orientations, *self.params.lattice)

    @property
    def num_actions(self) -> int:
        """L * R * Xs * Ys."""
        return torch.Size(self.shape).numel()

    def masks(self, state: State, maps: Maps | None) -> dict[NestedKey, Tensor]:
        """Every placement's legality."""
        assert maps is not None
        return {"action_mask": maps.legal.flatten(1)}

    def legality(self, seen: Mapping[str, Tensor]) -> dict[NestedKey, Tensor]:
        """An illegal placement has the drop height 1."""
        if not self.mask_is_joint or "drop_height" not in seen:
            return {}
        return {"action_mask": (seen["drop_height"] < 1).flatten(-4)}

    def random(
        self, masks: Mapping[NestedKey, Tensor], batch_size: torch.Size
    ) -> dict[NestedKey, Tensor]:
        """Each legal placement as likely."""
        index = draw(masks["action_mask" if self.masks_suffice else "joint_mask"])
        return self.encode(orientation.decode_placement(index, self.num_orientations, self.params))

    def project(self, placement: Placement, state: State, maps: Maps | None) -> Placement:
        """Nearest on the lattice: the same item first, then the same orientation."""
        assert maps is not None
        nearest = orientation.nearest_legal(placement, maps.legal, self.params)
        return orientation.decode_placement(nearest, self.num_orientations, self.params)

    def at(self, *indices: Tensor) -> Placement:
        """The placement at lattice indices item, orientation, x, y.

        What is out of range is not valid, and stands at the nearest index in range.
        """
        limits = zip(indices, self.shape, strict=True)
        inside = [(index >= 0) & (index < size) for index, size in limits]
        limits = zip(indices, self.shape, strict=True)
        slot, turn, x, y = (index.clamp(0, size - 1) for index, size in limits)
        step = self.params.grid_step
        return Placement(slot, turn, x * step, y * step, torch.stack(inside).all(0))

    def indices(self, placement: Placement) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Lattice indices item, orientation, x, y of a placement: the inverse of :meth:`at`."""
        step = self.params.grid_step
        return placement.slot, placement.orientation, placement.x // step, placement.y // step


def expressible(placement: Placement, params: PackingParams) -> Tensor:
    """``[B]`` whether a placement is valid and on the lattice."""
    step = params.grid_step
    return placement.valid & (placement.x % step == 0) & (placement.y % step == 0)


def draw(mask: Tensor) -> Tensor:
    """Index of a True entry of each row, each equally likely, by torch's own generator."""
    uniform = torch.rand(mask.shape[:-1], device=mask.device, dtype=torch.float64)
    return choose_uniform(mask, uniform)


def mask_spec(size: int, batch_size: torch.Size, device: torch.device) -> TensorSpec:
    """``[*batch, size]`` bool."""
    return Binary(size, shape=(*batch_size, size), dtype=torch.bool, device=device)
