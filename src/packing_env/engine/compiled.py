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
from packing_env.core.feasibility import Maps, maps_in
from packing_env.core.orientation import num_orientations
from packing_env.engine.base import FLAGS, Observations, Step, Task
from packing_env.engine.offers import OFFERS, Found, Offered, is_offered
from packing_env.engine.rules import RulesEngine, is_recorded, is_unchanged, versions_of
from packing_env.types import DEFAULT_OBSERVATIONS, Catalogue, PackingParams, State

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
        or not is_offered(params)
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
        none = catalogue["volume"].new_empty(0)
        levels = _observed_levels(catalogue, self.params) if self.on_cells else none
        self._items = {**catalogue, **tables, "drop_height": levels, "on_floor": on_floor}
        self.task = kernels.StepTask(
            self._items,
            (task.instances.item_id, task.instances.num_items),
            _counts(task),
            _lengths(self.params),
            on_cells=self.on_cells,
        )
        self._known: kernels.DropHeights | None = None
        self._spare: kernels.DropHeights | None = None
        self._below: Tensor | None = None
        self._sizes = kernels.surface_sizes(catalogue["bottom"])  # at most those of the windows

    def advance(
        self,
        state: State,
        action: Int[Tensor, "B heads"],
        observations: Mapping[str, Tensor],
        start: Mapping[str, Tensor],
        outcome: Mapping[str, Tensor],
    ) -> Float[Tensor, "B P Xs Ys"] | None:
        """Advance the state, but for ``reward_sum``, and fill the rest.

        Returns the rest heights of the visible items, memory of this object; on whole cells None.

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
            return None
        # of the rules, only one that looks at contact needs surfaces
        needed = self.params.stability != "none"
        ahead = self.ahead(len(action), action.device, surfaces=needed)
        under = metrics.sum_of_heights(state["heightmap"])
        kernels.decide_heights(self.task, state, action, ahead, under, outcome)
        judged = self._judge(self._drop_height(state, ahead["plane"]), state, ahead)
        under = metrics.sum_of_heights(state["heightmap"])
        kernels.observe_heights(self.task, state, judged, under, *filled)
        return judged[0]

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
        """Return rest heights; with several visible items from those before the decision.

        These alternate between two pieces of memory.
        """
        heightmap, visible = state["heightmap"], self.params.num_visible
        bottom, stride = self._items["bottom"], self.params.grid_step
        keeps = visible > 1 and not is_recorded(state)
        if not keeps or not kernels.updates_drop_height(heightmap.device.type):
            surfaces, size = bottom.flatten(0, 1), self._sizes.flatten(0, 1)
            return kernels.drop_height(heightmap, surfaces, stride, which=plane, size=size)
        orientations = plane.shape[1] // visible
        item_id = plane[:, ::orientations].div(orientations, rounding_mode="floor")  # -1 stays -1
        spare, self._spare = self._spare, self._known
        if spare is None or self._spare is None or not _fits(spare.heightmap, heightmap):
            heights, out = heightmap.clone(), None
        else:
            heights, out = spare.heightmap.copy_(heightmap), spare.z
        given = (heights, item_id, bottom, stride, self._sizes, out)
        self._known = kernels.update_drop_height(self._known, *given)
        return self._known.z.flatten(1, 2)

    def _judge(
        self, z: Float[Tensor, "B P Xs Ys"], state: State, ahead: Mapping[str, Tensor]
    ) -> tuple[Float[Tensor, "B P Xs Ys"], Bool[Tensor, "B P Xs Ys"]]:
        """Return rest heights, and which are below the lid and stable."""
        params = self.params
        if params.stability == "none":
            below = self._below
            if is_recorded(state) or below is None or below.shape != z.shape:
                below = torch.empty(z.shape, dtype=torch.bool, device=z.device)
            self._below = None if is_recorded(state) else below
            return z, kernels.below_lid(z, ahead["peak"], params.lid, below)
        kept = params.num_visible > 1  # by the next step's update
        contact = stability.Contact(
            state["heightmap"],
            ahead["bottom"],
            kernels.close_lid(z.clone() if kept else z, ahead["peak"], params.lid),
            ahead["com"],
            params.tolerance,
            params.grid_step,
            ahead["size"],
        )
        return contact.z, stability.judge_maps(params.stability, contact)


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
        given = (self.mode, task.params, task.catalogue)
        self.offer = OFFERS[task.params.action_mode](*given, on_cells=self.operations.on_cells)
        shapes = _shapes(task.catalogue, task.params)
        requested = [name for name in DEFAULT_OBSERVATIONS if name in task.params.observation]
        self._requested = observation.entries(requested)
        self._handed_out = {*self._requested, *self.offer.hands_out, *FLAGS}
        self._shapes = {
            name: shape
            for name, shape in shapes.items()
            if name in self._handed_out or name in self.offer.reads
        }
        self._empty = {name: torch.empty(0, dtype=dtype) for name, (dtype, _) in shapes.items()}
        self._empty["metrics"] = torch.empty(0, 0)
        self._metrics = (*metrics.NAMES, *(f"reward/{term}" for term in task.params.reward))
        self._scratch: dict[tuple[str, str], Tensor] = {}
        self._legality: tuple[State, tuple[int, ...], Tensor] | None = None

    def advance(self, state: State, actions: Mapping[Key, Tensor], *, reset: bool) -> Step:
        """Carry out one decision per row, in the given tensors where they allow it."""
        state = _writable(state)
        batch, device = len(state["step"]), state["step"].device
        recorded = is_recorded(state)
        action = self.offer.decode(actions, state, lambda: self._legal(state))
        after = self._buffers(batch, device, "" if recorded else "after")
        outcome = new_outcome(batch, device)
        start = self._buffers(batch, device, "" if recorded else "start") if reset else self._empty
        z = self.operations.advance(state, action, after, start, outcome)
        before, since = (_Metrics(outcome[when]) for when in ("before", "after"))
        terms = rewards.weighted_terms(self.params.reward, before, since, outcome["legal"])
        terms.masked_fill_(outcome["live"].logical_not()[:, None], 0.0)
        sums, count = state["reward_sum"].add_(terms), len(metrics.NAMES)
        after["metrics"].narrow(0, count, terms.shape[1]).copy_(sums.T)
        if reset:
            sums.masked_fill_(after["done"][:, None], 0.0)
            start["metrics"].narrow(0, count, terms.shape[1]).copy_(sums.T)
        shown = self.offer.show(Found(state, action, outcome, after, start, z))
        if self.offer.reads_legality and not recorded:
            self._legality = (state, versions_of(state), (start if reset else after)["mask"])
        following = self._named(start, shown[1]) if reset else None
        return Step(state, terms.sum(-1).float(), self._named(after, shown[0]), following)

    def reset(
        self, rows: Bool[Tensor, " B"], state: State, observations: Observations
    ) -> tuple[State, Observations]:
        """Start the next episode in some rows, in the given state's tensors if the mode allows."""
        if "mask" not in self.offer.hands_out:
            return super().reset(rows, state, observations)
        state, observations = _writable(state), observations.clone()
        filled = {**self._empty, **observations.entries, **observations.flags}
        filled["mask"] = observations.masks["action_mask"]
        state["reward_sum"].masked_fill_(rows[:, None], 0.0)
        measured = list(observations.metrics.values())
        kernels.reset_rows(self.operations.task, state, rows, filled, measured)
        return state, observations

    def _legal(self, state: State) -> Bool[Tensor, "B L R Xs Ys"]:
        """Return the legal placements of a state, those of the step before if they are its."""
        known, carried = None, self._legality
        if carried is not None and not is_recorded(state):
            known = carried[2] if is_unchanged(*carried[:2], state) else None
        if known is None:
            maps = maps_in(state, self.catalogue, self.params)
            assert maps is not None  # geometry "maps" alone is compiled
            return maps.legal.contiguous()
        return known.view(len(known), self.params.num_visible, -1, *self.params.lattice)

    def _buffers(self, batch: int, device: torch.device, use: str = "") -> dict[str, Tensor]:
        """Return uninitialised observations and metrics.

        With a ``use``, those that are not handed out are the same memory in every step.
        """
        buffers = dict(self._empty)
        for name, (dtype, shape) in self._shapes.items():
            if not use or name in self._handed_out:
                buffers[name] = torch.empty([batch, *shape], dtype=dtype, device=device)
                continue
            kept = self._scratch.get((use, name))
            if kept is None or len(kept) != batch or kept.device != device:
                kept = torch.empty([batch, *shape], dtype=dtype, device=device)
                self._scratch[use, name] = kept
            buffers[name] = kept
        buffers["metrics"] = torch.empty(len(self._metrics), batch, device=device)
        return buffers

    def _named(self, buffers: dict[str, Tensor], offered: Offered) -> Observations:
        """Return filled buffers as the observations that they hold."""
        values = buffers["metrics"][..., None].unbind()
        return Observations(
            {name: buffers[name] for name in self._requested} | offered.entries,
            offered.masks,
            {name: buffers[name] for name in FLAGS},
            dict(zip(self._metrics, values, strict=True)),
            offered.report,
        )


def _fits(kept: Tensor, values: Tensor) -> bool:
    """Return whether values can be copied into kept memory."""
    writable = torch.is_inference_mode_enabled() or not kept.is_inference()
    return writable and kept.shape == values.shape


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
        "ends_mask": int("mask" in OFFERS[params.action_mode].hands_out),
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
        "heights": (torch.float32, list(params.grid)),
        **dict.fromkeys(FLAGS, (torch.bool, list[int]())),
    }
