"""Features of the container's heightmap and of the maps of rest heights."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from packing_env.core.observation import ITEM_FEATURES, ORIENTATION_FEATURES

COARSE = 8
"""Default number of cells along each side of a pooled heightmap."""
GROUND = 32
"""Default number of cells along each side of the heightmap in a network's summary of the state."""
FIT_FEATURES = ("lowest", "mean", "share")
"""Features of how well an item in an orientation still fits; see :func:`fits`."""


def coarse(
    heightmap: Float[Tensor, "B X Y"], cells: tuple[int, int] = (COARSE, COARSE)
) -> Float[Tensor, "B C"]:
    """Return the means of the heightmap over parts, ``cells`` of them in x and y."""
    if heightmap.shape[1:] == cells:
        return heightmap.flatten(1)
    return functional.adaptive_avg_pool2d(heightmap[:, None], cells).flatten(1)


def ground_cells(grid: tuple[int, int], ground: int) -> tuple[int, int]:
    """Return the cells of a pooled heightmap: ``ground`` in x and y, but at most the grid's."""
    return min(grid[0], ground), min(grid[1], ground)


def coordinates(lattice: tuple[int, int]) -> Float[Tensor, "2 Xs Ys"]:
    """Return the coordinates x and y of the lattice's points, each from 0 to 1."""
    axes = (torch.linspace(0, 1, size) for size in lattice)
    return torch.stack(torch.meshgrid(*axes, indexing="ij"))


def folded(images: Float[Tensor, "N C Xs Ys"], fold: int) -> Float[Tensor, "N Cf Xf Yf"]:
    """Fold neighbouring cells into channels; the far sides are padded with 1, which means full."""
    if fold == 1:
        return images
    xs, ys = images.shape[-2:]
    if xs % fold or ys % fold:
        images = functional.pad(images, (0, -ys % fold, 0, -xs % fold), value=1.0)
    return functional.pixel_unshuffle(images, fold)


def per_orientation(
    item: Float[Tensor, "B S F"], orientation: Float[Tensor, "B S R G"], num_items: int
) -> Float[Tensor, "B L R FG"]:
    """Return the features of each item, joined with the features of each of its orientations."""
    of_item = item[:, :num_items, None].expand(-1, -1, orientation.shape[2], -1)
    return torch.cat((of_item, orientation[:, :num_items]), -1)


class MapSummary(nn.Module):
    """Encoder of each item in each orientation; it reads features, fit and container, but no maps.

    Args:
        width: Features per item and orientation.
        cells: Parts of the heightmap, see :func:`ground_cells`.
    """

    def __init__(self, width: int, cells: tuple[int, int] = (COARSE, COARSE)) -> None:
        super().__init__()
        features = len(ITEM_FEATURES) + len(ORIENTATION_FEATURES) + len(FIT_FEATURES)
        self.cells = cells
        self.ground = nn.Linear(cells[0] * cells[1], width)
        self.features = nn.Linear(features, width, bias=False)
        self.hidden = nn.Linear(width, width)

    def forward(
        self,
        heightmap: Float[Tensor, "B X Y"],
        drop_height: Float[Tensor, "B L R Xs Ys"],
        item: Float[Tensor, "B S F"],
        orientation: Float[Tensor, "B S R G"],
    ) -> Float[Tensor, "B L R D"]:
        """Return ``D = width`` features per item and orientation; zeros where nothing is legal."""
        features = per_orientation(item, orientation, drop_height.shape[1])
        container = self.ground(coarse(heightmap, self.cells))
        fit = fits(drop_height.flatten(3))
        features = torch.cat((features, fit), -1)
        hidden = container[:, None, None] + self.features(features)
        return functional.relu(self.hidden(functional.relu(hidden))) * (fit[..., -1:] > 0)


def fits(
    rest: Float[Tensor, "*batch N"], legal: Float[Tensor, "*batch N"] | None = None
) -> Float[Tensor, "*batch 3"]:
    """Return :data:`FIT_FEATURES`: lowest and mean rest height, share of legal placements.

    Illegal rest heights are 1, even in terminated rows, whose mask is all True. ``legal`` is 1 at
    legal placements; by default these are the placements with rest heights below 1.
    """
    legal = (rest < 1).float() if legal is None else legal
    return torch.stack((rest.amin(-1), rest.mean(-1), legal.mean(-1)), -1)


def legal_mean(
    score: Float[Tensor, "*batch N"], legal: Float[Tensor, "*#batch N"]
) -> Float[Tensor, "*batch"]:
    """Return the mean score of the legal placements, 0 if there are none."""
    return torch.linalg.vecdot(score, legal) / legal.sum(-1).clamp(min=1)


def with_point_terms(
    score: Float[Tensor, "B P S N"],
    own: Float[Tensor, "B P C N"],
    shared: Float[Tensor, "B D N"],
    weights: Float[Tensor, "B P S E"],
) -> Float[Tensor, "B P S N"]:
    """Add a linear term to each score: weights times the values of planes at the same point.

    ``own`` holds the planes of each map, ``shared`` those of all maps; ``E = C + D``. The term
    restores details that folding blurs within a coarse cell.
    """
    of_own, of_shared = weights.tensor_split((own.shape[2],), -1)
    for plane, weight in zip(own.split(1, 2), of_own.split(1, -1), strict=True):
        score = torch.addcmul(score, weight, plane)
    level = torch.baddbmm(score.flatten(1, 2), of_shared.flatten(1, 2), shared)
    return level.view_as(score)


def pooled(hidden: Tensor, dim: int) -> Tensor:
    """Return mean and maximum over an axis, concatenated along the last one."""
    return torch.cat((hidden.mean(dim), hidden.amax(dim)), -1)
