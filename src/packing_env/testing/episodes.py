"""A task, its items and its instances in the words of the reference program."""

from __future__ import annotations

from packing_env import reference
from packing_env.envs import PackingEnv
from packing_env.items import Catalogue
from packing_env.reference.listed import BoxEpisode, BoxItem, ListedEpisode
from packing_env.types import PackingParams

KNOWN_RULES = ("none", "com_hull", "center_hull", "area_corners", "area_corners_code")
"""Stability rules that the reference program has; with others, legality is not compared."""
BOX_RULES = (*KNOWN_RULES, "stacking_tree")
"""Those that it has in geometry ``"boxes"``."""
KNOWN_TERMS = ("objective", "utilization", "item", "height", "void", "illegal")
"""Reward terms that the reference program has; with others, rewards are not compared."""


def known_rules(params: PackingParams) -> tuple[str, ...]:
    """The stability rules that the reference program has for a task's geometry."""
    return BOX_RULES if params.geometry == "boxes" else KNOWN_RULES


def reference_item(catalogue: Catalogue, row: int) -> reference.Item:
    """A row of a catalogue as the reference program takes it."""
    tensors = catalogue.tensors()
    real = tensors["orientation_mask"][row].tolist()
    top, bottom = (
        [m.numpy() if there else None for m, there in zip(maps, real, strict=True)]
        for maps in (tensors["top"][row].cpu(), tensors["bottom"][row].cpu())
    )
    dx, dy, dz = tensors["extent"][row].tolist()
    return reference.Item(
        top=top,
        bottom=bottom,
        com=[(int(x), int(y)) for x, y in tensors["com"][row].tolist()],
        volume=float(tensors["volume"][row]),
        extent=(dx, dy, dz),
    )


def reference_cuboid(catalogue: Catalogue, row: int) -> BoxItem:
    """A row of a catalogue of cuboids as the reference program takes it in geometry "boxes"."""
    tensors = catalogue.tensors()
    real = tensors["orientation_mask"][row].tolist()
    sizes = [(int(w), int(h), int(d)) for w, h, d in tensors["cuboid"][row].tolist()]
    return BoxItem(
        sizes=[size if there else None for size, there in zip(sizes, real, strict=True)],
        volume=float(tensors["volume"][row]),
    )


def reference_rules(params: PackingParams, *, cuboids: bool = False) -> reference.Rules:
    """A task's constants as the reference program takes them.

    Args:
        params: The task.
        cuboids: Whether all its items are cuboids of whole cells.
    """
    known = known_rules(params)
    return reference.Rules(
        height=params.height,
        cell=params.cell,
        grid_step=params.grid_step,
        num_visible=params.num_visible,
        stability=params.stability if params.stability in known else "none",
        stability_metric=params.stability_metric if params.stability_metric in known else "none",
        contact_tol=params.tolerance,
        illegal_action=params.illegal_action,
        max_steps=params.step_limit,
        reward={k: v for k, v in params.reward.items() if k in KNOWN_TERMS},
        candidate_range=params.candidate_range,
        whole_cells=cuboids,
    )


def begin_episode(
    env: PackingEnv, row: int, known: dict[int, reference.Item | BoxItem]
) -> ListedEpisode:
    """The episode that a row of an environment plays, at its start; ``known`` collects items."""
    params, state = env.params, env.state
    ids = state["item_id"][row, : int(state["num_items"][row])].tolist()
    translate = reference_cuboid if params.geometry == "boxes" else reference_item
    for item in set(ids) - set(known):
        known[item] = translate(env.catalogue, item)
    items = [known[item] for item in ids]
    rules = reference_rules(params, cuboids=bool(env.catalogue.cuboid.shape[-1]))
    if params.geometry == "boxes":
        return BoxEpisode(params.grid, items, rules, unit=params.pitch)
    return ListedEpisode(params.grid, items, rules, fallback=params.candidate_fallback)
