"""Observations: finite, normalised, and equal in every action mode.

To add an observation, write a function, list it in :data:`OBSERVED`, and add its name to
:data:`packing_env.types.OBSERVATIONS`. Engine ``rules`` then carries out the tasks that ask for it.
If it follows from ``heightmap``, list it in :data:`OF_HEIGHTMAP` instead; then every engine
supports it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core.candidates import Scene
from packing_env.core.feasibility import Maps
from packing_env.core.orientation import visible_items
from packing_env.types import Catalogue, PackingParams, State

ITEM_FEATURES = ("dx", "dy", "dz", "volume", "fill", "remaining", "there")
ORIENTATION_FEATURES = ("size_x", "size_y", "peak", "there")


def entries(names: Sequence[str]) -> list[str]:
    """Return the observations of these options; ``item_maps`` are two, ``top`` and ``bottom``."""
    parts = {"item_maps": ("top", "bottom")}
    return [entry for name in names for entry in parts.get(name, (name,))]


def over_height(heightmap: Float[Tensor, "B X Y"], params: PackingParams) -> Float[Tensor, "B X Y"]:
    """Scale a heightmap in metres to the observation ``heightmap``: divided by H, so in [0, 1]."""
    return kernels.divide(heightmap, params.height).clamp(0, 1)


def item_features(seen: Scene) -> Float[Tensor, "B S F"]:
    """Return :data:`ITEM_FEATURES` of the visible items, in [0, 1]; zeros in empty slots.

    Extents are relative to the container's largest side, and ``volume`` to the container's volume.
    ``fill`` is the volume divided by the volume of the bounding box; ``remaining`` is the number of
    items that are not packed yet, divided by N.
    """
    # Compute in float64, with one column per feature.
    extent = seen.catalogue["extent"][seen.item_id]
    volume = seen.catalogue["volume"][seen.item_id]
    left = seen.state["num_items"] - seen.state["items_packed"]
    remaining = kernels.divide(left, seen.state["item_id"].shape[1])
    columns = torch.cat(
        (
            kernels.divide(extent, max(seen.params.container)),
            kernels.divide(volume, seen.params.container_volume)[..., None],
            (volume / extent.prod(-1))[..., None],
            remaining.double()[:, None, None].expand(*volume.shape, 1),
            torch.ones_like(volume)[..., None],
        ),
        -1,
    )
    return torch.where(seen.there[..., None], columns.clamp(0, 1), 0.0).float()


def orientation_features(seen: Scene) -> Float[Tensor, "B S R F"]:
    """Return :data:`ORIENTATION_FEATURES` of the visible items, in [0, 1]; zeros in empty slots.

    The window size is divided by the container's sides, the highest point by H.
    """
    # Window sizes are in pitches; missing orientations are zeros.
    params, items, item_id = seen.params, seen.catalogue, seen.item_id
    present = seen.there[:, :, None] & items["orientation_mask"][item_id]
    size = kernels.divide(items["size"][item_id].float(), params.units_per_cell)
    peak = torch.where(present, items["peak"][item_id], 0.0)
    columns = (
        kernels.divide(size[..., 0], params.grid[0]),
        kernels.divide(size[..., 1], params.grid[1]),
        kernels.divide(peak, params.height),
        torch.ones_like(peak),
    )
    return torch.where(present[..., None], torch.stack(columns, -1).clamp(0, 1), 0.0)


def item_tables(catalogue: Catalogue, params: PackingParams) -> dict[str, Tensor]:
    """Return lookup tables of the observations of every item of the catalogue.

    ``item_features [M, F]`` and ``orientation_features [M, R, F]`` are indexed by catalogue row.
    ``remaining [N + 1]`` holds the feature ``remaining``, indexed by the number of items left.
    """
    # Compute the features as if every item were visible, and for every number of items left.
    device = catalogue["volume"].device
    every = torch.arange(len(catalogue["volume"]), device=device)[:, None]
    left = torch.arange(params.num_items + 1, device=device)
    all_left, queue = torch.zeros_like(left), torch.empty(1, params.num_items)

    def scene(item_id: Tensor, left: Tensor) -> Scene:
        # A state with only the entries that the features read; the queue tells the capacity.
        state = {"num_items": left, "items_packed": 0 * left, "item_id": queue}
        return Scene(state, item_id, item_id >= 0, None, catalogue, params)

    of_every = scene(every, 0 * every.flatten())
    of_left = item_features(scene(all_left[:, None], left)).squeeze(1)
    of_orientation = orientation_features(of_every)
    return {
        "item_features": item_features(of_every).squeeze(1),
        "remaining": of_left[:, ITEM_FEATURES.index("remaining")].contiguous(),
        "orientation_features": of_orientation.squeeze(1),
    }


def item_maps(seen: Scene, name: str) -> Float[Tensor, "B S R U V"]:
    """Return ``top`` or ``bottom`` divided by H; outside a footprint top is 0 and bottom is 1."""
    maps = kernels.divide(seen.catalogue[name][seen.item_id], seen.params.height).clamp(0, 1)
    outside = 0.0 if name == "top" else 1.0
    return torch.where(seen.there[:, :, None, None, None], maps, outside)


def drop_heights(maps: Maps, params: PackingParams) -> Float[Tensor, "B L R Xs Ys"]:
    """Return rest heights divided by H; 1 where the placement is illegal."""
    return torch.where(maps.legal, kernels.divide(maps.z, params.height), 1.0)


def packed_boxes(state: State, params: PackingParams) -> Float[Tensor, "B N 6"]:
    """Return packed cuboids ``(x0 y0 z0 x1 y1 z1)`` over the container's sides, zero padded."""
    # Lower and upper corner, each divided by (X, Y, H) in pitches.
    columns = zip(state["boxes"].unbind(-1), params.pitches * 2, strict=True)
    return torch.stack([kernels.divide(column, side) for column, side in columns], -1).clamp(0, 1)


