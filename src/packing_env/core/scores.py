"""Scores of placements, shared by heuristics and candidate generators; the lowest is the best.

All lengths, including heights, are in pitches (``PackingParams.pitch``: a cell in geometry
``"maps"``). So a container of unit cells has the published integers as scores. ``x`` and ``y`` are
the lower corner of the item's window, and ``z`` is its rest height. Sums of a heightmap are over
all its cells.

| score | formula | source |
|---|---|---|
| :func:`first_fit` | none: the first in the order of ties | IR-BPP |
| :func:`lowest_z` | ``100 z`` | IR-BPP (MINZ), Zhao et al., TOG 2023 |
| :func:`deepest_bottom_left` | ``x + y + 100 z`` | Online-3D-BPP-PCT (DBL) |
| :func:`heightmap_minimization` | ``x + y + 100 sum(new heightmap)`` | ibid.; Wang, Hauser 2019 |

Scores are rounded to multiples of 1/8, so that rounding errors do not decide. 1/8 corresponds to
1/800 of a pitch in height. Ties go to the first placement in the order x, y, item, orientation,
which is the order of the loops in Online-3D-BPP-PCT.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from packing_env import kernels
from packing_env.core import heightmap as hm
from packing_env.core.lists import NEVER
from packing_env.core.orientation import Placement
from packing_env.types import Catalogue, PackingParams

HEIGHT_WEIGHT = 100.0
"""Weight of a pitch of height relative to a pitch of x or y."""

TIES_PER_UNIT = 8
_SPECTRUM_BYTES = 256 * 2**20
"""Largest memory for the spectra of footprints."""
_RASTER_CELLS = 2**24
"""Number of cells that are processed at once when boxes are compared with the raster."""


@dataclass(frozen=True)
class Placements:
    """The placements to score, in pitches; the axes ``P`` are ``[L, R, Xs, Ys]`` or ``[K]``.

    Attributes:
        x: Lower corner of the window along X; it broadcasts against ``[B, *P]``.
        y: Lower corner along Y; it broadcasts in the same way.
        z: ``[B, *P]`` float64 rest height; arbitrary where the placement is illegal.
        summed_rise: Function that computes by how much each placement raises the sum of the
            heightmap (:func:`summed_rise` and its variants).
    """

    x: Tensor
    y: Tensor
    z: Float[Tensor, "B *P"]  # noqa: UP037
    summed_rise: Callable[[], Tensor] = field(repr=False)


Score = Callable[[Placements], Tensor]


def first_fit(placements: Placements) -> Tensor:
    """Return 0: all placements tie, so the first legal one is the best."""
    return torch.zeros_like(placements.z)


def lowest_z(placements: Placements) -> Tensor:
    """Return ``100 z``: the lowest rest height is the best."""
    return HEIGHT_WEIGHT * placements.z


def deepest_bottom_left(placements: Placements) -> Tensor:
    """Return ``x + y + 100 z``: low, then near the corner."""
    return placements.x + placements.y + HEIGHT_WEIGHT * placements.z


def heightmap_minimization(placements: Placements) -> Tensor:
    """Return ``x + y + 100`` times the rise of the sum of the heightmap.

    The rise is the sum of the new heightmap minus the sum of the old one, which is a constant. Both
    are over the whole heightmap. The program of IR-BPP sums over the item's window alone, so it
    compares windows of different sizes and favours small ones.
    """
    return placements.x + placements.y + HEIGHT_WEIGHT * placements.summed_rise()


def ticks(score: Tensor, legal: Bool[Tensor, "*rows"]) -> Int[Tensor, "*rows"]:
    """Round scores to multiples of the tie step; :data:`NEVER` where a placement is illegal."""
    known = torch.where(legal, score, 0.0)
    return torch.where(legal, (known * TIES_PER_UNIT).round().long(), NEVER)


def lattice_placements(
    heights: Float[Tensor, "B X Y"],
    z: Float[Tensor, "B L R Xs Ys"],
    item_id: Int[Tensor, "B L"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Placements:
    """Return all placements in geometry ``"maps"``, given float64 heights in cells."""
    x, y = (torch.arange(n, device=z.device).double() * params.grid_step for n in z.shape[3:])
    return Placements(x[:, None], y, z, lambda: summed_rise(heights, item_id, z, catalogue, params))


def best_of_lattice(
    score: Float[Tensor, "B L R Xs Ys"], legal: Bool[Tensor, "B L R Xs Ys"]
) -> Int[Tensor, " B"]:
    """Return the legal placement of lowest score, the first in tie order; -1 if none is legal.

    Score and position in tie order are packed into one int64 key, so the order is total and the
    same on every device.
    """
    # 1. Ranks in tie order: x, y, item, orientation.
    _, num_items, num_orientations, xs, ys = legal.shape
    rank = ticks(score, legal).permute(0, 3, 4, 1, 2).flatten(1)
    size = rank.shape[1]
    # 2. One key per placement, from rank and position; take the smallest key.
    order = torch.arange(size, device=rank.device)
    key = torch.where(rank < NEVER, rank * size + order, NEVER)
    best = key.amin(1)
    # 3. Convert the position in tie order to the index of the placement.
    planes = num_items * num_orientations
    place = best % size
    plane, at = place % planes, place // planes
    return torch.where(best < NEVER, plane * (xs * ys) + at, -1)


def summed_rise(
    heights: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B L"],
    z: Float[Tensor, "B L R Xs Ys"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Float[Tensor, "B L R Xs Ys"]:
    """Compute by how much each placement raises the sum of the heightmap, in cells.

    Over the footprint the new height is ``z + top``. So the rise is ``n z + sum(top)`` minus the
    sum of the old heights under the footprint. This sum is a correlation with the footprint; a
    Fourier transform computes it for all placements at once. The value is undefined if a footprint
    leaves the container.
    """
    # 1. The sum of heights under every footprint at every point, for some row-item pairs at a time.
    spectrum = torch.fft.rfft2(heights)
    batch = torch.arange(item_id.shape[0], device=item_id.device)[:, None]
    batch = batch.expand_as(item_id).flatten()
    of_pair = 16 * spectrum[0].numel() * catalogue["bottom"].shape[1]
    pairs = max(1, _SPECTRUM_BYTES // of_pair)
    under = []
    for rows, items in zip(batch.split(pairs), item_id.flatten().split(pairs), strict=True):
        footprint = torch.isfinite(catalogue["bottom"][items]).double()
        product = spectrum[rows][:, None] * torch.fft.rfft2(footprint, s=heights.shape[1:]).conj()
        sums = torch.fft.irfft2(product, s=heights.shape[1:])
        under.append(sums[..., :: params.grid_step, :: params.grid_step])
    # 2. The new heights minus this sum.
    count, top = _footprint(catalogue["top"][item_id], params.cell)
    rise = count[..., None, None] * z + top[..., None, None]
    return rise - torch.cat(under).view_as(z)


def summed_rise_at(
    heights: Float[Tensor, "B X Y"],
    item_id: Int[Tensor, "B K"],
    place: Placement,
    z: Float[Tensor, "B K"],
    catalogue: Catalogue,
    params: PackingParams,
) -> Float[Tensor, "B K"]:
    """Compute :func:`summed_rise` of single placements ``[B, K]``."""
    top = catalogue["top"][item_id, place.orientation]
    maps = heights[:, None].expand(*item_id.shape, *heights.shape[1:]).flatten(0, 1)
    window, _ = hm.read_window(maps, place.x.flatten(), place.y.flatten(), top.shape[2:])
    under = torch.where(torch.isfinite(top), window.view_as(top), 0.0).sum((-2, -1))
    count, total = _footprint(top, params.cell)
    return count * z + total - under


def summed_rise_of_boxes(
    heights: Float[Tensor, "B X Y"],
    lower: Int[Tensor, "B K 2"],
    size: Int[Tensor, "B K 3"],
    z: Float[Tensor, "B K"],
    params: PackingParams,
) -> Float[Tensor, "B K"]:
    """Compute the rise in geometry ``"boxes"``; a box raises all cells that its base overlaps.

    All arguments are in pitches: the raster ``heights`` (float64), lower corners ``(x, y)``,
    rotated sides ``(w, h, d)`` and rest heights.
    """
    pitches = params.units_per_cell

    def touched(axis: int, count: int) -> Tensor:
        cell = torch.arange(count, device=lower.device) * pitches
        first, last = lower[..., axis, None], (lower + size[..., :2])[..., axis, None]
        return (cell < last) & (cell + pitches > first)

    # Columns and rows of cells that each box overlaps; the raster is compared in parts.
    top = z + size[..., 2]
    columns, rows = touched(0, heights.shape[1]), touched(1, heights.shape[2])
    at_once = max(1, _RASTER_CELLS // max(1, heights.numel()))
    parts = []
    for start in range(0, top.shape[1], at_once):
        here = slice(start, start + at_once)
        rise = (top[:, here, None, None] - heights[:, None]).clamp(min=0)
        parts.append((columns[:, here, :, None] * rise * rows[:, here, None, :]).sum((-2, -1)))
    return torch.cat(parts, 1)


def _footprint(top: Float[Tensor, "*batch U V"], cell: float) -> tuple[Tensor, Tensor]:
    """Return the number of cells of each footprint, and the sum of ``top`` over it in cells."""
    inside = torch.isfinite(top)
    total = torch.where(inside, kernels.divide(top.double(), cell), 0.0).sum((-2, -1))
    return inside.sum((-2, -1), dtype=torch.float64), total
