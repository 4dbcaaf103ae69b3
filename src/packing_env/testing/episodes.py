"""Conversion of a task, its items and its instances to the types of the reference program."""

from __future__ import annotations

from tensordict import TensorDictBase
from torch import Tensor

from packing_env import reference
from packing_env.envs import PackingEnv
from packing_env.items import Catalogue
from packing_env.reference import ListedEpisode
from packing_env.reference.box_episode import BoxEpisode, BoxItem
from packing_env.types import PackingParams

KNOWN_RULES = ("none", "com_hull", "center_hull", "area_corners", "area_corners_code")
"""Stability rules of the reference program on maps; with others, legality is not compared."""
BOX_RULES = (*KNOWN_RULES, "stacking_tree")
"""Stability rules of the reference program in geometry ``"boxes"``."""
KNOWN_TERMS = ("objective", "utilization", "item", "height", "void", "illegal")
"""Reward terms of the reference program; with others, rewards are not compared."""


def current_state(env: PackingEnv) -> dict[str, Tensor]:
    """Return the tensors of ``env.state``.

    Raises:
        RuntimeError: The environment has not been reset.
    """
    state: TensorDictBase | None = env.state
    if state is None:
        raise RuntimeError(
            "there is no state before the first reset(); call env.reset()"
        )
    return dict(state.items())


def known_rules(params: PackingParams) -> tuple[str, ...]:
    """Return the stability rules that the reference program has for a task's geometry."""
    return BOX_RULES if params.geometry == "boxes" else KNOWN_RULES


def reference_item(catalogue: Catalogue, row: int) -> reference.Item:
    """Convert a row of a catalogue to an item of the reference program."""
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
    """Convert a row of a catalogue of cuboids to an item of geometry "boxes"."""
    tensors = catalogue.tensors()
    real = tensors["orientation_mask"][row].tolist()
    sizes = [(int(w), int(h), int(d)) for w, h, d in tensors["cuboid"][row].tolist()]
    return BoxItem(
        sizes=[size if there else None for size, there in zip(sizes, real, strict=True)],
        volume=float(tensors["volume"][row]),
    )


def reference_rules(params: PackingParams, *, cuboids: bool = False) -> reference.Rules:
    """Convert a task's constants; rules and reward terms unknown to the reference are left out.

    Args:
        params: The task.
        cuboids: True if all its items are cuboids of whole cells.
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
    env: PackingEnv, row: int, known: dict[int, reference.Item], cuboids: dict[int, BoxItem]
) -> ListedEpisode:
    """Build the reference episode of a row of an environment, at its start.

    Args:
        env: The environment, after ``reset()``.
        row: Index of the row.
        known: Cache of converted items by catalogue row; extended here.
        cuboids: The cache of geometry ``"boxes"``.
    """
    params, state = env.params, current_state(env)
    ids = state["item_id"][row, : int(state["num_items"][row])].tolist()
    rules = reference_rules(params, cuboids=bool(env.catalogue.cuboid.shape[-1]))
    if params.geometry == "boxes":
        for item in set(ids) - set(cuboids):
            cuboids[item] = reference_cuboid(env.catalogue, item)
        sizes = [cuboids[item] for item in ids]
        return BoxEpisode(params.grid, sizes, rules, unit=params.pitch)
    for item in set(ids) - set(known):
        known[item] = reference_item(env.catalogue, item)
    items = [known[item] for item in ids]
    return ListedEpisode(params.grid, items, rules, fallback=params.candidate_fallback)