def cut_surfaces(
    item_id: Int[Tensor, "B N"], catalogue: Catalogue, params: PackingParams
) -> Float[Tensor, "B N C"]:
    """Return the surface on which later pieces rest, after each piece of a cut container.

    The pieces fill the container, and arrive in the order of their lower faces, as in CUT-1 of Zhao
    et al., AAAI 2021. So each piece lies on the lowest part of the surface that the pieces before
    it form. The area of this surface at each height follows from the pieces' areas and heights;
    their places need not be known. If the pieces arrive in another order, only the last number is
    exact.

    Args:
        item_id: The pieces in order of arrival; -1 for missing ones.
        catalogue: The items.
        params: The task.

    Returns:
        The share of the base at each height, 0 to H; the lowest of these heights, one-hot; its
        share; and the share of the container that later pieces fill. In [0, 1].
    """
    changes, volume = _cut_changes(item_id, catalogue, params)
    return _cut_shares(changes.cumsum(1), volume.cumsum(1), params)


def _cut_surface(seen: Scene) -> Float[Tensor, "B C"]:
    """Return `cut_surfaces` after the last visible item."""
    state, params = seen.state, seen.params
    number = torch.minimum(state["items_packed"] + params.num_slots, state["num_items"])
    place = torch.arange(params.num_items, device=number.device)
    item_id = torch.where(place < number[:, None], state["item_id"], -1)
    changes, volume = _cut_changes(item_id, seen.catalogue, params)
    return _cut_shares(changes.sum(1), volume.sum(1), params)


