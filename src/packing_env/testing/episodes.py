"""Conversion of a task, its items and its instances to the types of the reference program."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tensordict import TensorDictBase
from torch import Tensor

from packing_env import reference
from packing_env.core import candidates, feasibility
from packing_env.core.orientation import visible_items
from packing_env.envs import PackingEnv
from packing_env.items import Catalogue
from packing_env.reference import Episode, boxes, stability
from packing_env.reference.box_episode import BoxEpisode, BoxItem
from packing_env.reference.claims import STABILITY_RULES
from packing_env.reference.constraints import Constraints, Handling
from packing_env.reference.voxel_episode import VoxelEpisode, VoxelItem
from packing_env.types import PackingParams

KNOWN_RULES = tuple(stability.RULES)
"""Stability rules of the reference program on heightmaps, for items of any shape."""
BOX_RULES = boxes.RULES
"""Stability rules of environments in geometry ``"boxes"``; orders of boxes have further rules."""
KNOWN_TERMS = ("objective", "utilization", "item", "height", "illegal")
"""Reward terms of the reference program; tasks with other terms are compared without rewards."""


def current_state(env: PackingEnv) -> dict[str, Tensor]:
    """Return the tensors of ``env.state``.

    Raises:
        RuntimeError: The environment has not been reset.
    """
    state: TensorDictBase | None = env.state
    if state is None:
        raise RuntimeError("there is no state before the first reset(); call env.reset()")
    return dict(state.items())


def current_scene(env: PackingEnv) -> candidates.Scene:
    """Compute the maps of all placements and the visible items from ``env.state``."""
    state, items, params = current_state(env), env.catalogue.tensors(), env.params
    item_id, there = visible_items(state, params.num_visible)
    maps = feasibility.maps_in(state, items, params)
    return candidates.Scene(state, item_id, there, maps, items, params)


def known_rules(params: PackingParams) -> tuple[str, ...]:
    """Return the stability rules that the reference program defines for a task's geometry.

    If a task has another rule, legality is not compared.
    """
    if params.geometry == "voxels":
        return ("none",)
    return BOX_RULES if params.geometry == "boxes" else STABILITY_RULES[params.geometry]


def reference_item(catalogue: Catalogue, row: int) -> reference.Item:
    """Convert a row of a catalogue to an item of the reference program."""
    tensors = catalogue.tensors()
    real = tensors["orientation_mask"][row].tolist()
    top, bottom = (
        [m.numpy() if there else None for m, there in zip(tensors[k][row].cpu(), real, strict=True)]
        for k in ("top", "bottom")
    )
    dx, dy, dz = tensors["extent"][row].tolist()
    return reference.Item(
        top=top,
        bottom=bottom,
        com=[(int(x), int(y)) for x, y in tensors["com"][row].tolist()],
        volume=float(tensors["volume"][row]),
        extent=(dx, dy, dz),
        handling=_reference_handling(catalogue, row),
    )


def _reference_handling(catalogue: Catalogue, row: int) -> Handling:
    """Convert those attributes of a catalogue row that constraints read."""
    if catalogue.handling is None:
        return Handling()
    values: dict[str, Any] = {
        name: value[row].item() for name, value in catalogue.handling.tensors().items()
    }
    return Handling(**values)


def _without_maps(catalogue: Catalogue, row: int, geometry: str) -> BoxItem | VoxelItem:
    """Convert a row of a catalogue to an item of geometry "boxes" or "voxels"."""
    tensors = catalogue.tensors()
    volume, real = float(tensors["volume"][row]), tensors["orientation_mask"][row].tolist()
    if geometry == "voxels":
        voxels = tensors["voxels"][row].cpu().numpy()
        parts = [part if there else None for part, there in zip(voxels, real, strict=True)]
        return VoxelItem(parts, volume)
    sizes = [(int(w), int(h), int(d)) for w, h, d in tensors["cuboid"][row].tolist()]
    return BoxItem([s if there else None for s, there in zip(sizes, real, strict=True)], volume)


def reference_rules(params: PackingParams, *, cuboids: bool = False) -> reference.Rules:
    """Convert a task's constants; leave out rules and reward terms that the reference lacks.

    Args:
        params: The task.
        cuboids: True if all its items are cuboids of whole cells.
    """
    # Options with the same name have the same meaning in both programs.
    shared = [f.name for f in fields(reference.Rules) if hasattr(params, f.name)]
    values: dict[str, Any] = {name: getattr(params, name) for name in shared}
    for name in ("stability", "stability_metric"):
        values[name] = values[name] if values[name] in known_rules(params) else "none"
    given = params.constraints
    return reference.Rules(
        **values
        | {
            "contact_tol": params.tolerance,
            "max_steps": params.step_limit,
            "reward": {k: v for k, v in params.reward.items() if k in KNOWN_TERMS},
            "whole_cells": cuboids,
            "constraints": Constraints.of(given.to_json(), params.cell) if given else None,
        }
    )


def begin_episode(env: PackingEnv, row: int, known: dict[int, Any]) -> Episode:
    """Build the reference episode of a row of an environment, at the start of the episode.

    Args:
        env: The environment, after ``reset()``.
        row: Index of the row.
        known: Cache of converted items by catalogue row; this function adds to it.
    """
    params, state = env.params, current_state(env)
    ids = state["item_id"][row, : int(state["num_items"][row])].tolist()
    rules = reference_rules(params, cuboids=bool(env.catalogue.cuboid.shape[-1]))
    for item in set(ids) - set(known):
        if params.geometry == "maps":
            known[item] = reference_item(env.catalogue, item)
        else:
            known[item] = _without_maps(env.catalogue, item, params.geometry)
    items = [known[item] for item in ids]
    if params.geometry == "boxes":
        return BoxEpisode(params.grid, items, rules, unit=params.pitch)
    if params.geometry == "voxels":
        return VoxelEpisode(
            params.grid,
            items,
            rules,
            layers=params.layers,
            removable=params.removable,
            fallback=params.candidate_fallback,
        )
    return Episode(params.grid, items, rules, fallback=params.candidate_fallback)
