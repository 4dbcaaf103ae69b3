"""The launches of a step on items of any shape on CUDA.

Without preferred rules there are at most nine, and two sums of heights. One launch decides; two
prepare the ground and the items' lower surfaces; one finds all rest heights; one counts support and
one searches hulls, if the stability rule needs them; one determines legality; one finishes; one
writes item maps, if they are observed. With preferred rules, each margin takes four searches for
hulls and a few torch operations. Rest heights and stability are written directly into the
observations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from packing_env.kernels.compiled.scene_triton import Scene, fill_scene, new_scene
from packing_env.kernels.compiled.scene_triton import start as launch
from packing_env.kernels.compiled.triton import gaps_kernel
from packing_env.kernels.compiled.triton import launch as launch_tiles
from packing_env.kernels.cuboids.observe_triton import METRIC_LANES, Tables
from packing_env.kernels.layout import lattice
from packing_env.kernels.step.entries import Counts, Items, Lengths, Observations, State, Tensors
from packing_env.kernels.step.heights_triton import (
    Between,
    Maps,
    decide_kernel,
    finish_kernel,
    item_maps_kernel,
    judge_kernel,
)
from packing_env.kernels.step.triton import constants_for, seen_of
from packing_env.kernels.step.triton import reset as reset_rows
from packing_env.kernels.step.window_triton import window_of
from packing_env.kernels.support.corners import holds_all
from packing_env.kernels.support.hull_triton import MAX_SIDE, POINTS, com_hull_kernel

WARPS = {"num_warps": 4, "maxnreg": 168}
"""Options of kernels with one program per row; by default the compiler would use fewer registers,
and spill.
"""


class Given(NamedTuple):
    """Tables in addition to `Items`; see `step.fused.FusedTask`."""

    numbers: Tensor
    share: Tensor
    areas: Tensor
    bound: Tensor
    tops: Tensor
    bottoms: Tensor
    margins: Tensor


class Scratch(NamedTuple):
    """Memory of a :class:`~packing_env.kernels.compiled.scene_triton.Scene`, and of measurements.

    ``z`` and ``supporting`` are ``[B, P, Xs, Ys]``. ``z`` is empty if rest heights are observed.
    ``supporting`` is empty if the rule counts no cells.
    """

    phases: Tensor
    highest: Tensor
    lowest: Tensor
    size: Tensor
    lows: Tensor
    corners: Tensor
    depths: Tensor
    cells: Tensor
    z: Tensor
    supporting: Tensor


def new_memory(
    heightmap: Tensor, items: Tensors, slots: int, counts: Sequence[int], *, observed: bool
) -> tuple[list[Tensor], list[Tensor]]:
    """Return memory for `Between` and `Scratch`; ``observed``: rest heights are an observation."""
    table, task = Items(*items), Counts(*counts)
    batch, planes = len(heightmap), task.visible * table.peak.shape[1]

    def empty(*shape: int, dtype: torch.dtype) -> Tensor:
        return heightmap.new_empty((batch, *shape), dtype=dtype)

    # 1. The values that the first launch passes to later ones.
    which = empty(planes, dtype=torch.int64)
    between = Between(
        legal=empty(dtype=torch.bool),
        live=empty(dtype=torch.bool),
        before=empty(int(METRIC_LANES.value), dtype=torch.float64),
        shown=empty(slots, dtype=torch.int64),
        which=which,
        peak=empty(planes, dtype=torch.float32),
        point=empty(planes, 2, dtype=torch.int64),
        playable=empty(planes, dtype=torch.bool),
    )
    # 2. Memory of the search: for rest heights unless they are observed (they are then written into
    # the observations), and for counts only if the rule has shares.
    scene = new_scene(heightmap, table.bottom.flatten(0, 1), task.stride, which)
    places, none = lattice(heightmap, task.stride), heightmap.new_empty(0)
    counted = rule_constants(task)["percents"]
    scratch = Scratch(
        *scene[:3],
        *scene[5:],
        none if observed else empty(planes, *places, dtype=torch.float32),
        empty(planes, *places, dtype=torch.int32) if counted else none,
    )
    return list(between), list(scratch)


def rule_constants(counts: Counts) -> dict[str, bool]:
    """Return which measurements the stability rule needs."""
    from packing_env.kernels.stability_rules import NAMES, RULES

    rule = RULES[NAMES[counts.rule]]
    return {"percents": bool(rule.percents), "hull": rule.hull is not None,
            "centres": rule.hull == "centres"}  # fmt: skip


def decide(
    state: Tensors, items: Tensors, pool: Tensors, counts: Sequence[int],
    lengths: Sequence[float], tables: Tensors, terms: Sequence[str], action: Tensor,
    under: Tensor, between: Tensors,
) -> None:  # fmt: skip
    """Carry out `packing_env.kernels.step.fused.decide_fused`."""
    # One launch: a program per row.
    constants = constants_for(state, items, counts, lengths, terms, action.shape[1])
    table, limits, batch = Items(*items), Lengths(*lengths), len(action)
    arguments = (State(*state[:-1]), table, tables[0], action, under, Between(*between), batch)
    sizes = {"WINDOW": window_of(table.bottom.shape[2:]), **WARPS}
    with torch.cuda.device_of(action):
        launch(decide_kernel, batch, (*arguments, limits.lid, limits.tolerance), constants | sizes)


def observe(
    state: Tensors, items: Tensors, pool: Tensors, counts: Sequence[int],
    lengths: Sequence[float], tables: Tensors, terms: Sequence[str], under: Tensor,
    between: Tensors, scratch: Tensors, observations: Tensors, start: Tensors, reward: Tensor,
) -> None:  # fmt: skip
    """Carry out `packing_env.kernels.step.fused.observe_fused`."""
    # 1. Named tuples of the memory that the launches read and write.
    constants = constants_for(state, items, counts, lengths, terms, 1)
    now, table, given = State(*state[:-1]), Items(*items), Given(*tables)
    seen, begun = seen_of(observations), seen_of(start) if start else None
    limits, passed = Lengths(*lengths), Between(*between)
    # 2. Rest heights of all placements, and the measurements of the rule.
    z = _find_places(now, table, given, Counts(*counts), limits, passed, Scratch(*scratch), seen)
    # 3. Legality, written into the observation.
    _judge(now, table, given, Counts(*counts), limits, passed, Scratch(*scratch),
           (z, seen, begun), constants)  # fmt: skip
    # 4. Flags, metrics, rewards, observations; finished rows start again.
    last = {name: constants[name] for name in ("TASK", "GRID")} | WARPS
    numbers = (now, state[-1], table, tuple(pool), Tables(given.numbers, given.share), under)
    sizes = (len(under), len(pool[1]))
    with torch.cuda.device_of(under):
        launch(finish_kernel, len(under),
               (*numbers, passed, seen, begun, reward, limits.height, *sizes), last)  # fmt: skip
    # 5. Item maps, if they are requested.
    _write_item_maps(now, given, passed.shown, observations, start, constants["TASK"], table)


def reset(
    state: Tensors, items: Tensors, pool: Tensors, counts: Sequence[int],
    lengths: Sequence[float], tables: Tensors, terms: Sequence[str], rows: Tensor,
    observations: Tensors,
) -> None:  # fmt: skip
    """Carry out `packing_env.kernels.step.fused.reset_fused` on heightmaps."""
    # The kernel for whole cells also resets these rows: it needs no surfaces.
    reset_rows(state, items, pool, counts, lengths, tables, terms, rows, observations)
    now, task = State(*state[:-1]), constants_for(state, items, counts, lengths, terms, 1)["TASK"]
    shown = now.queue  # not read
    _write_item_maps(now, Given(*tables), shown, [], observations, task, Items(*items))


def _find_places(
    now: State, items: Items, given: Given, counts: Counts, lengths: Lengths, passed: Between,
    scratch: Scratch, seen: Any,
) -> Tensor:  # fmt: skip
    """Find all rest heights below the lid, and the rule's measurements; return the heights."""
    # 1. The ground and the surfaces in blocks, which later kernels can skip as a whole.
    scene = Scene(*scratch[:3], items.bottom.flatten(0, 1), passed.which, *scratch[3:8])
    z = seen.drop_height if seen.drop_height is not None else scratch.z
    heightmap, stride = now.heightmap, counts.stride
    fill_scene(scene, heightmap, stride, given.bound)
    # 2. Rest heights, +inf above the lid.
    reach = (passed.peak, lengths.tolerance, lengths.lid)
    launch_tiles(gaps_kernel, scene, heightmap, stride, z, z, *reach, COUNT=False)
    # 3. The measurements of the rule: counts of supporting cells, and hulls.
    measured = rule_constants(counts)
    if measured["percents"]:
        placed = (z, scratch.supporting, None, lengths.tolerance, 0.0)
        launch_tiles(gaps_kernel, scene, heightmap, stride, *placed, COUNT=True)
    if measured["hull"]:
        sizes = {"CENTRES": measured["centres"], "WIDE": max(items.bottom.shape[2:]) > MAX_SIDE,
                 "POINTS": POINTS}  # fmt: skip
        stable = seen.mask.view(torch.uint8)

        def hold(point: Tensor, judged: Tensor) -> Tensor:
            arguments = (judged, point.contiguous(), stable, lengths.tolerance)
            launch_tiles(com_hull_kernel, scene, heightmap, stride, *arguments, **sizes)
            return stable.view(torch.bool).view(judged.shape)

        # With a preference, the margins are tried one after another; otherwise one search is
        # enough.
        if given.margins.numel():
            margins = given.margins[passed.which.clamp(min=0)]
            places = z.view(*passed.which.shape, *lattice(heightmap, stride))
            _find_preferred(hold, places, passed.point, margins, counts.visible, stable)
        else:
            hold(passed.point, z)
    return z


