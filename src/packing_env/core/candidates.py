"""Candidates: a short list of placements instead of the whole lattice.

A generator proposes placements in its order of preference; they may be illegal or repeated.
:func:`propose` keeps the first K legal, distinct proposals, and counts those that did not fit into
the list. If no proposal is legal, ``candidate_fallback`` puts the lowest legal placement of the
lattice on the list. Add a generator with :func:`register`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core.feasibility import Maps, ground
from packing_env.core.lists import NEVER, beyond, differs_from_last, front, smallest
from packing_env.core.orientation import decode_placement, num_orientations
from packing_env.kernels import divide
from packing_env.types import Catalogue, PackingParams, ParameterError, State
from packing_env.values import check_choice

FEATURES = ("x", "y", "z", "size_x", "size_y", "peak", "volume", "slot", "there")
"""Features of a candidate in every geometry; see :func:`feature_names`."""


@dataclass(frozen=True)
class Scene:
    """Input of a generator: a state, and the items that may be placed.

    Attributes:
        state: The simulator's state.
        item_id: ``[B, L]`` catalogue rows of the visible items.
        there: ``[B, L]`` True for items that exist.
        maps: All placements; ``None`` in geometry ``"boxes"``.
        catalogue: The items.
        params: The task.
    """

    state: State
    item_id: Int[Tensor, "B L"]
    there: Bool[Tensor, "B L"]
    maps: Maps | None
    catalogue: Catalogue
    params: PackingParams


@dataclass(frozen=True)
class Proposals:
    """Output of a generator.

    Attributes:
        index: ``[B, P]`` placements (``core.orientation.encode_placement``), best first; -1 is
            padding.
        dropped: ``[B]`` number of placements that exceeded the capacity.
    """

    index: Int[Tensor, "B P"]
    dropped: Int[Tensor, " B"]


@dataclass(frozen=True)
class Candidates:
    """List from which the agent chooses.

    Attributes:
        index: ``[B, K]`` legal, distinct placements, best first, padded with -1.
        z: ``[B, K]`` their rest heights, metres; +inf for padding.
        overflow: ``[B]`` number of proposals that did not fit into the list or exceeded the
            generator's capacity.
    """

    index: Int[Tensor, "B K"]
    z: Float[Tensor, "B K"]
    overflow: Int[Tensor, " B"]


Generator = Callable[[Scene], Proposals]
GENERATORS: dict[str, Generator] = {}


def register(name: str, generator: Generator) -> None:
    """Register a generator as ``candidate_generator=name``; raise if the name is taken."""
    if name in GENERATORS:
        raise ParameterError(f"candidate generator {name!r} exists; choose another name")
    GENERATORS[name] = generator


def get_generator(name: Any) -> Generator:
    """Return the candidate generator of that name."""
    return GENERATORS[check_choice("candidate_generator", name, GENERATORS)]


def lowest(maps: Maps, count: int) -> Int[Tensor, "B K"]:
    """Return the ``count`` legal placements of lowest rest height, ties by index, padded with -1.

    The bits of non-negative float32 numbers, read as integers, have the same order as the numbers.
    So one int64 key holds height and index, and the order is total and equal on every device.
    """
    # One key per placement: the bits of its height above its index.
    z = maps.z.flatten(1) + 0.0  # -0.0 becomes 0.0; -0.0 has the sign bit
    legal = maps.legal.flatten(1)
    index = torch.arange(z.shape[1], device=z.device)
    key = torch.where(legal, (z.view(torch.int32).long() << 32) | index, NEVER)
    # Take the smallest keys; the lower half of each key is the index.
    best = smallest(key, count)
    return torch.where(best < NEVER, best & 0xFFFFFFFF, -1)


def lowest_z(scene: Scene) -> Proposals:
    """Propose the K legal placements of lowest rest height, ties by index."""
    index = lowest(need_maps(scene, "lowest_z"), scene.params.num_candidates)
    return Proposals(index, torch.zeros_like(index[:, 0]))


register("lowest_z", lowest_z)


def need_maps(scene: Scene, name: str) -> Maps:
    """Return the maps of all placements; raise if the geometry has no maps."""
    if scene.maps is None:
        raise ParameterError(
            f"candidate_generator={name!r} needs the map of all placements, which geometry='boxes' "
            f"does not have; use split_spaces"
        )
    return scene.maps


def judge(
    scene: Scene, index: Int[Tensor, "B P"]
) -> tuple[Float[Tensor, "B P"], Bool[Tensor, "B P"]]:
    """Return rest height (metres) and legality of proposed placements; index -1 is illegal."""
    # On a lattice the legality of all placements is known.
    known = index >= 0
    at = index.clamp(min=0)
    if scene.maps is not None:
        z = scene.maps.z.flatten(1).gather(1, at)
        return z, known & scene.maps.legal.flatten(1).gather(1, at)
    # For integer boxes, each proposal is checked.
    place = decode_placement(at, num_orientations(scene.catalogue), scene.params)
    item_id = scene.item_id.gather(1, place.slot)
    there = known & scene.there.gather(1, place.slot)
    rules = ground(scene.catalogue, scene.params)
    return rules.judge(scene.state, item_id, place, there)


def propose(scene: Scene) -> Candidates:
    """Return the first K legal and distinct proposals of the task's generator."""
    # 1. Propose placements, the lowest of the lattice last, and check their legality.
    params = scene.params
    proposed = get_generator(params.candidate_generator)(scene)
    index, falls_back = proposed.index, params.candidate_fallback and scene.maps is not None
    if falls_back:
        index = torch.cat((index, lowest(need_maps(scene, "lowest_z"), 1)), 1)
    z, legal = judge(scene, index)
    # 2. Leave out repetitions, and the lowest placement of the lattice if a proposal is legal.
    new = legal & _first_of_its_kind(index, legal)
    if falls_back:
        new[:, -1:] &= ~new[:, :-1].any(1, keepdim=True)
    # 3. Legal proposals move to the front of the list; count proposals that do not fit.
    capacity = params.num_candidates
    return Candidates(
        index=front(index, new, capacity, -1),
        z=front(z, new, capacity, torch.inf),
        overflow=beyond(new, capacity) + proposed.dropped,
    )


