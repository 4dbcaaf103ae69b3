"""The engine ``rules``: the functions of the core one by one, for any task on any device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core import feasibility, metrics, observation, orientation, transition
from packing_env.core.actions import Key, get_mode
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import Placement, visible_items
from packing_env.engine.base import FLAGS, Observations, Step, Task
from packing_env.types import State


@dataclass(frozen=True)
class View:
    """Derived quantities of a state, computed once and carried to the next decision.

    Attributes:
        state: The state.
        versions: How often each of its tensors had been changed in place.
        maps: All placements, if a decision needs them.
        metrics: ``core.metrics.measure`` of it.
    """

    state: State
    versions: tuple[int, ...]
    maps: Maps | None
    metrics: dict[str, Tensor]

    def is_of(self, state: State) -> bool:
        """Return whether the given state is the viewed one, tensor by tensor, unchanged since."""
        return is_unchanged(self.state, self.versions, state)


class RulesEngine:
    """Calls the core rule by rule; every state is new, nothing is changed in place."""

    name: ClassVar[str] = "rules"
    in_place: ClassVar[bool] = False

    @classmethod
    def refusal(cls, task: Task) -> str:
        """Return why this engine cannot carry out the task here: it can carry out every one."""
        return ""

    def __init__(self, task: Task) -> None:
        self.task, self.params = task, task.params
        self.catalogue = feasibility.with_footprints(task.catalogue, task.params)
        self.mode = get_mode(task.params.action_mode)(task.params, task.catalogue)
        self.legal_on_floor = feasibility.legal_on_floor(task.catalogue, task.params)
        self._fingerprint = task.fingerprint()
        projects = task.params.illegal_action == "project"
        reads_maps = self.mode.decodes_with_maps or projects
        self._carries_maps = reads_maps and task.params.geometry == "maps"
        self._view: View | None = None

    # ------------------------------------------------------------------ the contract of an engine

    def begin(
        self, seed: Int[Tensor, " B"], row: Int[Tensor, " B"], episode: Int[Tensor, " B"]
    ) -> tuple[State, Observations]:
        """Return the start of the given episode of each row's stream, and its observations."""
        start = self._start(seed, row, episode)
        return start[0], self._observations(*start)

    def observe(self, state: State) -> tuple[State, Observations]:
        """Return a state of any origin with this task's candidate list, and its observations."""
        maps = feasibility.maps_in(state, self.catalogue, self.params)
        found = self.mode.outlook(state, maps).entries
        state = state | {key: found[key] for key in ("candidate", "candidate_z")}
        state |= self._legal_now(state, maps)
        return state, self._observations(state, maps, metrics.measure(state, self.params))

    def advance(self, state: State, actions: Mapping[Key, Tensor], *, reset: bool) -> Step:
        """Carry out one decision per row; with ``reset`` finished rows start their next episode."""
        view = self._viewed(state)
        placement = self._placement(actions, view)
        task = (self.catalogue, self.params)
        after, outcome = transition.decide(state, placement, *task, view.metrics)
        maps = feasibility.maps_in(after, self.catalogue, self.params)
        outlook = self.mode.outlook(after, maps)
        after |= outlook.entries
        after = transition.finish(state, after, outcome.legal, outlook.playable, self.params)
        after |= self._legal_now(after, maps)
        # the candidate list may have overflowed since the decision was measured
        measured = outcome.metrics | {"overflow": after["overflow"].double()}
        report = self.mode.report(outcome.legal & ~transition.is_done(state), placement)
        observations = self._observations(after, maps, measured, report)
        start, maps = None, maps if self._carries_maps else None  # no maps of two states at once
        if reset:
            rows = transition.is_done(after)
            begun = self._start(after["seed"], after["row"], after["episode"] + rows)
            start = _mix(rows, self._observations(*begun), observations)
            after = transition.select(rows, begun[0], after)
            measured = transition.select(rows, begun[2], measured)
            maps = _mixed_maps(rows, begun[1], maps)
        if not is_recorded(after):
            self._view = View(
                after, versions_of(after), maps if self._carries_maps else None, measured
            )
        return Step(after, outcome.reward, observations, start)

    def reset(
        self, rows: Bool[Tensor, " B"], state: State, observations: Observations
    ) -> tuple[State, Observations]:
        """Start the next episode in some rows; the others keep their observations."""
        fresh, begun = self.begin(state["seed"], state["row"], state["episode"] + rows)
        return transition.select(rows, fresh, state), _mix(rows, begun, observations)

    # ------------------------------------------------------------------ the view of a state

    def _viewed(self, state: State) -> View:
        """Return the view carried from the step before if it is of this state, else a new one."""
        if not is_recorded(state):
            view, self._view = self._view, None
            if view is not None and view.is_of(state):
                return view
        task = (self.catalogue, self.params)
        maps = feasibility.maps_in(state, *task) if self._carries_maps else None
        return View(state, (), maps, metrics.measure(state, self.params))

    # ------------------------------------------------------------------ the rules, called

    def _placement(self, actions: Mapping[Key, Tensor], view: View) -> Placement:
        """Decode the action; with ``illegal_action="project"`` move it to a legal placement.

        Whether a placement is one of the surest, the state tells.
        """
        state = view.state
        placement = self.mode.decode(actions, state, lambda: view.maps)
        if self.params.illegal_action != "project":
            if not self.params.surest:
                return placement
            shape = (self.params.num_visible, -1, *self.params.lattice)
            sure = orientation.is_legal(placement, state["legal"].unflatten(1, shape), self.params)
            return replace(placement, valid=sure)
        legal = None if view.maps is None else view.maps.legal
        nearest = self.mode.project(placement, state, view.maps)
        return orientation.project(placement, nearest, legal, self.params)

    def _legal_now(self, state: State, maps: Maps | None) -> dict[str, Tensor]:
        """Return the entry of the state that tells which placements are surest, if any are."""
        if not self.params.surest or maps is None:
            return {}
        return {"legal": maps.legal.flatten(1) | state["terminated"][:, None]}

    def _start(
        self, seed: Tensor, row: Tensor, episode: Tensor
    ) -> tuple[State, Maps | None, dict[str, Tensor]]:
        """Return the given episode of each row's stream at its start, its maps and metrics."""
        pool = self.task.instances
        if self.task.draw == "sequential":
            index = (row + episode * len(row)) % len(pool)
        else:
            index = transition.draw_instance(seed, row, episode, len(pool))
        items = (pool.item_id[index], pool.num_items[index])
        state = transition.begin(*items, seed, row, episode, self.params)
        if self.params.constraints:
            maps = feasibility.maps_in(state, self.catalogue, self.params)
        else:
            visible = (*visible_items(state, self.params.num_visible), self.legal_on_floor)
            maps = feasibility.empty_container_maps(*visible, self.catalogue, self.params)
        state |= self.mode.outlook(state, maps).entries | self._legal_now(state, maps)
        state["task"] = torch.full_like(seed, self._fingerprint)
        if self.params.constraints:
            return state, maps, metrics.measure(state, self.params)
        return state, maps, metrics.measure_empty(state)

    def _observations(
        self,
        state: State,
        maps: Maps | None,
        measured: dict[str, Tensor],
        report: dict[Key, Tensor] | None = None,
    ) -> Observations:
        """Return the observations of a state; ``report`` is on the decision before."""
        entries = observation.observe(state, maps, self.catalogue, self.params)
        entries |= self.mode.observe(state, maps)
        finished, over = transition.is_done(state), state["terminated"][:, None]
        names = [f"reward/{term}" for term in self.params.reward]
        terms = dict(zip(names, state["reward_sum"].unbind(1), strict=True))
        return Observations(
            entries,
            {k: mask | over for k, mask in self.mode.masks(state, maps).items()},
            {"done": finished} | {name: state[name].clone() for name in FLAGS[1:]},
            {name: value.float()[:, None] for name, value in (measured | terms).items()},
            self.mode.report(torch.zeros_like(finished), None) if report is None else report,
        )


