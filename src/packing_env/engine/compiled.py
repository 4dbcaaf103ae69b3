"""The engine ``compiled``: whole steps in place, by compiled operations of a CPU.

It has one step on cuboids of whole cells and one on heightmaps, with the bits of the rules.
Cuboids take a step in one pass. For other items the kernels and rules that find all placements
stand between two passes, as in :mod:`feasibility`. Rewards are those of :mod:`rewards` in every
step, so that a new term needs nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import metrics, observation, rewards, stability
from packing_env.core.actions import Key
from packing_env.core.cuboids import cells
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import num_orientations
from packing_env.engine.base import FLAGS, Observations, Step, Task
from packing_env.engine.rules import RulesEngine
from packing_env.types import DEFAULT_OBSERVATIONS, Catalogue, PackingParams, State

MODES = ("placement", "multi_head")
"""Action modes that look at the legality of all placements, and at nothing else."""

ON_CELLS = ("heightmap", "item_id", "item_features", "orientation_features", "drop_height")
"""Observations that the step on whole cells knows."""

_INDEX = {name: index for index, name in enumerate(metrics.NAMES)}


def supported_ground(catalogue: Catalogue, params: PackingParams) -> str | None:
    """Return which compiled step knows the task: ``"cells"``, ``"heights"`` or None.

    Where it runs, the backend decides as well.
    """
    if (
        params.geometry != "maps"
        or params.constraints
        or params.action_mode not in MODES
        or params.illegal_action == "project"
        or params.candidate_range != "container"
        or not {params.stability, params.stability_metric} <= set(kernels.CUBOID_RULES)
    ):
        return None
    observed = set(params.observation)
    if not catalogue["cuboid"].shape[-1]:
        return "heights" if observed <= set(DEFAULT_OBSERVATIONS) else None
    on_cells = (
        cells.applies(catalogue, params)
        and not params.keeps_boxes
        and catalogue["bottom"].shape[-1] <= kernels.MAX_CUBOID_SIDE
        and observed <= set(ON_CELLS)
    )
    return "cells" if on_cells else None


class Operations:
    """The compiled operations on the states of one task.

    Args:
        task: The task, with a :func:`supported_ground`.
        on_floor: ``feasibility.legal_on_floor`` of its items.
    """

    def __init__(self, task: Task, on_floor: Bool[Tensor, "M R"]) -> None:
        self.params, catalogue = task.params, task.catalogue
        self.on_cells = supported_ground(catalogue, self.params) == "cells"
        tables = observation.item_tables(catalogue, self.params)
        tables["orientation_features"] = tables["orientation_features"].flatten(1)
        levels = _observed_levels(catalogue, self.params) if self.on_cells else torch.empty(0)
        self._items = {**catalogue, **tables, "drop_height": levels, "on_floor": on_floor}
        self.task = kernels.StepTask(
            self._items,
            (task.instances.item_id, task.instances.num_items),
            _counts(task),
            _lengths(self.params),
            on_cells=self.on_cells,
        )
        self._known: kernels.DropHeights | None = None
        self._sizes = kernels.surface_sizes(catalogue["bottom"])  # at most those of the windows

    def advance(
        self,
        state: State,
        action: Int[Tensor, "B heads"],
        observations: Mapping[str, Tensor],
        start: Mapping[str, Tensor],
        outcome: Mapping[str, Tensor],
    ) -> None:
        """Advance the state, but for ``reward_sum``, and fill the rest.

        Args:
            state: The state.
            action: An index of all placements of the lattice, or one of item, orientation, x, y.
            observations: See `step.entries.Observations`.
            start: The same after resets; empty if finished rows are not reset.
            outcome: See :func:`new_outcome`.
        """
        filled = (observations, start, outcome)
        if self.on_cells:
            kernels.advance_cells(self.task, state, action, *filled)
            return
        # of the rules, only one that looks at contact needs surfaces
        needed = self.params.stability != "none"
        ahead = self.ahead(len(action), action.device, surfaces=needed)
        under = metrics.sum_of_heights(state["heightmap"])
        kernels.decide_heights(self.task, state, action, ahead, under, outcome)
        judged = self._judge(self._drop_height(state, ahead["plane"]), state, ahead)
        under = metrics.sum_of_heights(state["heightmap"])
        kernels.observe_heights(self.task, state, judged, under, *filled)

    def ahead(
        self, batch: int, device: torch.device, *, surfaces: bool = True
    ) -> dict[str, Tensor]:
        """Return buffers for the orientations of the visible items: see `step.entries.Ahead`.

        Args:
            batch: Rows.
            device: Where.
            surfaces: Whether lower surfaces are listed, most of the memory; else they are empty.
        """
        buffers, planes = {}, self.params.num_visible * self._items["peak"].shape[1]
        for name in ("bottom", "peak", "com", "size"):
            table, rows = self._items[name], batch if surfaces or name != "bottom" else 0
            shape = [rows, planes, *table.shape[2:]]
            buffers[name] = torch.empty(shape, dtype=table.dtype, device=device)
        buffers["plane"] = torch.empty([batch, planes], dtype=torch.int64, device=device)
        return buffers

    def _drop_height(self, state: State, plane: Int[Tensor, "B P"]) -> Float[Tensor, "B P Xs Ys"]:
        """Return rest heights; with several visible items from those before the decision."""
        heightmap, visible = state["heightmap"], self.params.num_visible
        bottom, stride = self._items["bottom"], self.params.grid_step
        if visible == 1 or not kernels.updates_drop_height(heightmap.device.type):
            surfaces, size = bottom.flatten(0, 1), self._sizes.flatten(0, 1)
            return kernels.drop_height(heightmap, surfaces, stride, which=plane, size=size)
        orientations = plane.shape[1] // visible
        item_id = plane[:, ::orientations].div(orientations, rounding_mode="floor")  # -1 stays -1
        self._known = kernels.update_drop_height(
            self._known, heightmap.clone(), item_id, bottom, stride, self._sizes
        )
        return self._known.z.flatten(1, 2).clone()

    def _judge(
        self, z: Float[Tensor, "B P Xs Ys"], state: State, ahead: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "B P Xs Ys"], Bool[Tensor, "B P Xs Ys"]]:
        """Return rest heights below the lid, else +inf, in place, and which are stable."""
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


class CompiledEngine(RulesEngine):
    """Carries out whole steps in place; begins and observes episodes as the rules do."""

    name: ClassVar[str] = "compiled"
    in_place: ClassVar[bool] = True

    @classmethod
    def refusal(cls, task: Task) -> str:
        """Return why this engine cannot carry out the task here; "" if it can."""
        if not kernels.is_compiled_for(task.device.type):
            return f"it needs a CPU and the numba backend, not {task.device.type}"
        if supported_ground(task.catalogue, task.params) is None:
            return "it does not know this combination of parameters and items"
        return ""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.operations = Operations(task, self.legal_on_floor)
        shapes = _shapes(task.catalogue, task.params)
        requested = [name for name in DEFAULT_OBSERVATIONS if name in task.params.observation]
        self._requested = observation.entries(requested)
        self._shapes = {name: shapes[name] for name in (*self._requested, "mask", *FLAGS)}
        self._empty = {name: torch.empty(0, dtype=dtype) for name, (dtype, _) in shapes.items()}
        self._empty["metrics"] = torch.empty(0, 0)
        self._metrics = (*metrics.NAMES, *(f"reward/{term}" for term in task.params.reward))

    def advance(self, state: State, actions: Mapping[Key, Tensor], *, reset: bool) -> Step:
        """Carry out one decision per row, in the given tensors where they allow it."""
        state, action = _writable(state), actions["action"]
        batch, device = len(action), action.device
        after, outcome = self._buffers(batch, device), new_outcome(batch, device)
        start = self._buffers(batch, device) if reset else self._empty
        action = action.view(batch, -1).contiguous()
        self.operations.advance(state, action, after, start, outcome)
        before, since = (_Metrics(outcome[when]) for when in ("before", "after"))
        terms = rewards.weighted_terms(self.params.reward, before, since, outcome["legal"])
        terms.masked_fill_(outcome["live"].logical_not()[:, None], 0.0)
        sums, count = state["reward_sum"].add_(terms), len(metrics.NAMES)
        after["metrics"].narrow(0, count, terms.shape[1]).copy_(sums.T)
        if reset:
            sums.masked_fill_(after["done"][:, None], 0.0)
            start["metrics"].narrow(0, count, terms.shape[1]).copy_(sums.T)
        following = self._named(start) if reset else None
        return Step(state, terms.sum(-1).float(), self._named(after), following)

    def reset(
        self, rows: Bool[Tensor, " B"], state: State, observations: Observations
    ) -> tuple[State, Observations]:
        """Start the next episode in some rows, in the given state's tensors."""
        state, observations = _writable(state), observations.clone()
        filled = {**self._empty, **observations.entries, **observations.flags}
        filled["mask"] = observations.masks["action_mask"]
        state["reward_sum"].masked_fill_(rows[:, None], 0.0)
        measured = list(observations.metrics.values())
        kernels.reset_rows(self.operations.task, state, rows, filled, measured)
        return state, observations

    def _buffers(self, batch: int, device: torch.device) -> dict[str, Tensor]:
        """Return uninitialised observations and metrics."""
        buffers = dict(self._empty)
        for name, (dtype, shape) in self._shapes.items():
            buffers[name] = torch.empty([batch, *shape], dtype=dtype, device=device)
        buffers["metrics"] = torch.empty(len(self._metrics), batch, device=device)
        return buffers

    def _named(self, buffers: dict[str, Tensor]) -> Observations:
        """Return filled buffers as the observations that they hold."""
        values = buffers["metrics"][..., None].unbind()
        return Observations(
            {name: buffers[name] for name in self._requested},
            {"action_mask": buffers["mask"]},
            {name: buffers[name] for name in FLAGS},
            dict(zip(self._metrics, values, strict=True)),
        )


