"""A decision on items of any shape, and the next episode, in few passes and in place.

See :mod:`packing_env.engine.whole`. Between the operations of :class:`MapsStep` stand the ones
that find all placements: the drop heights and the stability rule, as in :mod:`feasibility`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import metrics, observation, stability
from packing_env.engine.whole import MODES, WholeStep
from packing_env.types import SHOWN_BY_DEFAULT, Catalogue, Instances, PackingParams, State


def applies(catalogue: Catalogue, params: PackingParams) -> bool:
    """Whether this path knows the task. Where it runs, the backend decides as well."""
    return (
        params.geometry == "maps"
        and not catalogue["cuboid"].shape[-1]
        and params.stability in kernels.CUBOID_RULES
        and params.stability_metric in kernels.CUBOID_RULES
        and params.action_mode in MODES
        and params.illegal_action != "project"
        and params.candidate_range == "container"
        and set(params.observation) <= set(SHOWN_BY_DEFAULT)
    )


class MapsStep(WholeStep):
    """The operations of one task.

    Args:
        params: The task, to which :func:`applies`.
        catalogue: Its items.
        instances: The pool that episodes are drawn from.
        on_floor: ``feasibility.legal_on_floor`` of them.
        in_turn: Whether a row takes the pool's instances in turn, not at random.
    """

    def __init__(
        self,
        params: PackingParams,
        catalogue: Catalogue,
        instances: Instances,
        on_floor: Bool[Tensor, "M R"],
        *,
        in_turn: bool,
    ) -> None:
        super().__init__(params, catalogue, SHOWN_BY_DEFAULT)
        self._known: kernels.DropHeights | None = None
        seen = observation.item_tables(catalogue, params)
        self.items = {**catalogue, **seen, "on_floor": on_floor}
        self.sizes = kernels.surface_sizes(catalogue["bottom"])  # at most those of the windows
        self.task = kernels.MapsTask(
            items=self.items,
            pool=(instances.item_id, instances.num_items),
            in_turn=in_turn,
            counts={
                "rule": kernels.CUBOID_RULES.index(params.stability),
                "metric_rule": kernels.CUBOID_RULES.index(params.stability_metric),
                "stride": params.grid_step,
                "step_limit": params.step_limit,
                "illegal_ends": int(params.illegal_action == "terminate"),
                "remaining": observation.ITEM_FEATURES.index("remaining"),
            },
            lengths={
                "cell_area": params.cell**2,
                "base": params.container[0] * params.container[1],
                "height": params.height,
                "lid": params.lid,
                "tolerance": params.tolerance,
            },
        )

    def _carry_out(
        self,
        state: State,
        action: Int[Tensor, "B heads"],
        shown: Mapping[str, Tensor],
        start: Mapping[str, Tensor],
        outcome: Mapping[str, Tensor],
    ) -> None:
        ahead = self._ahead(len(action), action.device)
        under = metrics.sum_of_heights(state["heightmap"])
        kernels.advance_maps(self.task, state, action, ahead, under, outcome)
        z, stable = self._judged(self._drop_height(state, ahead["plane"]), state, ahead)
        under = metrics.sum_of_heights(state["heightmap"])
        kernels.show_maps(self.task, state, (z, stable), under, shown, start, outcome)

    def room_ahead(
        self, batch: int, device: torch.device, *, surfaces: bool = True
    ) -> dict[str, Tensor]:
        """Room for what is known of the visible items in each orientation.

        Args:
            batch: Rows.
            device: Where.
            surfaces: Whether lower surfaces are listed, most of the memory; else they have no rows.
        """
        room, planes = {}, self.params.num_visible * self.items["peak"].shape[1]
        for name in ("bottom", "peak", "com", "size"):
            table, rows = self.items[name], batch if surfaces or name != "bottom" else 0
            shape = [rows, planes, *table.shape[2:]]
            room[name] = torch.empty(shape, dtype=table.dtype, device=device)
        room["plane"] = torch.empty([batch, planes], dtype=torch.int64, device=device)
        return room

    def _ahead(self, batch: int, device: torch.device) -> dict[str, Tensor]:
        """The same for this task: of the rules, only one that looks at contact needs surfaces."""
        return self.room_ahead(batch, device, surfaces=self.params.stability != "none")

    def _drop_height(self, state: State, plane: Int[Tensor, "B P"]) -> Float[Tensor, "B P Xs Ys"]:
        """Rest heights, with several visible items from those before the decision; P = L * R."""
        heightmap, visible = state["heightmap"], self.params.num_visible
        if visible == 1 or not kernels.updates_drop_height(heightmap.device.type):
            surfaces = self.items["bottom"].flatten(0, 1)
            size = self.sizes.flatten(0, 1)
            return kernels.drop_height(
                heightmap, surfaces, self.params.grid_step, which=plane, size=size
            )
        turns = plane.shape[1] // visible
        item_id = plane[:, ::turns].div(turns, rounding_mode="floor")  # -1 stays -1
        self._known = kernels.update_drop_height(
            self._known,
            heightmap.clone(),
            item_id,
            self.items["bottom"],
            self.params.grid_step,
            self.sizes,
        )
        return self._known.z.flatten(1, 2).clone()

    def _judged(
        self, z: Float[Tensor, "B P Xs Ys"], state: State, ahead: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "B P Xs Ys"], Bool[Tensor, "B P Xs Ys"]]:
        """Rest heights below the lid, else +inf, in place, and what the rule says."""
        params = self.params
        contact = stability.Contact(
            state["heightmap"],
            ahead["bottom"],
            kernels.close_lid(z, ahead["peak"], params.lid),
            ahead["com"],
            params.tolerance,
            params.grid_step,
            ahead["size"],
        )
        return z, stability.judge_maps(params.stability, contact)

    def _renew(
        self,
        rows: Bool[Tensor, " B"],
        state: State,
        shown: Mapping[str, Tensor],
        measured: Sequence[Tensor],
    ) -> None:
        kernels.renew_maps(self.task, state, rows, shown, measured)
