"""Candidate generators: a short list of placements instead of the whole lattice.

A generator takes the maps of all placements and returns ``[B, K]`` placement indices
(``core.orientation.encode_placement``), -1 where there are fewer than K. If the lattice has a legal
placement, candidate 0 is legal. Add one by putting a function into :data:`GENERATORS`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env.core.feasibility import Maps
from packing_env.core.orientation import decode_placement, num_orientations
from packing_env.types import Catalogue, PackingParams, ParameterError

Generator = Callable[[Maps, PackingParams], Tensor]
FEATURES = ("x", "y", "z", "size_x", "size_y", "peak", "volume", "slot", "there")


def lowest_z(maps: Maps, params: PackingParams) -> Int[Tensor, "B K"]:
    """The K legal placements of lowest rest height, ties by index.

    Non-negative float32 order like their bits, so height and index share one int64 key and the
    order is total: the same on every device.
    """
    z = maps.z.flatten(1) + 0.0
    legal = maps.legal.flatten(1)
    index = torch.arange(z.shape[1], device=z.device)
    never = torch.iinfo(torch.int64).max
    key = torch.where(legal, (z.view(torch.int32).long() << 32) | index, never)
    count = min(params.num_candidates, z.shape[1])
    best = key.topk(count, dim=1, largest=False, sorted=True).values
    found = torch.where(best < never, best & 0xFFFFFFFF, -1)
    return torch.nn.functional.pad(found, (0, params.num_candidates - count), value=-1)


GENERATORS: dict[str, Generator] = {"lowest_z": lowest_z}


def get_generator(name: str) -> Generator:
    """The candidate generator of that name."""
    if name not in GENERATORS:
        raise ParameterError(
            f"candidate_generator={name!r} is unknown; choose one of {sorted(GENERATORS)}"
        )
    return GENERATORS[name]


def features(
    candidate: Int[Tensor, "B K"],
    z: Float[Tensor, "B L R Xs Ys"],
    item_id: Int[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Float[Tensor, "B K F"]:
    """:data:`FEATURES` of each candidate, in [0, 1]; zeros where there is none."""
    there = candidate >= 0
    index = candidate.clamp(min=0)
    place = decode_placement(index, num_orientations(catalogue), params)
    item = item_id.gather(1, place.slot)
    size = catalogue["size"][item, place.orientation].float()
    columns = (
        place.x / params.grid[0],
        place.y / params.grid[1],
        (z.flatten(1).gather(1, index) / params.height).clamp(0, 1),
        size[..., 0] / params.grid[0],
        size[..., 1] / params.grid[1],
        (catalogue["peak"][item, place.orientation] / params.height).clamp(0, 1),
        (catalogue["volume"][item] / params.container_volume).float(),
        place.slot / params.num_visible,
        torch.ones_like(place.x, dtype=torch.float32),
    )
    return torch.where(there[..., None], torch.stack(columns, -1), 0.0)


def mask(candidate: Int[Tensor, "B K"]) -> Bool[Tensor, "B K"]:
    """Which places of the list hold a (legal) candidate."""
    return candidate >= 0
