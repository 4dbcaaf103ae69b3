"""Action modes in a compiled step: how each decodes actions and makes observations.

The compiled step works on placements of the lattice only. An offer decodes the agent's actions into
such placements. It also makes the mode's masks, observations and report from the results of the
step. :mod:`packing_env.core.actions` gives the same results, bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from jaxtyping import Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import candidates
from packing_env.core.actions import ActionMode, CandidateMode, Key, LatticeMode
from packing_env.core.actions.base import Actions
from packing_env.core.orientation import decode_placement
from packing_env.engine.base import Task
from packing_env.types import PackingParams, State

Buffers = Mapping[str, Tensor]
"""Fields of `step.entries.Observations`, by name."""


@dataclass(frozen=True)
class Results:
    """The results of a compiled step.

    Attributes:
        state: The state after the step.
        action: ``[B, 1]`` or ``[B, 4]`` the chosen placements.
        outcome: See :func:`packing_env.engine.operations.new_outcome`.
        after: Observations of the state before resets; their mask is the legality of all
            placements.
        start: Observations after resets; empty if finished rows were not reset.
        z: Rest heights ``[B, L R, Xs, Ys]`` of ``after`` on heightmaps, otherwise None.
    """

    state: State
    action: Int[Tensor, "B heads"]
    outcome: Buffers
    after: Buffers
    start: Buffers
    z: Float[Tensor, "B LR Xs Ys"] | None


@dataclass(frozen=True)
class Offered:
    """The entries of an :class:`packing_env.engine.base.Observations` that a mode adds."""

    entries: dict[str, Tensor] = field(default_factory=dict)
    masks: dict[Key, Tensor] = field(default_factory=dict)
    report: dict[Key, Tensor] = field(default_factory=dict)


class LatticeOffer:
    """Offer of the modes over the lattice: masks and entries follow from all placements' legality.

    Attributes:
        hands_out: Additional buffers that the step fills and that are returned to the agent.
        reads: Buffers that the step fills only for :meth:`show`.
    """

    def __init__(self, mode: ActionMode, task: Task, *, on_cells: bool) -> None:
        self.mode, self.params, self.on_cells = mode, task.params, on_cells
        self.hands_out: tuple[str, ...] = ("mask",) if mode.mask_is_joint else ()
        self.hands_out += ("heights",) if "heights" in mode.observation_spaces else ()
        self.reads: tuple[str, ...] = () if mode.mask_is_joint else ("mask",)

    def decode(self, actions: Actions, state: State) -> Int[Tensor, "B heads"]:
        """Return the placements as flat ``[B, 1]`` or per-axis ``[B, 4]`` lattice indices.

        An index out of range makes the action illegal.
        """
        if self.mode.mask_is_joint:
            return actions["action"].view(len(state["step"]), -1).contiguous()
        return self.mode.index_of(self.mode.decode(actions, state))[:, None]

    def show(self, results: Results) -> tuple[Offered, Offered]:
        """Return the mode's entries before and after resets."""
        before, after = self._offered(results.after), self._offered(results.start)
        if not self.mode.report_keys:
            return before, after
        # A row that was reset has carried out no action in its new episode.
        carried = results.outcome["legal"] & results.outcome["live"]
        index, orientations = results.action[:, 0], self.mode.num_orientations
        report = self.mode.report(carried, decode_placement(index, orientations, self.params))
        done = results.after["done"][:, None]
        none = {key: value.masked_fill(done, 0.0) for key, value in report.items()}
        return replace(before, report=report), replace(after, report=none)

    def _offered(self, seen: Buffers) -> Offered:
        # The step writes a joint mask as the agent gets it; other masks are computed from it.
        mask, mode = seen["mask"], self.mode
        if mode.mask_is_joint:
            return Offered(masks={"action_mask": mask})
        if not len(mask):  # finished rows were not reset
            return Offered()
        assert isinstance(mode, LatticeMode)
        legal, over = mask.view(len(mask), *mode.shape), seen["terminated"][:, None]
        masks = {key: value | over for key, value in mode.masks_of(legal).items()}
        return Offered(mode.entries_of(legal, seen["heights"]), masks)


class CandidateOffer(LatticeOffer):
    """Offer of mode ``candidate`` with generator ``lowest_z``: the K lowest legal placements."""

    mode: CandidateMode

    def __init__(self, mode: ActionMode, task: Task, *, on_cells: bool) -> None:
        super().__init__(mode, task, on_cells=on_cells)
        params = task.params
        self.reads = ("mask", "item_id", *(["drop_height"] if on_cells else []))
        tables = candidates.feature_tables(task.catalogue, params)
        # On whole cells the step writes levels divided by the container's height.
        levels = torch.arange(params.height_units + 1 if on_cells else 0).float() * params.cell
        self._tables = [*tables, levels]
        self._scale = params.height / params.cell if on_cells else 1.0

    def decode(self, actions: Actions, state: State) -> Int[Tensor, "B 1"]:
        """Return the placement listed under the action, or -1 if the entry is empty."""
        return self.mode.look_up(actions["action"], state)[:, None]

    def show(self, results: Results) -> tuple[Offered, Offered]:
        """Write the list of candidates to the state, and return their features and mask."""
        after, start, state = results.after, results.start, results.state
        # 1. The list of the state before resets and, if there were resets, the list after them.
        listed = [state["candidate"], state["candidate_z"]]
        first = self._empty(len(after["mask"]), listed[0])
        second = self._empty(len(start["mask"]), listed[0])
        fresh = start if len(start["mask"]) else after
        # 2. The lowest placements, from the results of the step.
        heights = after["drop_height"] if results.z is None else results.z
        kernels.list_lowest(
            [heights, *(after[name] for name in ("mask", "item_id", "terminated", "done"))],
            [fresh["mask"], fresh["item_id"]],
            self._tables,
            listed,
            first,
            second,
            height=self.params.height,
            scale=self._scale,
        )
        before, after_resets = (
            Offered({"candidates": features}, {"action_mask": mask})
            for features, mask in (first, second)
        )
        return before, after_resets

    def _empty(self, batch: int, like: Int[Tensor, "B K"]) -> list[Tensor]:
        shape, device = (batch, like.shape[1]), like.device
        features = torch.empty((*shape, len(candidates.FEATURES)), device=device)
        return [features, torch.empty(shape, dtype=torch.bool, device=device)]


OFFERS: dict[str, type[LatticeOffer]] = {
    "placement": LatticeOffer,
    "multi_head": LatticeOffer,
    "hierarchical": LatticeOffer,
    "continuous": LatticeOffer,
    "candidate": CandidateOffer,
}
"""Offers by action mode."""


def is_offered(params: PackingParams) -> bool:
    """Return whether a compiled step supports the task's action mode."""
    listed = params.action_mode != "candidate" or params.candidate_generator == "lowest_z"
    return listed and params.action_mode in OFFERS
