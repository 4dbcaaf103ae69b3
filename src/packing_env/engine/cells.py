"""A decision on cuboids of whole cells, and the next episode, each in one pass and in place.

See :mod:`packing_env.engine.whole`. What an observation makes of a number is asked of
:mod:`observation` once, for all numbers there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import observation
from packing_env.core.cuboids import cells as cuboid
from packing_env.core.feasibility import Maps
from packing_env.engine.whole import MODES, WholeStep
from packing_env.types import Catalogue, Instances, PackingParams, State

SHOWN = ("heightmap", "item_id", "item_features", "orientation_features", "drop_height")
"""Observations that this path knows."""


def applies(catalogue: Catalogue, params: PackingParams) -> bool:
    """Whether this path knows the task. Where it runs, the backend decides as well."""
    return (
        cuboid.applies(catalogue, params)
        and params.stability_metric in kernels.CUBOID_RULES
        and params.action_mode in MODES
        and params.illegal_action != "project"
        and params.candidate_range == "container"
        and not params.keeps_boxes
        and catalogue["bottom"].shape[-1] <= kernels.MAX_CUBOID_SIDE
        and set(params.observation) <= set(SHOWN)
    )


class CuboidStep(WholeStep):
    """The two operations of one task.

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
        super().__init__(params, catalogue, SHOWN)
        window = catalogue["bottom"].shape[2:]
        self.task = kernels.CuboidTask(
            items=_tables(catalogue, params) | {"on_floor": on_floor},
            pool=(instances.item_id, instances.num_items),
            in_turn=in_turn,
            counts={
                "height": params.height_units,
                "across": window[0],
                "along": window[1],
                "rule": kernels.CUBOID_RULES.index(params.stability),
                "metric_rule": kernels.CUBOID_RULES.index(params.stability_metric),
                "stride": params.grid_step,
                "step_limit": params.step_limit,
                "illegal_ends": int(params.illegal_action == "terminate"),
                "remaining": observation.ITEM_FEATURES.index("remaining"),
            },
            lengths={
                "cell": params.cell,
                "cell_area": params.cell**2,
                "base": params.container[0] * params.container[1],
                "height": params.height,
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
        kernels.advance_cuboids(self.task, state, action, shown, start, outcome)

    def _renew(
        self,
        rows: Bool[Tensor, " B"],
        state: State,
        shown: Mapping[str, Tensor],
        measured: Sequence[Tensor],
    ) -> None:
        kernels.renew_cuboids(self.task, state, rows, shown, measured)


def _tables(catalogue: Catalogue, params: PackingParams) -> dict[str, Tensor]:
    """What the operations look up: see ``kernels.step.cells.ITEMS``."""
    levels = torch.arange(-1, kernels.MAX_CUBOID_HEIGHT + 1, device=catalogue["volume"].device)
    z = (levels.clamp(min=0).float() * params.cell).view(-1, 1, 1, 1, 1)
    heights = observation.drop_heights(Maps(z, (levels >= 0).view(z.shape)), params)
    return {
        "cuboid": catalogue["cuboid"].contiguous(),
        "volume": catalogue["volume"],
        "orientation_mask": catalogue["orientation_mask"],
        "drop_height": heights.flatten(),
        **observation.item_tables(catalogue, params),
    }
