"""Transitions of the state: start an episode, carry out one decision, end episodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import constraints, feasibility, metrics, rewards
from packing_env.core.cuboids import boxes, spaces
from packing_env.core.ground import Landing, Resting
from packing_env.core.orientation import Placement, take_from_queue, visible_items
from packing_env.core.random import below, philox
from packing_env.types import Catalogue, PackingParams, State


@dataclass(frozen=True)
class Outcome:
    """Result of one decision, per row.

    Attributes:
        reward: ``[B]`` float32, 0 in rows that had finished before.
        metrics: The metrics after the decision, ``[B]`` float64 each.
    """

    reward: Float[Tensor, " B"]
    metrics: dict[str, Tensor]


def draw_instance(
    seed: Int[Tensor, " B"], row: Int[Tensor, " B"], episode: Int[Tensor, " B"], pool_size: int
) -> Int[Tensor, " B"]:
    """Draw the instance of the pool that a row plays; it depends only on (seed, row, episode)."""
    return below(philox(seed, episode, row)[0], pool_size)


def begin(
    item_id: Int[Tensor, "B N"],
    num_items: Int[Tensor, " B"],
    seed: Int[Tensor, " B"],
    row: Int[Tensor, " B"],
    episode: Int[Tensor, " B"],
    params: PackingParams,
) -> State:
    """Return an empty container and a full queue for every row.

    ``queue [B, S]`` holds the positions of the visible items.
    """
    # Lists that a task does not need are empty, so that all tasks have the same keys.
    batch, capacity = item_id.shape
    device = item_id.device
    num_boxes = capacity if params.keeps_boxes else 0

    def zeros(dtype: torch.dtype, *shape: int) -> Tensor:
        return torch.zeros(batch, *shape, dtype=dtype, device=device)

    # The action mode fills in legality and the list of candidates.
    state = {
        "heightmap": zeros(torch.float32, *params.grid),
        "item_id": item_id,
        "num_items": num_items,
        "queue": torch.arange(params.num_slots, device=device).repeat(batch, 1),
        "packed": zeros(torch.bool, capacity),
        "items_packed": zeros(torch.int64),
        "placement": zeros(torch.int64, capacity, 4),
        "placement_z": zeros(torch.float32, capacity),
        "placement_support": zeros(torch.float32, capacity),
        "volume": zeros(torch.float64),
        "stable_items": zeros(torch.int64),
        "support_sum": zeros(torch.float64),
        "reward_sum": zeros(torch.float64, len(params.reward)),
        "illegal_actions": zeros(torch.int64),
        "overflow": zeros(torch.int64),
        "legal": zeros(torch.bool, 0),
        "boxes": zeros(torch.int32, num_boxes, 6),
        "spaces": spaces.initial(batch, params, device),
        "step": zeros(torch.int64),
        "terminated": zeros(torch.bool),
        "truncated": zeros(torch.bool),
        "seed": seed,
        "row": row,
        "episode": episode,
        **feasibility.GROUNDS[params.geometry].begin(batch, params, device),
    }
    return state | constraints.begin(batch, params, device) if params.constraints else state


def select(
    rows: Bool[Tensor, " B"], chosen: Mapping[Any, Tensor], other: Mapping[Any, Tensor]
) -> dict[Any, Tensor]:
    """Return ``chosen`` in the given rows, ``other`` elsewhere, without indexing or a host read."""
    return {
        key: torch.where(rows.view(-1, *(1,) * (value.dim() - 1)), value, other[key])
        for key, value in chosen.items()
    }


def _write_at(target: Tensor, index: Tensor, value: Tensor, written: Tensor) -> Tensor:
    """Set ``target[b, index[b]] = value[b]`` where ``written`` and if the index is in range."""
    # Compare with every position: an indexed write would need a valid index in every row.
    places = torch.arange(target.shape[1], device=target.device)
    here = (places == index[:, None]) & written[:, None]
    tail = (1,) * (target.dim() - 2)
    return torch.where(here.view(*here.shape, *tail), value[:, None], target)


def decide(
    state: State,
    placement: Placement,
    legal: Bool[Tensor, " B"],
    catalogue: Catalogue,
    params: PackingParams,
) -> tuple[State, Outcome]:
    """Carry out one placement per row where it is legal; finished rows are unchanged (reward 0).

    The next legal actions are not known yet; :func:`finish` sets ``terminated`` and ``truncated``
    later.
    """
    before = metrics.measure(state, params)
    live = ~is_done(state)
    carried = legal & live
    intended = legal if placement.projected is None else legal & ~placement.projected

    # 1. Commit: the item comes to rest, and the state records this.
    item_id, _ = visible_items(state, params.num_visible)
    chosen = item_id.gather(1, placement.slot[:, None]).squeeze(1)
    rest = feasibility.ground(catalogue, params).at_rest(state, chosen, placement)
    item = Landing(chosen, placement, rest.z, carried)
    after = _commit(state, item, rest, catalogue, params)
    after["step"] = state["step"] + live
    after["illegal_actions"] = state["illegal_actions"] + (live & ~intended)

    # 2. Score: compute the metrics and the reward.
    measured = metrics.measure(after, params)
    terms = rewards.weighted_terms(params.reward, before, measured, intended)
    terms = torch.where(live[:, None], terms, 0.0)
    after["reward_sum"] = state["reward_sum"] + terms
    return after, Outcome(terms.sum(-1).float(), measured)


def _commit(
    state: State, item: Landing, rest: Resting, catalogue: Catalogue, params: PackingParams
) -> State:
    # 1. Update the entries of constraints and the lists of cuboids; they need the old heightmap.
    after, count = dict(state), state["items_packed"]
    placement, carried = item.placement, item.carried
    if params.constraints:
        after |= constraints.commit(state, item, catalogue, params)
    if params.keeps_boxes:
        box = boxes.box_at(item, catalogue, params)
        after |= _commit_box(state, box, carried, catalogue, params)

    # 2. Add the item to the heightmap; rows without a placement stay unchanged.
    after |= feasibility.ground(catalogue, params).commit(state, item)

    # 3. The item leaves the queue, and the next one enters it.
    position = state["queue"].gather(1, placement.slot[:, None]).squeeze(1)
    places = torch.arange(state["packed"].shape[1], device=position.device)
    following = (count + state["queue"].shape[1]).clamp(max=len(places) - 1)
    after["queue"] = take_from_queue(state["queue"], placement.slot, following, carried)
    after["packed"] = state["packed"] | ((places == position[:, None]) & carried[:, None])

    # 4. Record the placement, in order of packing.
    record = torch.stack((position, placement.orientation, placement.x, placement.y), -1)
    ratio = rest.support_ratio.float()
    after["placement"] = _write_at(state["placement"], count, record, carried)
    after["placement_z"] = _write_at(state["placement_z"], count, item.z, carried)
    after["placement_support"] = _write_at(state["placement_support"], count, ratio, carried)

    # 5. Update the sums from which metrics are computed.
    after["items_packed"] = count + carried
    volume = catalogue["volume"][item.item_id]
    after["volume"] = state["volume"] + torch.where(carried, volume, 0.0)
    after["stable_items"] = state["stable_items"] + (carried & rest.stable)
    after["support_sum"] = state["support_sum"] + torch.where(carried, rest.support_ratio, 0.0)
    return after


def _commit_box(
    state: State, box: Tensor, carried: Tensor, catalogue: Catalogue, params: PackingParams
) -> State:
    """Return the lists of cuboids; where ``carried``, ``box`` is added to them."""
    # 1. The list of boxes, in packing order.
    after = {"boxes": _write_at(state["boxes"], state["items_packed"], box, carried)}
    # 2. The empty spaces around the box; spaces too small for every item are left out.
    if params.num_spaces:
        smallest = spaces.smallest_side(catalogue)
        after["spaces"], dropped = kernels.split_spaces(state["spaces"], box, carried, smallest)
        after["overflow"] = state["overflow"] + dropped
    return after


def without_future(state: State, num_slots: int) -> State:
    """Return the part of a state that an agent may know: hidden items become -1, random streams 0.

    Items that have not been visible yet are hidden; ``num_slots`` items are visible at a time.
    """
    item_id = state["item_id"]
    places = torch.arange(item_id.shape[1], device=item_id.device)
    seen = places < state["items_packed"][:, None] + num_slots
    streams = {key: torch.zeros_like(state[key]) for key in ("seed", "row", "episode")}
    return {**state, **streams, "item_id": torch.where(seen, item_id, -1)}


def is_done(state: State) -> Bool[Tensor, " B"]:
    """Return which rows' episodes have ended."""
    return state["terminated"] | state["truncated"]


def finish(
    before: State,
    after: State,
    legal: Bool[Tensor, " B"],
    playable: Bool[Tensor, " B"],
    params: PackingParams,
) -> State:
    """Return the state after a decision with its flags set.

    A row terminates when all its items are packed, when there is no legal action, or when its
    action was illegal (depending on ``illegal_action``). It is truncated after ``step_limit``
    decisions. A finished row keeps its flags.

    Args:
        before: The state before the decision.
        after: The state after it.
        legal: Whether the action of each row was legal.
        playable: Whether each row has a legal action after the decision.
        params: The task.
    """
    # 1. All items are packed, or there is no legal action.
    stuck = ~playable | (after["items_packed"] >= after["num_items"])
    if params.illegal_action == "terminate":
        stuck = stuck | ~legal
    # 2. Rows that were finished before keep their flags.
    live = ~is_done(before)
    return after | {
        "terminated": before["terminated"] | (live & stuck),
        "truncated": before["truncated"] | (live & (after["step"] >= params.step_limit)),
    }
