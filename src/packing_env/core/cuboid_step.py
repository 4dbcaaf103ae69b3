"""A decision on cuboids of whole cells, and the next episode, each in one pass and in place.

:class:`CuboidStep` does to an environment's own state what :func:`transition.advance` and
:func:`transition.begin` say, and shows what :mod:`observation` and :mod:`metrics` say, bit for bit.
What an observation makes of a number is asked of those modules once, for all numbers there are;
rewards are asked of :mod:`rewards` in every step, so that new terms need nothing here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import cuboid, metrics, observation, rewards
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement, num_orientations
from packing_env.types import Catalogue, Instances, PackingParams, State

SHOWN = ("heightmap", "item_id", "item_features", "orientation_features", "drop_height")
"""Observations that this path knows."""

MODES = ("placement", "multi_head")
"""Action modes that look at the legality of all placements, and at nothing else."""

_REMAINING = observation.ITEM_FEATURES.index("remaining")


def applies(catalogue: Catalogue, params: PackingParams) -> bool:
    """Whether this path knows the task. Where it runs, the backend decides as well."""
    return (
        cuboid.applies(catalogue, params)
        and params.stability_metric in kernels.CUBOID_RULES
        and params.action_mode in MODES
        and params.illegal_action != "project"
        and params.candidate_range == "container"
        and not params.keeps_boxes
        and set(params.observation) <= set(SHOWN)
    )


@dataclass(frozen=True)
class Taken:
    """What a decision brought, per row.

    Attributes:
        shown: The observations that were asked for, ``mask [B, L, R, Xs, Ys]`` of what is legal
            (all of a finished row), and ``terminated``, ``truncated``, ``done [B]``.
        reward: ``[B]`` float32, 0 on rows that were finished before.
        metrics: Those of :data:`metrics.NAMES`, ``[B, 1]`` float32 each.
    """

    shown: dict[str, Tensor]
    reward: Float[Tensor, " B"]
    metrics: dict[str, Tensor]


class CuboidStep:
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
        self.params = params
        self.pool = (instances.item_id, instances.num_items)
        self.in_turn = in_turn
        self.items = _tables(catalogue, params) | {"on_floor": on_floor}
        seen = _seen(catalogue, params)
        unasked = set(SHOWN) - set(params.observation)
        self.shapes = {name: entry for name, entry in seen.items() if name not in unasked}
        self.absent = {
            name: torch.empty([0] * (len(shape) + 1), dtype=dtype)
            for name, (dtype, shape) in seen.items()
            if name in unasked
        }
        window = catalogue["bottom"].shape[2:]
        self.counts = {
            "height": params.height_units,
            "across": window[0],
            "along": window[1],
            "rule": kernels.CUBOID_RULES.index(params.stability),
            "metric_rule": kernels.CUBOID_RULES.index(params.stability_metric),
            "stride": params.grid_step,
            "step_limit": params.step_limit,
            "illegal_ends": int(params.illegal_action == "terminate"),
            "remaining": _REMAINING,
        }
        self.lengths = {
            "cell": params.cell,
            "cell_area": params.cell**2,
            "base": params.container[0] * params.container[1],
            "height": params.height,
        }

    def advance(self, state: State, placement: Placement) -> Taken:
        """:func:`transition.advance` in place, and what is seen after it."""
        batch, device = len(state["step"]), state["step"].device
        shown = {
            name: torch.empty([batch, *shape], dtype=dtype, device=device)
            for name, (dtype, shape) in self.shapes.items()
        }
        flags = torch.empty(2, batch, dtype=torch.bool, device=device)
        measured = torch.empty(2, len(metrics.NAMES), batch, dtype=torch.float64, device=device)
        (asked, live), (before, after) = flags.unbind(), measured.unbind()
        outcome = {"asked": asked, "live": live, "before": before, "after": after}
        kernels.advance_cuboids(
            state,
            vars(placement),
            self.items,
            {**self.absent, **shown},
            outcome,
            self.counts,
            self.lengths,
        )
        terms = rewards.weighted_terms(self.params.reward, _named(before), _named(after), asked)
        terms = torch.where(live[:, None], terms, 0.0)
        state["reward_sum"].add_(terms)
        return Taken(shown, terms.sum(-1).float(), _named(after.float()[..., None]))

    def renew(
        self,
        rows: Bool[Tensor, " B"],
        state: State,
        shown: Mapping[str, Tensor],
        measured: Sequence[Tensor],
    ) -> None:
        """Start the next episode in some rows, in place, and show its start there.

        Args:
            rows: Which.
            state: The state.
            shown: As in :class:`Taken`, of the state before.
            measured: ``[B, 1]`` metrics, which become 0.
        """
        kernels.renew_cuboids(
            state,
            rows,
            self.pool,
            self.in_turn,
            self.items,
            {**self.absent, **shown},
            measured,
            self.counts,
        )


def _seen(catalogue: Catalogue, params: PackingParams) -> dict[str, tuple[torch.dtype, list[int]]]:
    """Type and shape, without the batch, of what a decision shows."""
    orientations, slots = num_orientations(catalogue), params.num_slots
    lattice = [params.num_visible, orientations, *params.lattice]
    turned = [slots, orientations, len(observation.ORIENTATION_FEATURES)]
    return {
        "heightmap": (torch.float32, list(params.grid)),
        "item_id": (torch.int64, [slots]),
        "item_features": (torch.float32, [slots, len(observation.ITEM_FEATURES)]),
        "orientation_features": (torch.float32, turned),
        "drop_height": (torch.float32, lattice),
        "mask": (torch.bool, lattice),
        "terminated": (torch.bool, []),
        "truncated": (torch.bool, []),
        "done": (torch.bool, []),
    }


def _tables(catalogue: Catalogue, params: PackingParams) -> dict[str, Tensor]:
    """What the operations look up: see ``kernels.cuboid_step.ITEMS``."""
    device = catalogue["volume"].device
    every = torch.arange(len(catalogue["volume"]), device=device)[:, None]
    left = torch.arange(params.num_items + 1, device=device)
    of_item = _item_features(every, 0 * every.flatten(), catalogue, params)
    of_left = _item_features(0 * left[:, None], left, catalogue, params)
    turned = observation.orientation_features(every, every >= 0, catalogue, params)
    levels = torch.arange(-1, kernels.MAX_CUBOID_HEIGHT + 1, device=device)
    z = (levels.clamp(min=0).float() * params.cell).view(-1, 1, 1, 1, 1)
    heights = observation.drop_heights(Maps(z, (levels >= 0).view(z.shape)), params)
    return {
        "cuboid": catalogue["cuboid"].contiguous(),
        "volume": catalogue["volume"],
        "orientation_mask": catalogue["orientation_mask"],
        "item_features": of_item,
        "remaining": of_left[:, _REMAINING].contiguous(),
        "orientation_features": turned.squeeze(1),
        "drop_height": heights.flatten(),
    }


def _item_features(
    item_id: Int[Tensor, "M 1"],
    left: Int[Tensor, " M"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Float[Tensor, "M F"]:
    """What is observed of items when so many are left."""
    queue = torch.empty(len(left), params.num_items)
    state = {"num_items": left, "items_packed": torch.zeros_like(left), "queue": queue}
    return observation.item_features(state, item_id, item_id >= 0, catalogue, params).squeeze(1)


def _named(values: Tensor) -> dict[str, Tensor]:
    """The metrics by name."""
    return dict(zip(metrics.NAMES, values.unbind(), strict=True))