def _cut_changes(
    item_id: Int[Tensor, "B N"], catalogue: Catalogue, params: PackingParams
) -> tuple[Int[Tensor, "B N Z"], Int[Tensor, "B N"]]:
    """Return by how much each piece changes the area at each height, and its volume.

    Areas are squares of the pitch, heights are cells.
    """
    # 1. Areas and heights; missing pieces have none.
    there, levels = item_id >= 0, round(params.height / params.cell)
    length, width = kernels.divide(catalogue["extent"][:, :2], params.pitch).round().long().T
    height = kernels.divide(catalogue["extent"][:, 2], params.cell).round().long()[item_id]
    area = torch.where(there, (length * width)[item_id], 0)
    # 2. The level of each piece. A level takes pieces until it is covered: the base, or the upper
    # faces of pieces at this height. So the area of all pieces before a piece tells its level.
    before = area.cumsum(1) - area
    covered = area.new_full((len(area), 1), _base(params))
    level = torch.zeros_like(area)
    for number in range(1, levels + 1):
        higher = before >= covered
        level = torch.where(higher, number, level)
        faces = torch.where(~higher & (level + height == number), area, 0)
        covered = covered + faces.sum(1, keepdim=True)
    # 3. A piece covers its area at its level and adds it at its upper face.
    changes = area.new_zeros(*area.shape, levels + 1)
    changes.scatter_add_(2, level[..., None], -area[..., None])
    changes.scatter_add_(2, (level + height).clamp(max=levels)[..., None], area[..., None])
    return changes, area * height


def _cut_shares(
    changes: Int[Tensor, "*B Z"], volume: Int[Tensor, "*B"], params: PackingParams
) -> Float[Tensor, "*B C"]:
    """Return the numbers of `cut_surfaces` from the sums of changes and volumes."""
    base, levels = _base(params), changes.shape[-1] - 1
    surface = torch.cat((changes[..., :1] + base, changes[..., 1:]), -1)
    lowest = (surface > 0).int().argmax(-1, keepdim=True)
    which = torch.zeros_like(surface).scatter_(-1, lowest, base)
    left = (base * levels - volume)[..., None]
    areas = torch.cat((surface, which, surface.gather(-1, lowest)), -1)
    shares = kernels.divide(areas.double(), base), kernels.divide(left.double(), base * levels)
    return torch.cat(shares, -1).clamp(0, 1).float()


def _base(params: PackingParams) -> int:
    """Return the area of the container's base, in squares of the pitch."""
    return round(params.container[0] / params.pitch) * round(params.container[1] / params.pitch)


def _drop_height(seen: Scene) -> Float[Tensor, "B L R Xs Ys"]:
    assert seen.maps is not None, "geometry='boxes' has no drop heights"
    return drop_heights(seen.maps, seen.params)


OF_HEIGHTMAP: dict[str, Callable[[Float[Tensor, "B X Y"]], Tensor]] = {}
"""Observations ``[B, ...]`` computed from the observation ``heightmap``, by name; new tensors."""


def following(params: PackingParams) -> list[str]:
    """Return the names of :data:`OF_HEIGHTMAP` that a task asks for."""
    return [name for name in OF_HEIGHTMAP if name in params.observation]


def of_heightmap(names: Sequence[str], heightmap: Float[Tensor, "B X Y"]) -> dict[str, Tensor]:
    """Return the observations of :data:`OF_HEIGHTMAP`, given the observation ``heightmap``."""
    return {name: OF_HEIGHTMAP[name](heightmap) for name in names}


OBSERVED: dict[str, Callable[[Scene], Tensor]] = {
    "heightmap": lambda seen: over_height(seen.state["heightmap"], seen.params),
    "item_id": lambda seen: torch.where(seen.there, seen.item_id, -1),
    "item_features": item_features,
    "orientation_features": orientation_features,
    "top": partial(item_maps, name="top"),
    "bottom": partial(item_maps, name="bottom"),
    "drop_height": _drop_height,
    "boxes": lambda seen: packed_boxes(seen.state, seen.params),
    "cut_surface": _cut_surface,
}
"""Observations ``[B, ...]`` by the names that :func:`entries` returns.

They are float32 in [0, 1], except ``item_id``. The scene contains the visible items, including the
preview.
"""


def observe(
    state: State, maps: Maps | None, catalogue: Catalogue, params: PackingParams
) -> dict[str, Tensor]:
    """Return the observations that ``params.observation`` names."""
    item_id, there = visible_items(state, params.num_slots)
    scene = Scene(state, item_id, there, maps, catalogue, params)
    names = entries(params.observation)
    observed = {name: compute(scene) for name, compute in OBSERVED.items() if name in names}
    if names := following(params):
        observed |= of_heightmap(names, over_height(state["heightmap"], params))
    return observed
