"""Maps of several visible items over an episode: recomputed, or updated where they changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from agents.bench.base import Row, Session
from packing_env import kernels, make_env
from packing_env.core.orientation import visible_items


@dataclass(frozen=True)
class Decision:
    """Inputs of the maps of one decision.

    Attributes:
        heightmap: ``[1, X, Y]`` metres.
        item_id: ``[1, L]`` catalogue rows, -1 for an empty slot.
        bottom: ``[M, R, U, V]`` metres, of every catalogue row.
        size: ``[M, R, 2]`` footprints, cells.
        pairs: Pairs of a placement inside the container and a cell of its window, over all items.
    """

    heightmap: Tensor
    item_id: Tensor
    bottom: Tensor
    size: Tensor
    pairs: int


def episode(visible: int, seed: int) -> tuple[list[Decision], int]:
    """Return the decisions of an ``irregular_paper`` episode packed lowest first; and its stride.

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
        found.append(Decision(heightmap, item_id, bottom, sizes, int(pairs.sum())))
        root["action"] = _lowest(root)
        root = env.step(root)["next"]
        if bool(root["done"].any()):
            return found, stride


def _lowest(root: TensorDictBase) -> Tensor:
    """Return the ``[1]`` index of the lowest legal placement."""
    z = root["observation", "drop_height"].flatten(1)
    return torch.where(root["action_mask"], z, torch.inf).argmin(1)


def measure(session: Session, visible: int) -> Iterator[Row]:
    """Measure both ways over the same episode, per decision."""
    decisions, stride = episode(visible, int(session.config.seed))
    case = {"problem": f"visible {visible}", "method": "numba"}
    full = session.clock.measure(lambda: _maps(decisions, stride, _recompute))
    updated = session.clock.measure(lambda: _maps(decisions, stride, kernels.update_drop_height))
    same = all(map(torch.equal, _maps(decisions, stride, _recompute), _maps(decisions, stride)))
    for maps, timing in (("recomputed", full), ("updated", updated)):
        computed = _pairs(decisions, stride, maps == "updated")
        values = {
            "thread_cpu_ms": 1e3 * timing.seconds() / len(decisions),
            "decisions": len(decisions),
            "times_recomputed": full.seconds() / timing.seconds(),
            "pairs_computed": computed / sum(one.pairs for one in decisions),
            "same_bits": same,
        }
        yield Row(case | {"maps": maps}, values)


def _recompute(_: object, *arguments: Any) -> kernels.DropHeights:
    """Compute the maps without the known ones."""
    return kernels.update_drop_height(None, *arguments)


def _maps(
    decisions: list[Decision],
    stride: int,
    compute: Callable[..., kernels.DropHeights] = kernels.update_drop_height,
) -> list[Tensor]:
    """Return the maps of every decision, in order."""
    known, made = None, []
    for one in decisions:
        known = compute(known, one.heightmap, one.item_id, one.bottom, stride, one.size)
        made.append(known.z)
    return made


def _pairs(decisions: list[Decision], stride: int, updated: bool) -> int:
    """Return the number of pairs of a placement and a cell that the kernel visits."""
    from packing_env.kernels.drop.update.numba import update_drop_height

    maps, count = _maps(decisions, stride), torch.zeros(1, dtype=torch.int64)
    for index, one in enumerate(decisions):
        then = decisions[max(0, index - 1)]
        others = then.item_id if updated and index else torch.full_like(then.item_id, -1)
        before = (then.heightmap, others, maps[max(0, index - 1)])
        update_drop_height(
            before, one.heightmap, one.item_id, one.bottom, stride, one.size, pairs=count
        )
    return int(count)