def versions_of(state: State) -> tuple[int, ...]:
    """Return how often each tensor of a state has been changed in place by torch."""
    return tuple(value._version for value in state.values())


def is_unchanged(before: State, versions: tuple[int, ...], state: State) -> bool:
    """Return whether a state has the tensors of ``before``, unchanged since those versions."""
    return len(state) == len(before) and all(
        state.get(key) is value and value._version == version
        for (key, value), version in zip(before.items(), versions, strict=True)
    )


def is_recorded(state: State) -> bool:
    """Return whether operations are traced or captured, or their tensors count no changes.

    A recording that is played again must read the state alone: what Python carries from step to
    step would stay what it was.
    """
    if torch.compiler.is_compiling() or any(value.is_inference() for value in state.values()):
        return True
    if torch._C._len_torch_dispatch_stack():
        return True
    return state["step"].is_cuda and torch.cuda.is_current_stream_capturing()


def _mix(rows: Bool[Tensor, " B"], chosen: Observations, other: Observations) -> Observations:
    """Return ``chosen`` in the given rows, ``other`` elsewhere."""
    pairs = zip(chosen.parts(), other.parts(), strict=True)
    return Observations(*(transition.select(rows, new, old) for new, old in pairs))


def _mixed_maps(rows: Bool[Tensor, " B"], chosen: Maps | None, other: Maps | None) -> Maps | None:
    """Return ``chosen`` in the given rows, ``other`` elsewhere."""
    if chosen is None or other is None:
        return None
    here = rows.view(-1, 1, 1, 1, 1)
    return Maps(torch.where(here, chosen.z, other.z), torch.where(here, chosen.legal, other.legal))