def _find_preferred(
    hold: Callable[[Tensor, Tensor], Tensor], z: Tensor, point: Tensor, margins: Tensor,
    visible: int, stable: Tensor,
) -> None:  # fmt: skip
    """Write each item's stable placements by the first margin that leaves it a placement.

    Args:
        hold: Function that writes to ``stable`` whether hulls contain points ``[B, P, 2]``, and
            returns it.
        z: Rest heights ``[B, P, Xs, Ys]``, +inf where a placement need not be checked.
        point: Centres of mass, 1/64 cell.
        margins: ``[B, P, tiers, 2]``, 1/64 cell.
        visible: Number of items; each has the same number of planes.
        stable: ``[B, P * Xs * Ys]``.
    """
    # The next margin is tried only for items that have no placement by a stricter margin.
    sought, preferred = z, torch.zeros(z.shape, dtype=torch.bool, device=z.device)
    for margin in margins.unbind(2):
        holds = holds_all(hold, sought, point, margin)
        preferred |= holds
        of_items = sought.unflatten(1, (visible, -1))
        any_stable = holds.unflatten(1, (visible, -1)).flatten(2).any(2)[..., None, None, None]
        sought = torch.where(any_stable, torch.inf, of_items).flatten(1, 2)
    stable.copy_(preferred.view(stable.shape))


