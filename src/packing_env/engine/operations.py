"""The operations of a compiled step, and the tasks that they support."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import feasibility, metrics, observation, preference, stability
from packing_env.core.actions import get_mode
from packing_env.core.cuboids import cells
from packing_env.core.feasibility import Maps
from packing_env.engine.base import Task
from packing_env.engine.offers import is_offered
from packing_env.engine.rules import is_recorded
from packing_env.kernels.stability_rules import LADDER, MAP_RULES
from packing_env.types import DEFAULT_OBSERVATIONS, Catalogue, PackingParams, State

ON_CELLS = ("heightmap", "item_id", "item_features", "orientation_features", "drop_height")
"""Observations that the step on whole cells supports."""


def supported_ground(catalogue: Catalogue, params: PackingParams) -> str | None:
    """Return the compiled step that supports the task: ``"cells"``, ``"heights"`` or None."""
    # 1. Options that no compiled step supports.
    if (
        params.geometry != "maps"
        or not feasibility.even_floor(params)
        or not is_offered(params)
        or params.illegal_action == "project"
        or params.candidate_range != "container"
        or not {params.stability, params.stability_metric} <= set(MAP_RULES)
    ):
        return None
    # 2. Items of any shape.
    if _unknown_observations(catalogue, params):
        return None
    if preference.active(params) and catalogue["cuboid"].shape[-1]:
        return None
    if not catalogue["cuboid"].shape[-1]:
        return "heights"
    # 3. Cuboids: their sides are whole cells, and distances fit into bytes.
    on_cells = (
        cells.applies(catalogue, params)
        and params.stability_metric in kernels.CUBOID_RULES
        and not params.keeps_boxes
        and catalogue["bottom"].shape[-1] <= kernels.MAX_CUBOID_SIDE
    )
    return "cells" if on_cells else None


def refusal(catalogue: Catalogue, params: PackingParams) -> str:
    """Return why no compiled step supports the task; "" if one does."""
    if supported_ground(catalogue, params) is not None:
        return ""
    if unknown := _unknown_observations(catalogue, params):
        items = "cuboids" if catalogue["cuboid"].shape[-1] else "items"
        return (
            f"no compiled step supports the observation {', '.join(map(repr, unknown))} of {items}"
        )
    return "no compiled step supports this combination of parameters and items"


def _unknown_observations(catalogue: Catalogue, params: PackingParams) -> list[str]:
    """Return the requested observations that no compiled step computes for these items."""
    written = ON_CELLS if catalogue["cuboid"].shape[-1] else DEFAULT_OBSERVATIONS
    known = {*written, *observation.OF_HEIGHTMAP}
    return [name for name in params.observation if name not in known]


class Operations:
    """The compiled operations on the states of one task.

    Args:
        task: The task, with a :func:`supported_ground`.
        on_floor: ``feasibility.legal_on_floor`` of its items.
    """

    def __init__(self, task: Task, on_floor: Bool[Tensor, "M R"]) -> None:
        # 1. Tables by catalogue row: the items, their observations, rest heights by level.
        self.params, catalogue = task.params, task.catalogue
        self.on_cells = supported_ground(catalogue, self.params) == "cells"
        tables = observation.item_tables(catalogue, self.params)
        tables["orientation_features"] = tables["orientation_features"].flatten(1)
        none = catalogue["peak"].new_empty(0)
        levels = _observed_levels(catalogue, self.params) if self.on_cells else none
        self._items = {**catalogue, **tables, "drop_height": levels, "on_floor": on_floor}
        # 2. The constants of the kernels.
        self.task = kernels.StepTask(
            self._items,
            (task.instances.item_id, task.instances.num_items),
            _counts(task),
            _lengths(self.params),
            on_cells=self.on_cells,
        )
        # 3. Rest heights, which the next step updates.
        self._known: kernels.DropHeights | None = None
        self._sizes = kernels.surface_sizes(catalogue["bottom"])  # at most the sizes of the windows
        self._areas = torch.isfinite(catalogue["bottom"]).sum((-2, -1))

    def advance(
        self,
        state: State,
        action: Int[Tensor, "B heads"],
        observations: Mapping[str, Tensor],
        start: Mapping[str, Tensor],
        outcome: Mapping[str, Tensor],
    ) -> Float[Tensor, "B P Xs Ys"] | None:
        """Advance the state, except ``reward_sum``, and fill the other arguments.

        Args:
            state: The state.
            action: ``[B, 1]`` indices of the mask, or ``[B, 4]`` item, orientation, x, y.
            observations: `step.entries.Observations`.
            start: ``observations`` after resets; empty tensors if finished rows are not reset.
            outcome: See :func:`new_outcome`.

        Returns:
            On heightmaps, the rest heights of the visible items; the next step overwrites them.
        """
        if self.on_cells:
            kernels.advance_cells(self.task, state, action, observations, start, outcome)
            return None
        # 1. Decode, look up and commit; then list the orientations of the items that become
        #    visible.
        ahead = self.ahead(len(action), action.device)
        under = metrics.sum_of_heights(state["heightmap"])
        kernels.decide_heights(self.task, state, action, ahead, under, outcome)
        # 2. Compute the legality of the state after the decision.
        z, stable = self._judge(self._drop_height(state, ahead["plane"]), state, ahead)
        # 3. Set the flags, measure, reset and observe.
        under = metrics.sum_of_heights(state["heightmap"])
        judged = [z, stable, ahead["peak"]]
        kernels.observe_heights(self.task, state, judged, under, observations, start, outcome)
        return z

    def ahead(self, batch: int, device: torch.device) -> dict[str, Tensor]:
        """Return buffers for the orientations of the visible items; see `step.entries.Ahead`."""
        buffers, planes = {}, self.params.num_visible * self._items["peak"].shape[1]
        for name in ("peak", "com", "size"):
            table = self._items[name]
            shape = [batch, planes, *table.shape[2:]]
            buffers[name] = torch.empty(shape, dtype=table.dtype, device=device)
        buffers["plane"] = torch.empty([batch, planes], dtype=torch.int64, device=device)
        return buffers

    def _drop_height(self, state: State, plane: Int[Tensor, "B P"]) -> Float[Tensor, "B P Xs Ys"]:
        """Return rest heights; with several visible items, update the last step's."""
        heightmap, stride = state["heightmap"], self.params.grid_step
        surfaces, size = self._items["bottom"].flatten(0, 1), self._sizes.flatten(0, 1)
        # Compute all heights if one item is visible, or in a recording, which may read only the
        # state.
        if self.params.num_visible == 1 or is_recorded(state):
            return kernels.drop_height(heightmap, surfaces, stride, which=plane, size=size)
        # Otherwise most items were visible before, and the heightmap has changed at one place only.
        known = self._known
        if known is None or known.heightmap.shape != heightmap.shape:
            known = self._known = kernels.DropHeights.new(heightmap, plane, stride)
        return kernels.update_drop_height(
            known, heightmap, surfaces, stride, which=plane, size=size
        )

    def _judge(
        self, z: Float[Tensor, "B P Xs Ys"], state: State, ahead: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "B P Xs Ys"], Bool[Tensor, "B_ P Xs Ys"]]:
        """Return rest heights, and which placements are stable and preferred.

        Only placements below the lid are judged. Without rules and preferences, the second tensor
        is empty.
        """
        params = self.params
        preferences = preference.active(params)
        if params.stability == "none" and not preferences:
            return z, z.new_empty((0, *z.shape[1:]), dtype=torch.bool)
        # Placements above the lid get height +inf, which no rule accepts. They keep it in the maps
        # that the next step updates, because heights only rise during an episode.
        contact = stability.Contact(
            state["heightmap"],
            self._items["bottom"].flatten(0, 1),
            kernels.close_lid(z, ahead["peak"], params.lid),
            ahead["com"],
            params.tolerance,
            params.grid_step,
            ahead["size"],
            which=ahead["plane"],
            footprint_area=self._areas.flatten(),
        )
        if not preferences:
            return contact.z, stability.judge_maps(params.stability, contact)
        return contact.z, _preferred(contact, params)