def _first_of_its_kind(index: Int[Tensor, "B P"], legal: Bool[Tensor, "B P"]) -> Tensor:
    """Return False for a legal proposal that repeats an earlier legal one."""
    # A stable sort makes equal indices neighbours and keeps the earliest one first.
    ordered, order = torch.where(legal, index, -1).sort(dim=1, stable=True)
    return torch.zeros_like(legal).scatter(1, order, differs_from_last(ordered))


def feature_names(params: PackingParams) -> tuple[str, ...]:
    """Return the names of a task's features: :data:`FEATURES`, for voxels also ``contact``.

    ``contact`` is the share of the item's own faces that touch an occupied voxel or a side of the
    container. ``there`` is always the last feature.
    """
    return (*FEATURES[:-1], *(["contact"] if params.geometry == "voxels" else []), FEATURES[-1])


def columns(listed: Float[Tensor, "*B K F"]) -> dict[str, Float[Tensor, "*B K"]]:
    """Return the :data:`FEATURES` of the observation ``candidates`` by name, in any geometry."""
    *common, last = FEATURES
    return dict(zip(common, listed.unbind(-1), strict=False)) | {last: listed[..., -1]}


def features(
    candidate: Int[Tensor, "B K"],
    z: Float[Tensor, "B K"],
    item_id: Int[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
    maps: Maps | None = None,
) -> Float[Tensor, "B K F"]:
    """Return the features of each candidate, in [0, 1]; zeros in empty entries of the list.

    :func:`feature_names` lists them; ``contact`` needs the maps.
    """
    # 1. Find the placement of each index; empty entries read index 0 and are zeroed below.
    place = decode_placement(candidate.clamp(min=0), num_orientations(catalogue), params)
    item = item_id.gather(1, place.slot)
    size = catalogue["size"][item, place.orientation].float()
    # 2. One column per feature; lengths are divided by the container's sides, in pitches.
    across, along, _ = params.pitches
    entries = [
        divide(place.x, across),
        divide(place.y, along),
        divide(z, params.height).clamp(0, 1),
        divide(size[..., 0], across),
        divide(size[..., 1], along),
        divide(catalogue["peak"][item, place.orientation], params.height).clamp(0, 1),
        divide(catalogue["volume"][item], params.container_volume).float(),
        divide(place.slot, params.num_visible),
        torch.ones_like(place.x, dtype=torch.float32),
    ]
    if maps is not None and maps.contact is not None:
        touching = maps.contact.flatten(1).gather(1, candidate.clamp(min=0))
        entries.insert(-1, touching / catalogue["voxel_surface"][item, place.orientation])
    return torch.where((candidate >= 0)[..., None], torch.stack(entries, -1), 0.0)


def feature_tables(
    catalogue: Catalogue, params: PackingParams
) -> tuple[Float[Tensor, "A 2"], Float[Tensor, "M R 4"], Float[Tensor, " L"]]:
    """Return tables of :func:`features` by lattice point, by item and orientation, and by slot.

    The features in these tables are ``x y``, then ``size_x size_y peak volume``, then ``slot``.
    """
    # Each feature of a candidate depends only on its place, only on item and orientation, or only
    # on its slot. Each table varies one of these three and sets the others to 0.
    device, slots = catalogue["peak"].device, params.num_visible
    count, (xs, ys) = num_orientations(catalogue), params.lattice
    item = torch.arange(len(catalogue["volume"]), device=device)[:, None].expand(-1, slots)

    def of(candidate: Tensor, item_id: Tensor) -> Tensor:
        return features(candidate, candidate.float() * 0, item_id, catalogue, params)

    place = of(torch.arange(xs * ys, device=device)[None], item[:1])
    turned = torch.arange(count, device=device) * (xs * ys)
    shape = of(turned.expand(len(item), count), item)
    slot = of(torch.arange(slots, device=device)[None] * (count * xs * ys), item[:1])
    parts = (place[0, :, :2], shape[..., 3:7], slot[0, :, 7])
    by_place, by_shape, by_slot = (part.contiguous() for part in parts)
    return by_place, by_shape, by_slot
