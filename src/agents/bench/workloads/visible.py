"""Maps of several visible items over an episode: recomputed, or updated where they changed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from agents.bench.base import Row, Rows, Session
from packing_env import kernels, make_env
from packing_env.core.orientation import visible_items


@dataclass(frozen=True)
class Decision:
    """Inputs of the maps of one decision.

    Attributes:
        heightmap: ``[1, X, Y]`` metres.
        item_id: ``[1, L]`` catalogue rows, -1 for an empty slot.
        bottom: ``[M, R, U, V]`` metres, of every catalogue row.
        stride: Cells between two placements.
        size: ``[M, R, 2]`` footprints, cells.
        pairs: Pairs of a placement inside the container and a cell of its window, over all items.
    """

    heightmap: Tensor
    item_id: Tensor
    bottom: Tensor
    stride: int
    size: Tensor
    pairs: int

    @property
    def inputs(self) -> tuple[Tensor, Tensor, Tensor, int, Tensor]:
        """All but the number of pairs."""
        return self.heightmap, self.item_id, self.bottom, self.stride, self.size


def episode(visible: int, seed: int) -> list[Decision]:
    """Return the decisions of an ``irregular_paper`` episode packed lowest first.

    Args:
        visible: Number of items to choose from.
        seed: Of the instance.
    """
    env = make_env("irregular_paper", num_visible=visible, pool_size=1, seed=seed)
    root, found = env.reset(), []
    stride, grid = env.params.grid_step, torch.tensor(env.params.grid)
    bottom, sizes = env.catalogue.bottom, env.catalogue.size
    while True:
        state = dict(env.state.items())
        item_id, there = visible_items(state, visible)
        heightmap = state["heightmap"].clone()
        steps = (grid - sizes[item_id]).div(stride, rounding_mode="floor") + 1
        pairs = (steps.clamp(min=0) * sizes[item_id]).prod(-1).sum(-1)[there]
        item_id = torch.where(there, item_id, -1)
        found.append(Decision(heightmap, item_id, bottom, stride, sizes, int(pairs.sum())))
        z = root["observation", "drop_height"].flatten(1)
        root["action"] = torch.where(root["action_mask"], z, torch.inf).argmin(1)
        root = env.step(root)["next"]
        if bool(root["done"].any()):
            return found


def measure(session: Session, visible: int) -> Rows:
    """Measure both ways over the same episode, per decision."""
    decisions = episode(visible, int(session.config.seed))
    ways = {"recomputed": False, "updated": True}
    seconds = {
        maps: session.clock.measure(partial(_maps, decisions, updated=updated)).seconds()
        for maps, updated in ways.items()
    }
    same = all(map(torch.equal, *(_maps(decisions, updated=way) for way in ways.values())))
    for maps, updated in ways.items():
        values = {
            "thread_cpu_ms": 1e3 * seconds[maps] / len(decisions),
            "decisions": len(decisions),
            "times_recomputed": seconds["recomputed"] / seconds[maps],
            "pairs_computed": _pairs(decisions, updated=updated) / sum(d.pairs for d in decisions),
            "same_bits": same,
        }
        yield Row({"problem": f"visible {visible}", "method": "numba", "maps": maps}, values)


def _maps(decisions: list[Decision], *, updated: bool) -> list[Tensor]:
    """Return the maps of every decision, in order: updated, or each computed from nothing."""
    known, made = None, []
    for one in decisions:
        known = kernels.update_drop_height(known if updated else None, *one.inputs)
        made.append(known.z)
    return made


def _pairs(decisions: list[Decision], *, updated: bool) -> int:
    """Return the number of pairs of a placement and a cell that the kernel visits."""
    from packing_env.kernels.drop.update.numba import update_drop_height

    maps, count = _maps(decisions, updated=True), torch.zeros(1, dtype=torch.int64)
    for index, one in enumerate(decisions):
        last = max(0, index - 1)
        then = decisions[last]
        others = then.item_id if updated and index else torch.full_like(then.item_id, -1)
        known = (then.heightmap, others, maps[last])
        update_drop_height(known, *one.inputs, pairs=count)
    return int(count)