def _preferred(contact: stability.Contact, params: PackingParams) -> Bool[Tensor, "B P Xs Ys"]:
    """Return the legal placements of the visible items that the task prefers."""
    # If each rule implies the next, one kernel tries them one after another, the task's own last.
    if ladder := preference.ladder(params):
        return kernels.tiered_hull(
            contact.heightmap,
            contact.bottom,
            contact.z,
            contact.com,
            preference.tiers(contact.size, ladder),
            contact.tolerance,
            contact.stride,
            params.num_visible,
            which=contact.which,
        )
    # Otherwise the preferences select from the placements that the task's own rule allows.
    by_item = (params.num_visible, -1)
    legal = stability.judge_maps(params.stability, contact).unflatten(1, by_item)
    return preference.restrict(contact, legal, params).flatten(1, 2)


def new_outcome(batch: int, device: torch.device) -> dict[str, Tensor]:
    """Return buffers for the results of a decision; see `step.entries.Outcome`."""
    # One allocation for both flags, and one for the metrics before and after the decision.
    legal, live = torch.empty(2, batch, dtype=torch.bool, device=device).unbind()
    measured = torch.empty(2, len(metrics.NAMES), batch, dtype=torch.float64, device=device)
    before, after = measured.unbind()
    return {"legal": legal, "live": live, "before": before, "after": after}


def _counts(task: Task) -> dict[str, int]:
    """Return the integer constants of a task; see `step.entries.Counts`."""
    params, catalogue = task.params, task.catalogue
    across, along = catalogue["bottom"].shape[2:]
    # The fused step checks a legal placement again, by the least strict rule.
    ladder = preference.ladder(params)
    return {
        "height": params.height_units,
        "across": across,
        "along": along,
        "visible": params.num_visible,
        "rule": MAP_RULES.index(LADDER[0] if ladder else params.stability),
        "metric_rule": MAP_RULES.index(params.stability_metric),
        "stride": params.grid_step,
        "step_limit": params.step_limit,
        "illegal_ends": int(params.illegal_action == "terminate"),
        "remaining": observation.ITEM_FEATURES.index("remaining"),
        "sequential": int(task.draw == "sequential"),
        "ends_mask": int(get_mode(params.action_mode).mask_is_joint),
        "metrics": len(metrics.NAMES) + len(params.reward),
    }


def _lengths(params: PackingParams) -> dict[str, float]:
    """Return the lengths and areas of a task; see `step.entries.Lengths`."""
    return {
        "cell": params.cell,
        "cell_area": params.cell**2,
        "base": params.container[0] * params.container[1],
        "height": params.height,
        "lid": params.lid,
        "tolerance": params.tolerance,
    }


def _observed_levels(catalogue: Catalogue, params: PackingParams) -> Float[Tensor, " levels"]:
    """Return the observed value of each rest height in whole cells; entry 0 is for illegal ones."""
    levels = torch.arange(-1, kernels.MAX_CUBOID_HEIGHT + 1, device=catalogue["volume"].device)
    z = (levels.clamp(min=0).float() * params.cell).view(-1, 1, 1, 1, 1)
    return observation.drop_heights(Maps(z, (levels >= 0).view(z.shape)), params).flatten()