def _judge(
    now: State, items: Items, given: Given, counts: Counts, lengths: Lengths, passed: Between,
    scratch: Scratch, written: tuple[Tensor, Any, Any], constants: dict[str, Any],
) -> None:  # fmt: skip
    """Write legality and observed rest heights."""
    # Unrequested observations are None: their code is not compiled.
    z, seen, begun = written
    count = scratch.supporting if scratch.supporting.numel() else None
    stable = seen.mask.view(torch.uint8)
    second = (None, None) if begun is None else (begun.mask, begun.drop_height)
    targets = (seen.mask, second[0], seen.drop_height, second[1])
    sizes = {"WINDOW": window_of(items.bottom.shape[2:])}
    sizes |= {name: constants[name] for name in ("RULE", "FORMULA", "TASK", "GRID")}
    arguments = (now.heightmap, items, given.areas, z, stable, count, *targets, passed)
    with torch.cuda.device_of(z):
        launch(judge_kernel, passed.which.numel(),
               (*arguments, lengths.height, lengths.tolerance), sizes)  # fmt: skip


def _write_item_maps(
    now: State, given: Given, shown: Tensor, observations: Tensors, start: Tensors, task: Any,
    items: Items,
) -> None:  # fmt: skip
    """Write the maps of the observed items, if they are requested."""
    seen, begun = (_maps_of(entries) for entries in (observations, start))
    if seen is None and begun is None:
        return
    sizes = {"TASK": task, "WINDOW": window_of(items.bottom.shape[2:]), **WARPS}
    arguments = (now, given.tops, given.bottoms, shown, seen, begun)
    with torch.cuda.device_of(shown):
        launch(item_maps_kernel, now.queue.numel(), arguments, sizes)


def _maps_of(entries: Tensors) -> Maps | None:
    """Return the item maps among observations; None if they are not requested."""
    if not entries:
        return None
    named = dict(zip(Observations._fields, entries, strict=True))
    top, bottom = named["top"], named["bottom"]
    return Maps(top, bottom) if top.numel() else None
