"""The engine ``rules``: calls the core's functions one by one, for any task on any device.

:meth:`RulesEngine.advance` is the loop of a step (:mod:`packing_env.engine.base` shows its phases).
The other engines derive from this one. An engine carries out the steps of one task. It works on
rows ``B`` and plain mappings; `packing_env.envs` handles batch shapes and TensorDicts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from packing_env.core import feasibility, metrics, observation, orientation, transition
from packing_env.core.actions import Key, get_mode
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import visible_items
from packing_env.engine.base import FLAGS, Observations, Step, Task
from packing_env.types import State


class RulesEngine:
    """Engine that calls the core rule by rule; states are new, nothing changes in place.

    Attributes:
        name: Name in :data:`packing_env.engine.ENGINES`.
        mode: The task's action mode.
        ground: Name of the representation from which placements are computed, for the log.
        in_place: Whether ``advance`` changes the tensors of the given state.
    """

    name: ClassVar[str] = "rules"
    in_place: ClassVar[bool] = False

    @classmethod
    def refusal(cls, task: Task) -> str:
        """Return why this engine does not support the task on this device; "" if it does."""
        return ""

    def __init__(self, task: Task) -> None:
        self.task, self.params = task, task.params
        geometry = feasibility.GROUNDS[task.params.geometry]
        self.catalogue = geometry.prepare(task.catalogue, task.params)
        self.mode = get_mode(task.params.action_mode)(task.params, self.catalogue)
        self.legal_on_floor = feasibility.legal_on_floor(task.catalogue, task.params)
        self.ground = geometry.description
        self._fingerprint = task.fingerprint()

    # ------------------------------------------------------------------ the contract of an engine

    def begin(
        self, seed: Int[Tensor, " B"], row: Int[Tensor, " B"], episode: Int[Tensor, " B"]
    ) -> tuple[State, Observations]:
        """Return the start states of the given episodes of the rows, and the observations."""
        state, maps, measured = self._start(seed, row, episode)
        return state, self._observations(state, maps, measured)

    def observe(self, state: State) -> tuple[State, Observations]:
        """Return a given state with its legality computed again, and its observations."""
        maps = feasibility.maps_in(state, self.catalogue, self.params)
        entries = self.mode.outlook(state, maps).entries
        state = state | {key: entries[key] for key in LEGALITY}
        state = _all_legal_where_terminated(state)
        return state, self._observations(state, maps, metrics.measure(state, self.params))

    def advance(self, state: State, actions: Mapping[Key, Tensor], *, reset: bool) -> Step:
        """Carry out one decision per row.

        Args:
            state: The state.
            actions: ``[B, ...]`` entries of the agent by key.
            reset: Whether finished rows then start their next episode.
        """
        # 1. Decode: the agent's entries become a placement.
        placement = self.mode.decode(actions, state)
        if self.params.illegal_action == "project":
            legal = self.mode.is_legal(placement, state)
            nearest = self.mode.project(placement, state)
            placement = orientation.project(placement, nearest, kept=legal)

        # 2. Look up: an illegal placement leaves the row unchanged.
        legal = self.mode.is_legal(placement, state)

        # 3. Commit the placement. 4. Score it: metrics and reward.
        after, outcome = transition.decide(state, placement, legal, self.catalogue, self.params)

        # 6. Legality of every next placement; if nothing is legal, the episode ends.
        maps = feasibility.maps_in(after, self.catalogue, self.params)
        outlook = self.mode.outlook(after, maps)
        after |= outlook.entries
        after = transition.finish(state, after, legal, outlook.playable, self.params)
        after = _all_legal_where_terminated(after)
        # The list of candidates was made after the metrics were computed, and may have overflowed.
        measured = outcome.metrics | {"overflow": after["overflow"].double()}
        report = self.mode.report(legal & ~transition.is_done(state), placement)
        observations = self._observations(after, maps, measured, report)
        if not reset:
            return Step(after, outcome.reward, observations, None)

        # 5. Reset: finished rows start again, with the legality of their start state.
        del maps  # free the maps of this state before those of the next state are computed
        after, start = self.reset(transition.is_done(after), after, observations)
        return Step(after, outcome.reward, observations, start)

    def reset(
        self, rows: Bool[Tensor, " B"], state: State, observations: Observations
    ) -> tuple[State, Observations]:
        """Start the next episode in some rows; all other rows keep the given observations."""
        fresh, begun = self.begin(state["seed"], state["row"], state["episode"] + rows)
        return transition.select(rows, fresh, state), _mix(rows, begun, observations)

    # ------------------------------------------------------------------ the rules, called

    def _start(
        self, seed: Tensor, row: Tensor, episode: Tensor
    ) -> tuple[State, Maps | None, dict[str, Tensor]]:
        """Return the start of the given episode of each row's stream, its maps and its metrics."""
        # 1. Choose the instance: the next one in order, or one drawn from the row's random stream.
        pool = self.task.instances
        if self.task.draw == "sequential":
            index = (row + episode * len(row)) % len(pool)
        else:
            index = transition.draw_instance(seed, row, episode, len(pool))
        state = transition.begin(
            pool.item_id[index], pool.num_items[index], seed, row, episode, self.params
        )
        # 2. Legality: if all places on an empty floor are alike, look it up by item.
        if not feasibility.even_floor(self.params):
            maps = feasibility.maps_in(state, self.catalogue, self.params)
        else:
            items, there = visible_items(state, self.params.num_visible)
            rules = feasibility.ground(self.catalogue, self.params)
            maps = rules.empty_maps(items, there, self.legal_on_floor)
        state |= self.mode.outlook(state, maps).entries
        state["task"] = torch.full_like(seed, self._fingerprint)
        return state, maps, metrics.measure(state, self.params)

    def _observations(
        self,
        state: State,
        maps: Maps | None,
        measured: dict[str, Tensor],
        report: dict[Key, Tensor] | None = None,
    ) -> Observations:
        """Return the observations of a state; ``report`` is the report on the last decision."""
        # Entries and masks of the state; every action is legal if the episode has ended.
        entries = observation.observe(state, maps, self.catalogue, self.params)
        entries |= self.mode.observe(state, maps)
        finished, over = transition.is_done(state), state["terminated"][:, None]
        # The sums of the reward terms are metrics of the current episode.
        names = [f"reward/{term}" for term in self.params.reward]
        terms = dict(zip(names, state["reward_sum"].unbind(1), strict=True))
        return Observations(
            entries,
            {k: mask | over for k, mask in self.mode.masks(state, maps).items()},
            {"done": finished} | {name: state[name].clone() for name in FLAGS[1:]},
            {name: value.float()[:, None] for name, value in (measured | terms).items()},
            self.mode.report(torch.zeros_like(finished), None) if report is None else report,
        )


LEGALITY = ("legal", "candidate", "candidate_z")
"""Entries of the state that hold legality; they are computed from the other entries."""


def _all_legal_where_terminated(state: State) -> State:
    """Return the state with every placement legal in terminated rows, as the masks show it."""
    return state | {"legal": state["legal"] | state["terminated"][:, None]}


def is_recorded(state: State) -> bool:
    """Return whether operations are traced or captured, or tensors have no version counters.

    A recording is replayed, so it must not read values that Python keeps between steps.
    """
    if torch.compiler.is_compiling() or any(value.is_inference() for value in state.values()):
        return True
    if torch._C._len_torch_dispatch_stack():
        return True
    return state["step"].is_cuda and torch.cuda.is_current_stream_capturing()


def _mix(rows: Bool[Tensor, " B"], chosen: Observations, other: Observations) -> Observations:
    return Observations(
        entries=transition.select(rows, chosen.entries, other.entries),
        masks=transition.select(rows, chosen.masks, other.masks),
        flags=transition.select(rows, chosen.flags, other.flags),
        metrics=transition.select(rows, chosen.metrics, other.metrics),
        report=transition.select(rows, chosen.report, other.report),
    )