def _writable(state: State) -> State:
    """Return the state, copied if it was made in inference mode and that mode has been left."""
    if torch.compiler.is_compiling() or torch.is_inference_mode_enabled():
        return state
    if any(value.is_inference() for value in state.values()):
        return {key: value.clone() for key, value in state.items()}
    return state


class _Metrics(Mapping[str, Tensor]):
    """Metrics by name, which become tensors only where they are read."""

    def __init__(self, values: Float[Tensor, "metrics B"]) -> None:
        self._values = values

    def __getitem__(self, name: str) -> Tensor:
        return self._values[_INDEX[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(_INDEX)

    def __len__(self) -> int:
        return len(_INDEX)


def new_outcome(batch: int, device: torch.device) -> dict[str, Tensor]:
    """Return buffers for the outcome of a decision: see `step.entries.Outcome`."""
    legal, live = torch.empty(2, batch, dtype=torch.bool, device=device).unbind()
    measured = torch.empty(2, len(metrics.NAMES), batch, dtype=torch.float64, device=device)
    before, after = measured.unbind()
    return {"legal": legal, "live": live, "before": before, "after": after}


def _counts(task: Task) -> dict[str, int]:
    """Return the whole numbers of a task: see `step.entries.Counts`."""
    params, catalogue = task.params, task.catalogue
    across, along = catalogue["bottom"].shape[2:]
    return {
        "height": params.height_units,
        "across": across,
        "along": along,
        "visible": params.num_visible,
        "rule": kernels.CUBOID_RULES.index(params.stability),
        "metric_rule": kernels.CUBOID_RULES.index(params.stability_metric),
        "stride": params.grid_step,
        "step_limit": params.step_limit,
        "illegal_ends": int(params.illegal_action == "terminate"),
        "remaining": observation.ITEM_FEATURES.index("remaining"),
        "sequential": int(task.draw == "sequential"),
        "metrics": len(metrics.NAMES) + len(params.reward),
    }


def _lengths(params: PackingParams) -> dict[str, float]:
    """Return the lengths and areas of a task: see `step.entries.Lengths`."""
    return {
        "cell": params.cell,
        "cell_area": params.cell**2,
        "base": params.container[0] * params.container[1],
        "height": params.height,
        "lid": params.lid,
        "tolerance": params.tolerance,
    }


def _observed_levels(catalogue: Catalogue, params: PackingParams) -> Float[Tensor, " levels"]:
    """Return the observation of each rest height in whole cells, plus 1; first of illegal ones."""
    levels = torch.arange(-1, kernels.MAX_CUBOID_HEIGHT + 1, device=catalogue["volume"].device)
    z = (levels.clamp(min=0).float() * params.cell).view(-1, 1, 1, 1, 1)
    return observation.drop_heights(Maps(z, (levels >= 0).view(z.shape)), params).flatten()


def _shapes(
    catalogue: Catalogue, params: PackingParams
) -> dict[str, tuple[torch.dtype, list[int]]]:
    """Return type and shape, without the batch, of every observation, mask and flag."""
    orientations, slots = num_orientations(catalogue), params.num_slots
    lattice = [params.num_visible, orientations, *params.lattice]
    turned = [slots, orientations, len(observation.ORIENTATION_FEATURES)]
    surface = [slots, orientations, *catalogue["bottom"].shape[2:]]
    return {
        "heightmap": (torch.float32, list(params.grid)),
        "item_id": (torch.int64, [slots]),
        "item_features": (torch.float32, [slots, len(observation.ITEM_FEATURES)]),
        "orientation_features": (torch.float32, turned),
        "top": (torch.float32, surface),
        "bottom": (torch.float32, surface),
        "drop_height": (torch.float32, lattice),
        "mask": (torch.bool, [math.prod(lattice)]),
        **dict.fromkeys(FLAGS, (torch.bool, list[int]())),
    }
